//! Secrets come by reference and are fetched at start. Never in logs, never in `Debug`, never in
//! an error.

use std::fmt;

use aws_config::SdkConfig;
use providers::Secret;

use crate::{environment, payloads::PayloadStore};

/// Where a secret lies.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `env:NAME`, an environment variable.
    Env(String),
    /// `secretsmanager:NAME` or `secretsmanager:NAME#KEY`, whole or one key of its JSON.
    SecretsManager {
        /// Name or ARN.
        id: String,
        /// Key of its JSON.
        key: Option<String>,
    },
    /// `ssm:NAME`, a parameter.
    Ssm(String),
    /// `literal:TEXT`, for local use only.
    Literal(Secret),
}

impl SecretRef {
    /// # Errors
    /// If the text is no reference.
    pub fn parse(text: &str) -> Result<Self, InvalidSecretRef> {
        let (scheme, rest) = text.split_once(':').ok_or(InvalidSecretRef::NoScheme)?;
        if rest.is_empty() {
            return Err(InvalidSecretRef::Empty(known_scheme(scheme)?));
        }
        match known_scheme(scheme)? {
            "env" => Ok(Self::Env(rest.to_owned())),
            "ssm" => Ok(Self::Ssm(rest.to_owned())),
            "literal" => Ok(Self::Literal(Secret::new(rest))),
            _ => {
                let (id, key) = match rest.split_once('#') {
                    Some((id, key)) => (id, Some(key.to_owned())),
                    None => (rest, None),
                };
                Ok(Self::SecretsManager { id: id.to_owned(), key })
            }
        }
    }

    /// Whether it can change while a function runs.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::SecretsManager { .. } | Self::Ssm(_))
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::SecretsManager { id, key: None } => write!(f, "secretsmanager:{id}"),
            Self::SecretsManager { id, key: Some(key) } => write!(f, "secretsmanager:{id}#{key}"),
            Self::Ssm(name) => write!(f, "ssm:{name}"),
            Self::Literal(_) => f.write_str("literal:…"),
        }
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A secret reference that is none. Holds nothing of it: a mistyped one may be the secret itself.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecretRef {
    /// No scheme.
    #[error(
        "a secret is given by reference: env:NAME, secretsmanager:NAME[#KEY], ssm:NAME, or literal:TEXT for local use; not as itself"
    )]
    NoScheme,
    /// Another scheme.
    #[error("the secret reference's scheme is none of env, secretsmanager, ssm, literal")]
    UnknownScheme,
    /// A scheme and nothing else.
    #[error("the secret reference `{0}:` names nothing")]
    Empty(&'static str),
}

fn known_scheme(scheme: &str) -> Result<&'static str, InvalidSecretRef> {
    ["env", "secretsmanager", "ssm", "literal"]
        .into_iter()
        .find(|known| *known == scheme)
        .ok_or(InvalidSecretRef::UnknownScheme)
}

/// Fetches secrets.
#[derive(Clone, Debug)]
pub struct SecretStore {
    aws: Option<SdkConfig>,
}

impl SecretStore {
    /// A store that reaches Secrets Manager and Parameter Store by this configuration, or only the
    /// environment without one.
    #[must_use]
    pub const fn new(aws: Option<SdkConfig>) -> Self {
        Self { aws }
    }

    /// The secret.
    ///
    /// # Errors
    /// If it is not there, or cannot be reached. Says which and why, and nothing of its value.
    pub async fn fetch(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        let failed = |problem: String| SecretError { reference: reference.to_string(), problem };
        match reference {
            SecretRef::Literal(secret) => Ok(secret.clone()),
            SecretRef::Env(name) => environment::optional(name)
                .map(Secret::new)
                .ok_or_else(|| failed("the environment variable is not set, or empty".to_owned())),
            SecretRef::SecretsManager { id, key } => {
                let text = self.secrets_manager(id).await.map_err(failed)?;
                match key {
                    None => Ok(Secret::new(text)),
                    Some(key) => json_key(&text, key).map_err(failed),
                }
            }
            SecretRef::Ssm(name) => self.parameter(name).await.map(Secret::new).map_err(failed),
        }
    }

    #[cfg(feature = "aws-secrets")]
    async fn secrets_manager(&self, id: &str) -> Result<String, String> {
        let aws = self.aws.as_ref().ok_or(NO_AWS)?;
        let client = aws_sdk_secretsmanager::Client::new(aws);
        let sent = client.get_secret_value().secret_id(id).send().await;
        let output = sent.map_err(|error| sdk_problem(&error))?;
        output.secret_string.ok_or_else(|| "the secret is binary, not text".to_owned())
    }

    #[cfg(feature = "aws-secrets")]
    async fn parameter(&self, name: &str) -> Result<String, String> {
        let aws = self.aws.as_ref().ok_or(NO_AWS)?;
        let client = aws_sdk_ssm::Client::new(aws);
        let sent = client.get_parameter().name(name).with_decryption(true).send().await;
        let output = sent.map_err(|error| sdk_problem(&error))?;
        output.parameter.and_then(|p| p.value).ok_or_else(|| "the parameter is empty".to_owned())
    }

