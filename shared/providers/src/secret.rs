//! Secrets, and the keys read from them once at start.
//!
//! Which scheme a secret is for follows from its form alone. A public key never becomes a shared
//! secret: whoever knows a public key, and that is everybody, could sign with it otherwise.

use std::{fmt, sync::Arc};

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::BASE64_URL_SAFE_NO_PAD,
};
use ring::{digest, hmac};
use serde::Deserialize;

use crate::{
    keys::{self, KeyPair, PublicKey},
    verify::{Algorithm, Method},
};

/// A provider's secret as configured. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret of this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for whoever signs with it and for nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What the schemes of one provider verify and sign with. Made by [`crate::Provider::key`], and of
/// use to that provider only. `Debug` shows nothing.
#[derive(Clone)]
pub struct Key(Vec<Option<Material>>);

/// A secret, as one scheme works with it.
#[derive(Clone)]
pub(crate) enum Material {
    /// The key of a keyed hash.
    Shared(hmac::Key),
    /// The text itself.
    Text(Arc<str>),
    /// What verifies and cannot sign.
    Public(Arc<PublicKey>),
    /// What does both.
    Pair(Arc<KeyPair>),
}

impl Key {
    /// Reads `secret` for each of the provider's key formats.
    pub(crate) fn read<'k>(
        provider: &str,
        formats: impl IntoIterator<Item = &'k KeyFormat>,
        Secret(secret): &Secret,
    ) -> Result<Self, InvalidSecret> {
        if secret.is_empty() {
            return Err(InvalidSecret::Empty);
        }
        let formats: Vec<_> = formats.into_iter().collect();
        // A file of PEM ends in a line feed.
        let is_pem = formats.iter().all(|format| format.text == KeyText::Pem);
        let secret = if is_pem { secret.trim_ascii() } else { secret };
        if secret.trim() != secret {
            return Err(InvalidSecret::Whitespace);
        }
        let read: Vec<_> = formats.iter().map(|format| format.read(secret)).collect();
        let is_asymmetric = read.iter().any(|key| key.as_ref().is_ok_and(|key| !key.is_shared()));
        let reasons: Vec<_> = read.iter().filter_map(|key| key.as_ref().err().copied()).collect();
        let keys: Vec<_> = read
            .into_iter()
            .map(|key| key.ok().filter(|key| !(is_asymmetric && key.is_shared())))
            .collect();
        if keys.iter().all(Option::is_none) {
            return Err(InvalidSecret::Unfit {
                provider: provider.to_owned(),
                reason: reasons.join("; "),
            });
        }
        Ok(Self(keys))
    }

    /// A pair, for the scheme of this index alone.
    pub(crate) fn pair(scheme: usize, pair: KeyPair) -> Self {
        let mut keys = vec![None; scheme];
        keys.push(Some(Material::Pair(Arc::new(pair))));
        Self(keys)
    }

    /// What the scheme of this index works with.
    pub(crate) fn material(&self, scheme: usize) -> Option<&Material> {
        self.0.get(scheme)?.as_ref()
    }

    /// Whether it may be the key of this name: a key that has none may be any.
    pub(crate) fn may_be(&self, id: &str) -> bool {
        let mut names = self.0.iter().flatten().map(Material::id);
        names.any(|name| name.is_none_or(|name| name == id))
    }

    /// The key of a keyed hash, if it is one for any scheme.
    pub(crate) fn shared(&self) -> Option<&hmac::Key> {
        self.0.iter().flatten().find_map(|material| match material {
            Material::Shared(key) => Some(key),
            Material::Text(_) | Material::Public(_) | Material::Pair(_) => None,
        })
    }
}

impl Material {
    const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_) | Self::Text(_))
    }

    /// Its name, where signers name their keys.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Public(key) => key.id.as_deref(),
            Self::Pair(pair) => pair.id(),
            Self::Shared(_) | Self::Text(_) => None,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// A secret that no scheme of its provider can use. Says why, and nothing of the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// Nothing there.
    #[error("the secret is empty")]
    Empty,
    /// Space or a line end around it, usually from a file or a pasted value.
    #[error("the secret begins or ends with white space")]
    Whitespace,
    /// Not what the provider hands out.
    #[error("the secret is none of {provider}'s: {reason}")]
    Unfit {
        /// Whose secret it was to be.
        provider: String,
        /// What was wrong, per scheme.
        reason: String,
    },
}

