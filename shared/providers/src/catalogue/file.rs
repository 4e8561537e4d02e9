//! A catalogue file as it is written. Unknown keys are refused: a misspelt one would be silent.

use serde::Deserialize;

use super::Confidence;
use crate::{secret::Encoding, unit::Unit};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) verify: Vec<Verify>,
    pub(super) identity: Vec<Identity>,
    #[serde(default)]
    pub(super) windows: Windows,
    pub(super) timeout: Option<Fact>,
    #[serde(default)]
    pub(super) handshake: Vec<Handshake>,
    pub(super) answer: Option<Answer>,
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
#[serde(deny_unknown_fields)]
pub(super) struct Verify {
    pub(super) scheme: SchemeName,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) encoding: Encoding,
    pub(super) key: KeyFormat,
    pub(super) header: Vec<String>,
    pub(super) prefix: Option<String>,
    pub(super) members: Option<Members>,
    pub(super) signed: String,
    #[serde(default)]
    pub(super) part: Vec<SignedPart>,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) tolerance_s: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SchemeName {
    Hmac,
    Ed25519,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyFormat {
    pub(super) format: KeyText,
    pub(super) prefix: Option<String>,
    pub(super) private_prefix: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyText {
    Raw,
    Hex,
    Base64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Members {
    pub(super) separator: char,
    pub(super) assign: char,
    pub(super) tag: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignedPart {
    pub(super) name: String,
    pub(super) header: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timestamp {
    pub(super) member: Option<String>,
    pub(super) header: Option<Vec<String>>,
    pub(super) unit: Unit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) when: Vec<Condition>,
    pub(super) id: Vec<Part>,
    #[serde(default, rename = "type")]
    pub(super) event_type: Vec<Part>,
    #[serde(default)]
    pub(super) object: Vec<Part>,
    #[serde(default)]
    pub(super) occurred_at: Vec<Time>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selector {
    pub(super) header: Option<String>,
    pub(super) signed: Option<String>,
    pub(super) pointer: Option<String>,
    pub(super) form: Option<String>,
}

/// A selector with something beside it, in one table.
macro_rules! selecting {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            header: Option<String>,
            signed: Option<String>,
            pointer: Option<String>,
            form: Option<String>,
            $($(#[$attribute])* pub(super) $field: $type),*
        }

        impl $name {
            pub(super) fn selector(&self) -> Selector {
                Selector {
                    header: self.header.clone(),
                    signed: self.signed.clone(),
                    pointer: self.pointer.clone(),
                    form: self.form.clone(),
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
selecting! { Condition { is: String } }
selecting! { Time { unit: Unit } }

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Windows {
    pub(super) automatic: Option<Fact>,
    pub(super) manual: Option<Fact>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fact {
    pub(super) seconds: u32,
    pub(super) page: String,
    pub(super) confidence: Confidence,
    pub(super) note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handshake {
    pub(super) when: Vec<Condition>,
    pub(super) echo: Option<Selector>,
    #[serde(default)]
    pub(super) answer: Answer,
}

#[derive(Deserialize)]
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
