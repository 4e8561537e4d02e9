//! A catalogue file as it is written. Unknown keys are refused: a misspelt one would be silent.
//!
//! The schema for editors is derived from these types, by a test: `tests/unit/schema.rs`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Confidence;
use crate::{
    fetch::KeyAnswer,
    reply::Alphabet,
    secret::{Encoding, KeyText},
    unit::Unit,
    verify::Coverage,
};

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) setting: Vec<Setting>,
    pub(super) verify: Vec<Verify>,
    pub(super) identity: Vec<Identity>,
    #[serde(default)]
    pub(super) windows: Windows,
    pub(super) timeout: Option<Fact>,
    #[serde(default)]
    pub(super) handshake: Vec<Handshake>,
    pub(super) answer: Option<Answer>,
    pub(super) rejection: Option<Answer>,
    pub(super) success: Option<String>,
    #[serde(default)]
    pub(super) origin: Vec<Origin>,
    pub(super) keys: Option<Keys>,
    #[serde(default)]
    pub(super) fingerprint: Vec<Part>,
    #[serde(default)]
    pub(super) cautions: Vec<String>,
    #[serde(default)]
    pub(super) volatile: Vec<String>,
    #[serde(default)]
    pub(super) keep_headers: Vec<String>,
    pub(super) attempt_header: Option<String>,
    #[serde(default)]
    pub(super) sample: Vec<Sample>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Verify {
    pub(super) scheme: SchemeName,
    pub(super) algorithm: Option<Algorithm>,
    #[serde(default)]
    pub(super) encoding: Option<Encoding>,
    pub(super) key: KeyFormat,
    #[serde(default)]
    pub(super) header: Vec<String>,
    pub(super) query: Option<String>,
    pub(super) pointer: Option<String>,
    pub(super) form: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) members: Option<Members>,
    #[serde(default)]
    pub(super) when: Vec<Condition>,
    pub(super) each: Option<String>,
    pub(super) signed: Option<OneOrMany>,
    #[serde(default)]
    pub(super) part: Vec<SignedPart>,
    #[serde(default)]
    pub(super) fields: Vec<String>,
    pub(super) listed_headers: Option<SignedHeaders>,
    pub(super) body_digest: Option<BodyDigest>,
    #[serde(default)]
    pub(super) claims: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) pinned: Vec<Token>,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) tolerance_s: Option<u32>,
    pub(super) covers: Option<Coverage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum SchemeName {
    Hmac,
    Digest,
    Ed25519,
    EcdsaP256,
    Rsa,
    Jwt,
    Token,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
    Es256,
    Rs256,
    Hs256,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct KeyFormat {
    pub(super) format: KeyText,
    pub(super) prefix: Option<String>,
    pub(super) private_prefix: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Members {
    pub(super) separator: char,
    pub(super) assign: char,
    pub(super) tag: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a text or a list of texts")]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct SignedPart {
    pub(super) name: String,
    #[serde(default)]
    pub(super) header: Vec<String>,
    pub(super) query: Option<String>,
    pub(super) pointer: Option<String>,
    pub(super) form: Option<String>,
    #[serde(default)]
    pub(super) optional: bool,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct SignedHeaders {
    pub(super) list: String,
    #[serde(default)]
    pub(super) required: Vec<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(super) enum BodyDigest {
    Query(String),
    Claim(String),
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Timestamp {
    pub(super) member: Option<String>,
    pub(super) header: Option<Vec<String>>,
    pub(super) claim: Option<String>,
    pub(super) pointer: Option<String>,
    pub(super) unit: Unit,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) kind: Option<String>,
    pub(super) each: Option<String>,
    #[serde(default)]
    pub(super) when: Vec<Condition>,
    pub(super) id: Vec<Part>,
    #[serde(default, rename = "type")]
    pub(super) event_type: Vec<Part>,
    #[serde(default)]
    pub(super) object: Vec<Part>,
    #[serde(default)]
    pub(super) occurred_at: Vec<Time>,
    pub(super) coalesce_s: Option<u32>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Selector {
    pub(super) header: Option<String>,
    pub(super) query: Option<String>,
    pub(super) signed: Option<String>,
    pub(super) pointer: Option<String>,
    pub(super) form: Option<String>,
    #[serde(default)]
    pub(super) digest: bool,
}

/// A selector with something beside it, in one table.
macro_rules! selecting {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            header: Option<String>,
            query: Option<String>,
            signed: Option<String>,
            pointer: Option<String>,
            form: Option<String>,
            #[serde(default)]
            digest: bool,
            $($(#[$attribute])* pub(super) $field: $type),*
        }

        impl $name {
            pub(super) fn selector(&self) -> Selector {
                Selector {
                    header: self.header.clone(),
                    query: self.query.clone(),
                    signed: self.signed.clone(),
                    pointer: self.pointer.clone(),
                    form: self.form.clone(),
                    digest: self.digest,
                }
            }
        }
    };
}

selecting! {
    /// A selector, or several in `any`.
    Part {
        any: Option<Vec<Selector>>,
        #[serde(default)]
        optional: bool,
    }
}
selecting! { Condition { is: Option<String>, present: Option<bool> } }
selecting! { Time { unit: Unit } }
selecting! { Token { setting: String } }
selecting! { Confirm { hosts: Vec<String> } }
selecting! { Challenge { alphabet: Option<Alphabet>, longest: Option<usize>, hmac: Option<Encoding> } }

#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Windows {
    pub(super) automatic: Option<Fact>,
    pub(super) manual: Option<Fact>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Fact {
    pub(super) seconds: u32,
    pub(super) page: String,
    pub(super) confidence: Confidence,
    pub(super) note: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) what: String,
    #[serde(default)]
    pub(super) one_of: Vec<String>,
    #[serde(default)]
    pub(super) optional: bool,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    pub(super) of: String,
    pub(super) page: String,
    pub(super) confidence: Confidence,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    pub(super) answer: KeyAnswer,
    #[serde(default)]
    pub(super) named: Vec<Selector>,
    pub(super) at: OneOrMany,
    #[serde(default)]
    pub(super) post: BTreeMap<String, String>,
    pub(super) pointer: Option<String>,
    pub(super) unknown: Option<Unknown>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Unknown {
    pub(super) pointer: String,
    pub(super) is: String,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Handshake {
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) when: Vec<Condition>,
    #[serde(default)]
    pub(super) unsigned: bool,
    pub(super) token: Option<Token>,
    pub(super) challenge: Option<Challenge>,
    pub(super) confirm: Option<Confirm>,
    #[serde(default)]
    pub(super) answer: Answer,
    pub(super) refusal: Option<u16>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) body: String,
}

impl Default for Answer {
    fn default() -> Self {
        Self { status: 200, content_type: None, body: String::new() }
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Sample {
    #[serde(rename = "type")]
    pub(super) event_type: String,
    /// The sample serves for any other type too.
    #[serde(default)]
    pub(super) any_type: bool,
    #[serde(default)]
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}