    #[cfg(not(feature = "aws-secrets"))]
    #[expect(clippy::unused_async, reason = "the same signature with and without the feature")]
    async fn secrets_manager(&self, _id: &str) -> Result<String, String> {
        Err(NO_AWS.to_owned())
    }

    #[cfg(not(feature = "aws-secrets"))]
    #[expect(clippy::unused_async, reason = "the same signature with and without the feature")]
    async fn parameter(&self, _name: &str) -> Result<String, String> {
        Err(NO_AWS.to_owned())
    }

    /// A parameter's text, for a configuration kept there.
    ///
    /// # Errors
    /// If it is not there, or cannot be reached.
    pub async fn parameter_text(&self, name: &str) -> Result<String, SecretError> {
        let failed = |problem| SecretError { reference: format!("ssm:{name}"), problem };
        self.parameter(name).await.map_err(failed)
    }
}

impl SecretStore {
    /// The text of the object at `s3://BUCKET/KEY`, for a configuration kept there.
    ///
    /// # Errors
    /// If it is not there, cannot be reached, or is no text.
    pub async fn object_text(&self, address: &str) -> Result<String, SecretError> {
        let failed = |problem: String| SecretError { reference: address.to_owned(), problem };
        let parts = address.strip_prefix("s3://").and_then(|place| place.split_once('/'));
        let Some((bucket, key)) =
            parts.filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty())
        else {
            return Err(failed("an object is s3://BUCKET/KEY".to_owned()));
        };
        let aws = self.aws.as_ref().ok_or_else(|| failed(NO_AWS.to_owned()))?;
        let store = PayloadStore::of(aws, bucket.to_owned()).map_err(|e| failed(e.to_string()))?;
        let bytes = store.get(key).await.map_err(|error| failed(error.to_string()))?;
        let bytes = bytes.ok_or_else(|| failed("there is no such object".to_owned()))?;
        String::from_utf8(bytes).map_err(|_| failed("the object is no text".to_owned()))
    }
}

fn json_key(text: &str, key: &str) -> Result<Secret, String> {
    let values: std::collections::BTreeMap<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| "the secret is not a JSON object".to_owned())?;
    match values.get(key) {
        Some(serde_json::Value::String(value)) => Ok(Secret::new(value.as_str())),
        Some(_) => Err("the key's value is not a string".to_owned()),
        None => Err("the secret's JSON has no such key".to_owned()),
    }
}

#[cfg(feature = "aws-secrets")]
fn sdk_problem<E, R>(error: &aws_sdk_ssm::error::SdkError<E, R>) -> String
where
    E: aws_sdk_ssm::error::ProvideErrorMetadata,
{
    use aws_sdk_ssm::error::ProvideErrorMetadata as _;
    error.code().map_or_else(
        || "AWS cannot be reached".to_owned(),
        |code| format!("{code}: {}", error.message().unwrap_or("")),
    )
}

/// A secret that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("secret {reference}: {problem}")]
pub struct SecretError {
    reference: String,
    problem: String,
}

const NO_AWS: &str = "this build, or this command, does not reach AWS for secrets";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_is_named_by_bucket_and_key() {
        for address in ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3:bucket/key"] {
            let refused = SecretStore::new(None).object_text(address).await.expect_err("refused");
            assert!(refused.to_string().contains("an object is s3://BUCKET/KEY"), "{refused}");
        }
        let without = SecretStore::new(None).object_text("s3://bucket/a/key").await;
        assert!(without.expect_err("no AWS").to_string().contains(NO_AWS));
    }

    #[test]
    fn references_are_read_and_secrets_given_as_themselves_refused() {
        let parsed = SecretRef::parse("secretsmanager:prod/stripe#signing");
        let expected =
            SecretRef::SecretsManager { id: "prod/stripe".into(), key: Some("signing".into()) };
        assert_eq!(parsed, Ok(expected));
        assert_eq!(SecretRef::parse("whsec_abc"), Err(InvalidSecretRef::NoScheme));
        assert_eq!(SecretRef::parse("vault:x"), Err(InvalidSecretRef::UnknownScheme));
        assert_eq!(SecretRef::parse("env:"), Err(InvalidSecretRef::Empty("env")));
    }

    #[test]
    fn a_literal_shows_nowhere() {
        let reference = SecretRef::parse("literal:hunter2").expect("valid");
        assert!(!format!("{reference} {reference:?}").contains("hunter2"));
    }

    #[test]
    fn one_key_of_a_json_secret_is_taken() {
        let text = r#"{"signing":"hunter2","n":1}"#;
        assert_eq!(json_key(text, "signing"), Ok(Secret::new("hunter2")));
        for (text, key) in [(text, "n"), (text, "absent"), ("hunter2", "signing")] {
            let problem = json_key(text, key).expect_err("refused");
            assert!(!problem.contains("hunter2"));
        }
    }
}
