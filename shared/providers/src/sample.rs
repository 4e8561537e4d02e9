//! Sample events of our own making, to be signed and sent as their provider would.

use domain::time::Timestamp;

use crate::{
    form,
    unit::{Unit, rfc3339},
};

/// Which sample is wanted.
#[derive(Clone, Copy, Debug)]
pub struct SampleRequest<'a> {
    /// Event type; `None` is the provider's first sample.
    pub event_type: Option<&'a str>,
    /// The provider's id of the event.
    pub id: &'a str,
    /// When it is to have happened.
    pub now: Timestamp,
}

/// A delivery still to be signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Unsigned {
    /// Headers, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Unsigned {
    /// Without headers and body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unsigned").field("body_bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// A sample of the catalogue, with placeholders.
#[derive(Debug)]
pub(crate) struct Sample {
    /// `None` stands for any type.
    pub(crate) event_type: Option<String>,
    /// The type in place of `{{type}}` when none is asked for.
    pub(crate) default_type: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// No sample as wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSample {
    /// The catalogue file has none at all.
    #[error("{provider} has no sample event")]
    None {
        /// The provider.
        provider: String,
    },
    /// None of this type.
    #[error("{provider} has no sample of type {wanted}; there are: {}", .offered.join(", "))]
    OfType {
        /// The provider.
        provider: String,
        /// The type wanted.
        wanted: String,
        /// The types there are.
        offered: Vec<String>,
    },
    /// An id or type that a header cannot hold.
    #[error("a sample's id and type are visible ASCII characters, at least one")]
    Unprintable,
}

/// A delivery that cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotSign {
    /// The key verifies only.
    #[error("this key is a public key: it verifies and cannot sign")]
    PublicKey,
    /// The key is of another provider.
    #[error("the key fits no scheme of {provider}")]
    WrongKey {
        /// The provider.
        provider: String,
    },
    /// A value that is part of what is signed.
    #[error("{place}, which is part of what is signed, is missing")]
    Missing {
        /// Where it should be.
        place: String,
    },
    /// The endpoint is not configured for it.
    #[error("it cannot be signed: {reason}")]
    Incomplete {
        /// What is missing.
        reason: String,
    },
}

/// No test key for a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTestKey {
    /// Signer and verifier share a secret.
    #[error("{provider} signs with a secret that the source has too; no key pair is of use to it")]
    SharedSecret {
        /// The provider.
        provider: String,
    },
    /// An RSA key is not made here.
    #[error("an RSA key is not generated here")]
    NotGenerated,
    /// Another kind of key, or none.
    #[error("the private key is of no use: {reason}")]
    Unfit {
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The sample that `request` asks for.
pub(crate) fn sample(
    provider: &str,
    samples: &[Sample],
    request: &SampleRequest<'_>,
) -> Result<Unsigned, NoSample> {
    let SampleRequest { event_type, id, now } = *request;
    let is_plain =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(id) || !event_type.is_none_or(is_plain) {
        return Err(NoSample::Unprintable);
    }
    let Some(default) = samples.first() else {
        return Err(NoSample::None { provider: provider.to_owned() });
    };
    let sample = match event_type {
        None => default,
        Some(wanted) => samples
            .iter()
            .find(|sample| sample.event_type.as_deref() == Some(wanted))
            .or_else(|| samples.iter().find(|sample| sample.event_type.is_none()))
            .ok_or_else(|| NoSample::OfType {
                provider: provider.to_owned(),
                wanted: wanted.to_owned(),
                offered: samples.iter().map(|sample| sample.default_type.clone()).collect(),
            })?,
    };
    let event_type = event_type.unwrap_or(&sample.default_type);
    let fill = |text: &str, escape: fn(&str) -> String| {
        text.replace("{{id}}", &escape(id))
            .replace("{{type}}", &escape(event_type))
            .replace("{{unix}}", &Unit::Seconds.write(now))
            .replace("{{millis}}", &Unit::Millis.write(now))
            .replace("{{rfc3339}}", &rfc3339(now))
    };
    let headers = sample.headers.iter();
    Ok(Unsigned {
        headers: headers.map(|(name, value)| (name.clone(), fill(value, str::to_owned))).collect(),
        body: fill(&sample.body, if sample.is_form() { in_form } else { in_json }).into_bytes(),
    })
}

impl Sample {
    fn is_form(&self) -> bool {
        self.headers.iter().any(|(name, value)| {
            name == "content-type" && value.starts_with("application/x-www-form-urlencoded")
        })
    }
}

/// Visible ASCII as it stands within a form.
fn in_form(text: &str) -> String {
    form::escaped(text.as_bytes())
}

/// Visible ASCII as it stands within a JSON string.
fn in_json(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#)
}
