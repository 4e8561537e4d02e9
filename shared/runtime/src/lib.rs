//! What the three functions and the command share around the domain: configuration, secrets, the
//! clock, AWS clients, logs and metrics. The environment is read here and nowhere else.

pub mod aws;
pub mod clock;
pub mod config;
pub mod environment;
#[cfg(feature = "http-client")]
pub mod http;
pub mod payloads;
pub mod route;
pub mod secrets;
pub mod telemetry;
