//! Public keys and pairs, as providers and people write them.
//!
//! A certificate is believed because it was configured, or fetched from its provider's own host
//! ([`crate::Provider::key_request`]). Its dates count.

use std::{ops::RangeInclusive, sync::Arc};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use domain::time::Timestamp;
use ring::{
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use serde::Deserialize;
use serde_json::json;
use x509_cert::{
    Certificate,
    der::{
        Decode, DecodePem, Document, Encode, EncodePem,
        asn1::{Any, BitString, Uint},
        pem::{LineEnding, PemLabel},
    },
    spki::{
        AlgorithmIdentifierOwned, ObjectIdentifier, SubjectPublicKeyInfoOwned,
        SubjectPublicKeyInfoRef,
    },
    time::Time,
};

use crate::{
    secret::{Encoding, KeyFormat, KeyText, Material},
    verify::Algorithm,
};

/// A public key.
pub(crate) struct PublicKey {
    /// As `ring` takes it: a point, an RSA key, 32 bytes.
    pub(crate) bytes: Vec<u8>,
    /// Its name, where the signer names the key.
    pub(crate) id: Option<String>,
    /// While it, or its certificate, holds.
    pub(crate) valid: Option<RangeInclusive<Timestamp>>,
}

/// A private key with its public one.
pub(crate) enum KeyPair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair, Option<String>),
    Rsa(RsaKeyPair),
}

impl KeyPair {
    pub(crate) fn public(&self) -> &[u8] {
        match self {
            Self::Ed25519(pair) => pair.public_key().as_ref(),
            Self::P256(pair, _) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    /// Its name, where the signer names the key.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::P256(_, id) => id.as_deref(),
            Self::Ed25519(_) | Self::Rsa(_) => None,
        }
    }

    /// Signs; ECDSA and RSA with the system's randomness. `None` if that fails, or for RSA with
    /// SHA-1, which verifies what is old and signs nothing new.
    pub(crate) fn sign(&self, text: &[u8], is_sha1: bool) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(pair) => Some(pair.sign(text).as_ref().to_vec()),
            Self::P256(pair, _) => {
                Some(pair.sign(&SystemRandom::new(), text).ok()?.as_ref().to_vec())
            }
            Self::Rsa(_) if is_sha1 => None,
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

/// A new private key: PKCS #8, in PEM. `None` for RSA, which `ring` does not generate.
pub(crate) fn generate(algorithm: Algorithm) -> Option<String> {
    let random = SystemRandom::new();
    let der = match algorithm {
        Algorithm::Ed25519 => Ed25519KeyPair::generate_pkcs8(&random).ok()?,
        Algorithm::P256Der | Algorithm::P256Fixed => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok()?
        }
        Algorithm::RsaSha1 | Algorithm::RsaSha256 => return None,
    };
    let document = Document::try_from(der.as_ref()).ok()?;
    document.to_pem("PRIVATE KEY", LineEnding::LF).ok()
}

/// The pair of a private key in PKCS #8 PEM, whoever made it.
pub(crate) fn pair(algorithm: Algorithm, pem: &str) -> Result<KeyPair, &'static str> {
    let (_, document) = Document::from_pem(pem).map_err(|_| "it is no PEM")?;
    let der = document.as_bytes();
    let p256 = |signing| EcdsaKeyPair::from_pkcs8(signing, der, &SystemRandom::new()).ok();
    let pair = match algorithm {
        // Not every tool writes the public key beside the private one.
        Algorithm::Ed25519 => {
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(KeyPair::Ed25519)
        }
        Algorithm::P256Der => {
            p256(&ECDSA_P256_SHA256_ASN1_SIGNING).map(|pair| KeyPair::P256(pair, None))
        }
        Algorithm::P256Fixed => p256(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map(|pair| KeyPair::P256(pair, Some(TEST_KEY_ID.to_owned()))),
        Algorithm::RsaSha1 | Algorithm::RsaSha256 => {
            RsaKeyPair::from_pkcs8(der).ok().map(KeyPair::Rsa)
        }
    };
    pair.ok_or("it is no PKCS #8 key of the kind that the provider signs with")
}