/// How a scheme's key is written, and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct KeyFormat {
    pub(crate) method: Method,
    pub(crate) text: KeyText,
    /// Before the key. Of a shared secret it may be left out, of a public key it may not.
    pub(crate) prefix: String,
    /// Before a pair, where the signer writes one.
    pub(crate) private_prefix: Option<String>,
}

/// What the text of a secret is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyText {
    /// The key.
    Raw,
    /// The key with its HTML entities written out.
    Html,
    /// What the key is the SHA-1 of.
    Sha1,
    Hex,
    Base64,
    /// A certificate, a public key or, for signing, a private key.
    Pem,
    /// A JSON web key.
    Jwk,
}

impl KeyFormat {
    /// Whether both sides have the same secret.
    pub(crate) const fn is_shared(&self) -> bool {
        !matches!(self.method, Method::Public(_))
    }

    fn read(&self, secret: &str) -> Result<Material, &'static str> {
        let Self { method, text, prefix, private_prefix } = self;
        let algorithm = match method {
            Method::Digest(_) | Method::Token => return Ok(Material::Text(secret.into())),
            Method::Hmac(algorithm) => {
                let secret = secret.strip_prefix(prefix.as_str()).unwrap_or(secret);
                let key = text.shared(secret)?;
                return Ok(Material::Shared(hmac::Key::new(*algorithm, &key)));
            }
            Method::Public(algorithm) => *algorithm,
        };
        let pair = private_prefix.as_ref().and_then(|prefix| secret.strip_prefix(prefix));
        if let (Some(pair), Algorithm::Ed25519) = (pair, algorithm) {
            return keys::ed25519_pair(&text.decode(pair)?);
        }
        let secret = secret.strip_prefix(prefix.as_str()).ok_or("no prefix of a public key")?;
        match (text, algorithm) {
            (KeyText::Pem, Algorithm::RsaSha1 | Algorithm::RsaSha256) => keys::rsa(secret),
            (KeyText::Jwk, Algorithm::P256Fixed) => keys::p256_jwk(secret),
            (KeyText::Jwk, Algorithm::RsaSha256) => keys::rsa_jwk(secret),
            (_, Algorithm::Ed25519) => keys::ed25519(&text.decode(secret)?),
            (_, Algorithm::P256Der) => keys::p256(&text.decode(secret)?),
            (_, Algorithm::P256Fixed | Algorithm::RsaSha1 | Algorithm::RsaSha256) => {
                Err("such a key is not written like this")
            }
        }
    }
}

impl KeyText {
    /// The bytes of a shared secret.
    fn shared(self, secret: &str) -> Result<Vec<u8>, &'static str> {
        match self {
            Self::Raw | Self::Pem | Self::Jwk => Ok(secret.as_bytes().to_vec()),
            Self::Html => Ok(without_entities(secret).into_bytes()),
            Self::Sha1 => {
                let sha1 = &digest::SHA1_FOR_LEGACY_USE_ONLY;
                Ok(digest::digest(sha1, secret.as_bytes()).as_ref().to_vec())
            }
            Self::Hex | Self::Base64 => self.decode(secret),
        }
    }

    /// A key: as people and senders write it, base64 with or without padding.
    fn decode(self, text: &str) -> Result<Vec<u8>, &'static str> {
        let key = match self {
            Self::Hex => hex::decode(text).map_err(|_| "it is not hex")?,
            Self::Base64 => LENIENT_BASE64.decode(text).map_err(|_| "it is not base64")?,
            Self::Raw | Self::Html | Self::Sha1 | Self::Pem | Self::Jwk => {
                return Err("such a key is not written like this");
            }
        };
        if key.is_empty() { Err("there is nothing after its prefix") } else { Ok(key) }
    }
}

