//! Where the tests' providers deliver to, and the secrets that they sign with: made for these tests
//! and used nowhere else.

use domain::time::Timestamp;
use providers::{Endpoint, Provider};

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

pub(crate) const URL: &str = "https://hooks.example.com/webhooks/shop-1";

/// The provider at an endpoint that has everything it could ask for.
pub(crate) fn provider_at_home(name: &str) -> Provider {
    let provider = Provider::builtin(name).expect("a built-in provider");
    let settings = provider.settings().iter().filter(|setting| !setting.optional);
    let settings = settings.map(|setting| setting.name.clone());
    let endpoint = settings
        .fold(Endpoint::new(Some(URL)), |endpoint, name| endpoint.with(name, "setting of ours"));
    provider.at(endpoint)
}

/// A secret that the provider's schemes can sign with: made for these tests and used nowhere else.
pub(crate) fn secret_of(name: &str) -> &'static str {
    match name {
        "adyen" => "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "aws-sns" | "paypal" => include_str!("../keys/rsa.pem"),
        "clerk" | "gitlab" | "openai" | "resend" | "standard-webhooks" | "svix" => {
            "whsec_b3VycyBvbmx5OiBhIHNlY3JldCBrZXk="
        }
        "discord-interactions" | "discord-webhook-events" => {
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
             03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
        }
        "plaid" => include_str!("../keys/p256.jwk"),
        "sendgrid" => include_str!("../keys/p256.pkcs8"),
        _ => "ours only",
    }
}
