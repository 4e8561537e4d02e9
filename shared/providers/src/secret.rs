//! Secrets, and the keys read from them once at start.
//!
//! Which scheme a secret is for follows from its form alone. A public key never becomes a shared
//! secret: whoever knows a public key, and that is everybody, could sign with it otherwise.

use std::{fmt, sync::Arc};

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use ring::{hmac, signature::Ed25519KeyPair};
use serde::Deserialize;

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

#[derive(Clone)]
pub(crate) enum Material {
    Shared(hmac::Key),
    Public([u8; PUBLIC_KEY_BYTES]),
    Pair(Arc<Ed25519KeyPair>),
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
        if secret.trim() != secret {
            return Err(InvalidSecret::Whitespace);
        }
        let read: Vec<_> = formats.into_iter().map(|format| format.read(secret)).collect();
        let is_asymmetric =
            read.iter().any(|key| matches!(key, Ok(Material::Public(_) | Material::Pair(_))));
        let reasons: Vec<_> = read.iter().filter_map(|key| key.as_ref().err().copied()).collect();
        let keys: Vec<_> = read
            .into_iter()
            .map(|key| {
                key.ok().filter(|key| !(is_asymmetric && matches!(key, Material::Shared(_))))
            })
            .collect();
        if keys.iter().all(Option::is_none) {
            return Err(InvalidSecret::Unfit {
                provider: provider.to_owned(),
                reason: reasons.join("; "),
            });
        }
        Ok(Self(keys))
    }

    /// What the scheme of this index works with.
    pub(crate) fn material(&self, scheme: usize) -> Option<&Material> {
        self.0.get(scheme)?.as_ref()
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

/// How a scheme's key is written.
#[derive(Clone, Debug)]
pub(crate) enum KeyFormat {
    /// A shared secret, its text being the key.
    Text { algorithm: hmac::Algorithm },
    /// A shared secret to be decoded, with or without the prefix.
    Encoded { algorithm: hmac::Algorithm, encoding: Encoding, prefix: String },
    /// A public key, or the pair as the signer has it. The prefixes are not optional.
    Ed25519 { encoding: Encoding, prefix: String, private_prefix: Option<String> },
}

impl KeyFormat {
    fn read(&self, secret: &str) -> Result<Material, &'static str> {
        match self {
            Self::Text { algorithm } => {
                Ok(Material::Shared(hmac::Key::new(*algorithm, secret.as_bytes())))
            }
            Self::Encoded { algorithm, encoding, prefix } => {
                let key = encoding.decode_key(secret.strip_prefix(prefix).unwrap_or(secret))?;
                Ok(Material::Shared(hmac::Key::new(*algorithm, &key)))
            }
            Self::Ed25519 { encoding, prefix, private_prefix } => {
                let pair = private_prefix.as_ref().and_then(|prefix| secret.strip_prefix(prefix));
                if let Some(pair) = pair {
                    return key_pair(&encoding.decode_key(pair)?);
                }
                let key = secret.strip_prefix(prefix).ok_or("no prefix of an Ed25519 key")?;
                let key = encoding.decode_key(key)?;
                let key = key.try_into().map_err(|_| "an Ed25519 public key has 32 bytes")?;
                Ok(Material::Public(key))
            }
        }
    }
}

/// Seed and public key, one after the other.
fn key_pair(bytes: &[u8]) -> Result<Material, &'static str> {
    let (seed, public) =
        bytes.split_at_checked(PUBLIC_KEY_BYTES).ok_or("an Ed25519 key pair has 64 bytes")?;
    let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public)
        .map_err(|_| "seed and public key are no Ed25519 key pair")?;
    Ok(Material::Pair(Arc::new(pair)))
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    Hex,
    Base64,
}

impl Encoding {
    /// A signature: strictly, so that one signature has one way to be written (hex in either case).
    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => hex::decode(text).ok(),
            Self::Base64 => base64::prelude::BASE64_STANDARD.decode(text).ok(),
        }
    }

    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(bytes),
            Self::Base64 => base64::prelude::BASE64_STANDARD.encode(bytes),
        }
    }

    /// A key: as people and senders write it, with or without padding.
    fn decode_key(self, text: &str) -> Result<Vec<u8>, &'static str> {
        let key = match self {
            Self::Hex => hex::decode(text).map_err(|_| "it is not hex")?,
            Self::Base64 => LENIENT_BASE64.decode(text).map_err(|_| "it is not base64")?,
        };
        if key.is_empty() { Err("there is nothing after its prefix") } else { Ok(key) }
    }
}

const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Of Ed25519: the public key, and the seed too.
pub(crate) const PUBLIC_KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn standard_webhooks() -> [KeyFormat; 2] {
        [
            KeyFormat::Encoded {
                algorithm: hmac::HMAC_SHA256,
                encoding: Encoding::Base64,
                prefix: "whsec_".into(),
            },
            KeyFormat::Ed25519 {
                encoding: Encoding::Base64,
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
        formats[0] = KeyFormat::Text { algorithm: hmac::HMAC_SHA256 };
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
    fn debug_shows_nothing() {
        let secret = Secret::new("whsec_aHVudGVyMg==");
        let key = Key::read("p", &standard_webhooks(), &secret).expect("a key");
        assert_eq!(format!("{secret:?} {key:?}"), "Secret(…) Key(…)");
    }
}