/// The public key of a pair, as a source is told it.
pub(crate) fn public_text(pair: &KeyPair, format: &KeyFormat) -> Option<String> {
    let encoding = if format.text == KeyText::Hex { Encoding::Hex } else { Encoding::Base64 };
    let bytes = pair.public();
    let text = match (pair, format.text) {
        (KeyPair::Ed25519(_), _) => encoding.encode(bytes),
        (KeyPair::P256(_, id), KeyText::Jwk) => {
            let (x, y) = bytes.get(1..)?.split_at_checked(P256_BYTES)?;
            let [x, y] = [x, y].map(|number| BASE64_URL_SAFE_NO_PAD.encode(number));
            let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id });
            jwk.to_string()
        }
        (KeyPair::P256(..), _) => {
            encoding.encode(&described(EC_PUBLIC_KEY, Any::from(P256), bytes)?.to_der().ok()?)
        }
        (KeyPair::Rsa(pair), KeyText::Jwk) => {
            let numbers = PublicKeyComponents::<Vec<u8>>::from(pair.public());
            let [n, e] = [numbers.n, numbers.e].map(|number| BASE64_URL_SAFE_NO_PAD.encode(number));
            json!({ "kty": "RSA", "n": n, "e": e }).to_string()
        }
        (KeyPair::Rsa(_), _) => {
            described(RSA_ENCRYPTION, Any::null(), bytes)?.to_pem(LineEnding::LF).ok()?
        }
    };
    Some(format!("{}{text}", format.prefix))
}

fn described(
    oid: ObjectIdentifier,
    parameters: Any,
    key: &[u8],
) -> Option<SubjectPublicKeyInfoOwned> {
    let algorithm = AlgorithmIdentifierOwned { oid, parameters: Some(parameters) };
    let subject_public_key = BitString::from_bytes(key).ok()?;
    Some(SubjectPublicKeyInfoOwned { algorithm, subject_public_key })
}

/// Seed and public key, one after the other.
pub(crate) fn ed25519_pair(bytes: &[u8]) -> Result<Material, &'static str> {
    let (seed, public) =
        bytes.split_at_checked(ED25519_BYTES).ok_or("an Ed25519 key pair has 64 bytes")?;
    let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public)
        .map_err(|_| "seed and public key are no Ed25519 key pair")?;
    Ok(Material::Pair(Arc::new(KeyPair::Ed25519(pair))))
}

/// A public key, or a pair by its length.
pub(crate) fn ed25519(bytes: &[u8]) -> Result<Material, &'static str> {
    match bytes.len() {
        ED25519_BYTES => Ok(public(bytes.to_vec(), None)),
        length if length == 2 * ED25519_BYTES => ed25519_pair(bytes),
        _ => Err("an Ed25519 public key has 32 bytes"),
    }
}

/// A `SubjectPublicKeyInfo`, or a PKCS #8 pair.
pub(crate) fn p256(der: &[u8]) -> Result<Material, &'static str> {
    if let Ok(key) = SubjectPublicKeyInfoRef::from_der(der) {
        return point(key.subject_public_key.raw_bytes());
    }
    p256_pair(&ECDSA_P256_SHA256_ASN1_SIGNING, der)
}

fn p256_pair(
    algorithm: &'static EcdsaSigningAlgorithm,
    der: &[u8],
) -> Result<Material, &'static str> {
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new())
        .map_err(|_| "it is no P-256 key")?;
    Ok(Material::Pair(Arc::new(KeyPair::P256(pair, None))))
}

fn point(bytes: &[u8]) -> Result<Material, &'static str> {
    match bytes {
        [UNCOMPRESSED, rest @ ..] if rest.len() == 2 * P256_BYTES => {
            Ok(public(bytes.to_vec(), None))
        }
        _ => Err("it is no P-256 key"),
    }
}

/// A JSON web key, as far as it matters here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    d: Option<String>,
    /// In seconds. Not of the standard: who hands out keys one by one says so.
    expired_at: Option<i64>,
}

