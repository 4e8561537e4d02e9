//! The receiver function: `POST /webhooks/{source}`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_http::Error> {
    receiver::run().await
}
