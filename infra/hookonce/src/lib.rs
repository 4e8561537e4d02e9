//! The `hookonce` command, and the system embedded for one machine.
//!
//! The embedded stack is the real thing with AWS's parts stood in for: DynamoDB by dynoxide over
//! the wire, SQS by [`queue`], Lambda by [`lambda`], which runs the receiver, the worker and the
//! sweeper as processes of their own through the Lambda Runtime API and can kill them.

pub mod commands;
pub mod lambda;
pub mod operate;
pub mod queue;
pub mod services;
pub mod stack;

/// Until the signal turns true, or nobody is left to turn it.
pub(crate) async fn turned(mut signal: tokio::sync::watch::Receiver<bool>) {
    let _ = signal.wait_for(|signal| *signal).await;
}