/// The entities that a shop writes into a secret when it stores it.
fn without_entities(text: &str) -> String {
    const ENTITIES: [(&str, &str); 6] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#039;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    ENTITIES.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    Hex,
    Base64,
    Base64Url,
    /// As they are.
    Text,
}

impl Encoding {
    /// A signature: strictly, so that one signature has one way to be written (hex in either case).
    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => hex::decode(text).ok(),
            Self::Base64 => base64::prelude::BASE64_STANDARD.decode(text).ok(),
            Self::Base64Url => BASE64_URL_SAFE_NO_PAD.decode(text).ok(),
            Self::Text => Some(text.as_bytes().to_vec()),
        }
    }

    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(bytes),
            Self::Base64 => base64::prelude::BASE64_STANDARD.encode(bytes),
            Self::Base64Url => BASE64_URL_SAFE_NO_PAD.encode(bytes),
            Self::Text => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn standard_webhooks() -> [KeyFormat; 2] {
        [
            KeyFormat {
                method: Method::Hmac(hmac::HMAC_SHA256),
                text: KeyText::Base64,
                prefix: "whsec_".into(),
                private_prefix: None,
            },
            KeyFormat {
                method: Method::Public(Algorithm::Ed25519),
                text: KeyText::Base64,
                prefix: "whpk_".into(),
                private_prefix: Some("whsk_".into()),
            },
        ]
    }

    fn usable(secret: &str) -> Result<Vec<bool>, InvalidSecret> {
        let key = Key::read("p", &standard_webhooks(), &Secret::new(secret))?;
        Ok(key.0.iter().map(Option::is_some).collect())
    }

    #[test]
    fn the_form_of_a_secret_says_which_scheme_it_is_for() {
        assert_eq!(usable("whsec_c2VjcmV0"), Ok(vec![true, false]));
        assert_eq!(usable("c2VjcmV0"), Ok(vec![true, false]));
        assert_eq!(usable("c2VjcmV0IQ"), Ok(vec![true, false]), "padding is optional");
        let public = format!("whpk_{}", Encoding::Base64.encode(&[7; 32]));
        assert_eq!(usable(&public), Ok(vec![false, true]));
    }

    #[test]
    fn a_public_key_never_becomes_a_shared_secret() {
        let mut formats = standard_webhooks();
        formats[0].text = KeyText::Raw;
        let public = format!("whpk_{}", Encoding::Base64.encode(&[7; 32]));
        let key = Key::read("p", &formats, &Secret::new(public)).expect("a public key");
        assert!(key.material(0).is_none());
        assert!(matches!(key.material(1), Some(Material::Public(_))));
    }

    #[test]
    fn unusable_secrets_are_refused_without_being_shown() {
        assert_eq!(usable(""), Err(InvalidSecret::Empty));
        assert_eq!(usable("whsec_c2VjcmV0\n"), Err(InvalidSecret::Whitespace));
        for secret in
            ["whsec_", "whsec_hunter2!", "whpk_aHVudGVyMg==", "whsk_aHVudGVyMg==", "hunter2!"]
        {
            let refusal = usable(secret).expect_err("no key").to_string();
            assert!(!refusal.contains("unter2") && !refusal.contains("aHVudGVy"), "{refusal}");
        }
    }

    #[test]
    fn what_looks_encoded_and_is_not_keeps_its_text() {
        let shared = |text: KeyText, secret| text.shared(secret).expect("a key");
        assert_eq!(shared(KeyText::Raw, "aHVudGVyMg=="), b"aHVudGVyMg==");
        assert_eq!(shared(KeyText::Raw, "00ff"), b"00ff");
        assert_eq!(shared(KeyText::Html, "a&amp;lt;b&#039;&lt;"), b"a&lt;b'<");
        assert_eq!(shared(KeyText::Sha1, "a")[..2], [0x86, 0xf7]);
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::new("whsec_aHVudGVyMg==");
        let key = Key::read("p", &standard_webhooks(), &secret).expect("a key");
        assert_eq!(format!("{secret:?} {key:?}"), "Secret(…) Key(…)");
    }
}