impl Jwk {
    fn read(text: &str) -> Result<Self, &'static str> {
        serde_json::from_str(text).map_err(|_| "it is no JSON web key")
    }

    fn public(self, bytes: Vec<u8>) -> Material {
        let valid =
            self.expired_at.map(|end| Timestamp::from_millis(i64::MIN)..=Timestamp::from_secs(end));
        Material::Public(Arc::new(PublicKey { bytes, id: self.kid, valid }))
    }
}

/// A JSON web key on P-256; with `d` it is a pair.
pub(crate) fn p256_jwk(text: &str) -> Result<Material, &'static str> {
    let jwk = Jwk::read(text)?;
    if jwk.kty != "EC" || jwk.crv.as_deref() != Some("P-256") {
        return Err("the JSON web key is not one on P-256");
    }
    let coordinate = |text: &Option<String>| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.as_deref().unwrap_or_default()).ok();
        bytes.filter(|bytes| bytes.len() == P256_BYTES).ok_or("it is no P-256 key")
    };
    let point = [&[UNCOMPRESSED][..], &coordinate(&jwk.x)?, &coordinate(&jwk.y)?].concat();
    if jwk.d.is_none() {
        return Ok(jwk.public(point));
    }
    let pair = EcdsaKeyPair::from_private_key_and_public_key(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &coordinate(&jwk.d)?,
        &point,
        &SystemRandom::new(),
    )
    .map_err(|_| "it is no P-256 key pair")?;
    Ok(Material::Pair(Arc::new(KeyPair::P256(pair, jwk.kid))))
}

/// A public JSON web key of RSA.
pub(crate) fn rsa_jwk(text: &str) -> Result<Material, &'static str> {
    let jwk = Jwk::read(text)?;
    if jwk.kty != "RSA" || jwk.d.is_some() {
        return Err("the JSON web key is no public one of RSA");
    }
    let number = |text: &Option<String>| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()?;
        Uint::new(&bytes).ok()
    };
    let (Some(modulus), Some(exponent)) = (number(&jwk.n), number(&jwk.e)) else {
        return Err("it is no RSA key");
    };
    let der = vec![modulus, exponent].to_der().map_err(|_| "it is no RSA key")?;
    Ok(jwk.public(der))
}

/// A certificate, a public key or a PKCS #8 private key in PEM.
pub(crate) fn rsa(pem: &str) -> Result<Material, &'static str> {
    if pem.contains(Certificate::PEM_LABEL) {
        return certificate(pem);
    }
    if pem.contains(SubjectPublicKeyInfoOwned::PEM_LABEL) {
        let key = SubjectPublicKeyInfoOwned::from_pem(pem).map_err(|_| "it is no public key")?;
        return Ok(public(key.subject_public_key.raw_bytes().to_vec(), None));
    }
    let (_, der) = Document::from_pem(pem).map_err(|_| "it is no PEM")?;
    let pair = RsaKeyPair::from_pkcs8(der.as_bytes()).map_err(|_| "it is no RSA key")?;
    Ok(Material::Pair(Arc::new(KeyPair::Rsa(pair))))
}

fn certificate(pem: &str) -> Result<Material, &'static str> {
    // Those after the first are of who signed it.
    let chain = Certificate::load_pem_chain(pem.as_bytes());
    let chain = chain.map_err(|_| "it is no certificate")?;
    let certificate = chain.first().ok_or("it is no certificate")?.tbs_certificate();
    let validity = certificate.validity();
    let time = |time: &Time| {
        let seconds = time.to_unix_duration().as_secs();
        Timestamp::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    };
    let key = certificate.subject_public_key_info();
    Ok(Material::Public(Arc::new(PublicKey {
        bytes: key.subject_public_key.raw_bytes().to_vec(),
        id: None,
        valid: Some(time(&validity.not_before)..=time(&validity.not_after)),
    })))
}

fn public(bytes: Vec<u8>, id: Option<String>) -> Material {
    Material::Public(Arc::new(PublicKey { bytes, id, valid: None }))
}

/// What a test key is called, where the signer names its key.
const TEST_KEY_ID: &str = "hookonce-test";
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// Of Ed25519: the public key, and the seed too.
const ED25519_BYTES: usize = 32;
/// A coordinate, and the private number.
const P256_BYTES: usize = 32;
/// What a point begins with that has both coordinates.
const UNCOMPRESSED: u8 = 4;
