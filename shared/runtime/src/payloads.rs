//! Payloads that fit on no record, in S3.
//!
//! The receiver puts one there before the claim that names it. A crash in between leaves an object
//! that no record names, for the bucket's lifecycle to remove; the other way round it would leave a
//! record whose payload is nowhere.

use aws_config::SdkConfig;

use crate::environment::{names, optional};

/// The bucket of one deployment.
#[cfg(feature = "aws-payloads")]
#[derive(Clone, Debug)]
pub struct PayloadStore {
    client: aws_sdk_s3::Client,
    bucket: String,
}

/// The bucket of one deployment: a build without a client for it has none.
#[cfg(not(feature = "aws-payloads"))]
#[derive(Clone, Debug)]
pub struct PayloadStore {
    never: std::convert::Infallible,
}

impl PayloadStore {
    /// The store that the environment names; `None` if it names none.
    ///
    /// # Errors
    /// If it names one and this build has no client for it.
    pub fn from_environment(aws: &SdkConfig) -> Result<Option<Self>, PayloadStoreError> {
        optional(names::PAYLOADS_BUCKET).map(|bucket| Self::of(aws, bucket)).transpose()
    }
}

#[cfg(feature = "aws-payloads")]
impl PayloadStore {
    #[expect(clippy::unnecessary_wraps, reason = "the same signature with and without the feature")]
    pub(crate) fn of(aws: &SdkConfig, bucket: String) -> Result<Self, PayloadStoreError> {
        let config = aws_sdk_s3::config::Builder::from(aws);
        // Emulators have no host a bucket.
        let elsewhere =
            [names::ENDPOINT_S3, names::ENDPOINT].into_iter().find_map(optional).is_some();
        Ok(Self::new(config.force_path_style(elsewhere), bucket))
    }

    /// The store in `bucket`, by a client of this configuration.
    #[must_use]
    pub fn new(config: aws_sdk_s3::config::Builder, bucket: String) -> Self {
        Self { client: aws_sdk_s3::Client::from_conf(config.build()), bucket }
    }

    /// Puts an encoded payload there.
    ///
    /// # Errors
    /// If S3 did not confirm it: then no record may name it.
    pub async fn put(&self, key: &str, bytes: Vec<u8>) -> Result<(), PayloadStoreError> {
        let put = self.client.put_object().bucket(&self.bucket).key(key).body(bytes.into());
        put.send().await.map(drop).map_err(|error| self.error("PutObject", &error))
    }

    /// The encoded payload; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be known, or read.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, PayloadStoreError> {
        const CALL: &str = "GetObject";
        let get = self.client.get_object().bucket(&self.bucket).key(key).send().await;
        let output = match get {
            Ok(output) => output,
            Err(error) if error.as_service_error().is_some_and(|e| e.is_no_such_key()) => {
                return Ok(None);
            }
            Err(error) => return Err(self.error(CALL, &error)),
        };
        match output.body.collect().await {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(error) => Err(PayloadStoreError {
                call: CALL,
                bucket: self.bucket.clone(),
                class: "payload_unreachable",
                problem: error.to_string(),
            }),
        }
    }

    fn error<E, R>(
        &self,
        call: &'static str,
        error: &aws_sdk_s3::error::SdkError<E, R>,
    ) -> PayloadStoreError
    where
        E: aws_sdk_s3::error::ProvideErrorMetadata,
    {
        use aws_sdk_s3::error::{ProvideErrorMetadata as _, SdkError};
        let (class, problem) = match (error, error.code()) {
            (SdkError::TimeoutError(_), _) => ("payload_timeout", "no answer in time".to_owned()),
            (_, Some(code)) => {
                ("payload_refused", format!("{code}: {}", error.message().unwrap_or("")))
            }
            (_, None) => ("payload_unreachable", "cannot reach S3".to_owned()),
        };
        PayloadStoreError { call, bucket: self.bucket.clone(), class, problem }
    }
}

#[cfg(not(feature = "aws-payloads"))]
#[expect(clippy::unused_async, reason = "the same signatures with and without the feature")]
impl PayloadStore {
    pub(crate) fn of(_aws: &SdkConfig, bucket: String) -> Result<Self, PayloadStoreError> {
        let problem =
            format!("{} is set, and this build reaches no bucket", names::PAYLOADS_BUCKET);
        Err(PayloadStoreError { call: "start", bucket, class: "payload_refused", problem })
    }

    /// Of a store that cannot be.
    ///
    /// # Errors
    /// Never called.
    pub async fn put(&self, _key: &str, _bytes: Vec<u8>) -> Result<(), PayloadStoreError> {
        match self.never {}
    }

    /// Of a store that cannot be.
    ///
    /// # Errors
    /// Never called.
    pub async fn get(&self, _key: &str) -> Result<Option<Vec<u8>>, PayloadStoreError> {
        match self.never {}
    }
}

/// A call to S3 that was not confirmed.
#[derive(Debug, thiserror::Error)]
#[error("{call} on bucket {bucket}: {problem}")]
pub struct PayloadStoreError {
    call: &'static str,
    bucket: String,
    class: &'static str,
    problem: String,
}

impl PayloadStoreError {
    /// A short name for logs and metrics.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        self.class
    }
}
