//! The worker function: SQS batches with partial responses.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    worker::run().await
}
