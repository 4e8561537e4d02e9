//! The sweeper function: every minute, what a crash left behind.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    sweeper::run().await
}
