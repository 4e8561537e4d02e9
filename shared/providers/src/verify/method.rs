//! What computes a signature. Everything secret is compared in constant time.

use std::borrow::Cow;

use ring::{
    digest, hmac,
    signature::{self, UnparsedPublicKey, VerificationAlgorithm},
};

use crate::secret::Material;

/// What computes the signature.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    /// A keyed hash.
    Hmac(hmac::Algorithm),
    /// A hash of a text that the secret is part of.
    Digest(&'static digest::Algorithm),
    /// The secret itself.
    Token,
    /// A private key's.
    Public(Algorithm),
}

/// An algorithm of public keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Ed25519,
    /// The signature in ASN.1.
    P256Der,
    /// The signature as two numbers, as in a JSON web token.
    P256Fixed,
    RsaSha1,
    RsaSha256,
}

impl Method {
    /// Whether bytes can be a signature at all.
    pub(super) fn can_be(self, signature: &[u8]) -> bool {
        match self {
            Self::Hmac(algorithm) => signature.len() == algorithm.digest_algorithm().output_len(),
            Self::Digest(algorithm) => signature.len() == algorithm.output_len(),
            Self::Public(Algorithm::Ed25519 | Algorithm::P256Fixed) => signature.len() == 64,
            Self::Public(Algorithm::P256Der | Algorithm::RsaSha1 | Algorithm::RsaSha256)
            | Self::Token => !signature.is_empty(),
        }
    }

    /// Whether one of `signatures` is that of `signed` by `key`.
    pub(super) fn is_signed(
        self,
        key: &Material,
        signed: &[Cow<'_, [u8]>],
        signatures: &[Vec<u8>],
    ) -> bool {
        // The text is hashed once, however many signatures there are.
        match (self, key) {
            (Self::Hmac(_), Material::Shared(key)) => {
                let expected = tag(key, signed);
                signatures.iter().any(|signature| same(expected.as_ref(), signature))
            }
            (Self::Digest(algorithm), Material::Text(_)) => {
                let expected = hash(algorithm, signed);
                signatures.iter().any(|signature| same(expected.as_ref(), signature))
            }
            (Self::Token, Material::Text(text)) => {
                signatures.iter().any(|signature| same(text.as_bytes(), signature))
            }
            (Self::Public(algorithm), Material::Public(key)) => {
                algorithm.is_signed(&key.bytes, signed, signatures)
            }
            (Self::Public(algorithm), Material::Pair(pair)) => {
                algorithm.is_signed(pair.public(), signed, signatures)
            }
            _ => false,
        }
    }

    /// The signature of `signed`; `None` if `key` cannot sign.
    pub(super) fn sign(self, key: &Material, signed: &[Cow<'_, [u8]>]) -> Option<Vec<u8>> {
        match (self, key) {
            (Self::Hmac(_), Material::Shared(key)) => Some(tag(key, signed).as_ref().to_vec()),
            (Self::Digest(algorithm), Material::Text(_)) => {
                Some(hash(algorithm, signed).as_ref().to_vec())
            }
            (Self::Token, Material::Text(text)) => Some(text.as_bytes().to_vec()),
            (Self::Public(algorithm), Material::Pair(pair)) => {
                pair.sign(&signed.concat(), algorithm == Algorithm::RsaSha1)
            }
            _ => None,
        }
    }
}

impl Algorithm {
    fn is_signed(self, key: &[u8], signed: &[Cow<'_, [u8]>], signatures: &[Vec<u8>]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::Ed25519 => &signature::ED25519,
            Self::P256Der => &signature::ECDSA_P256_SHA256_ASN1,
            Self::P256Fixed => &signature::ECDSA_P256_SHA256_FIXED,
            Self::RsaSha1 => &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            Self::RsaSha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        };
        let key = UnparsedPublicKey::new(algorithm, key);
        let text = signed.concat();
        signatures.iter().any(|signature| key.verify(&text, signature).is_ok())
    }
}

/// Whether two texts are the same. Told by their codes under one of them as the key: equal exactly
/// if the texts are, and compared in constant time.
pub(crate) fn same(secret: &[u8], given: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, given, hmac::sign(&key, secret).as_ref()).is_ok()
}

fn tag(key: &hmac::Key, signed: &[Cow<'_, [u8]>]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for piece in signed {
        context.update(piece);
    }
    context.sign()
}

fn hash(algorithm: &'static digest::Algorithm, signed: &[Cow<'_, [u8]>]) -> digest::Digest {
    let mut context = digest::Context::new(algorithm);
    for piece in signed {
        context.update(piece);
    }
    context.finish()
}
