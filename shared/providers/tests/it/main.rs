//! The crate from outside: recorded deliveries, hostile ones, and the catalogue as a whole.

mod catalogue;
mod fetch;
mod format;
mod fuzz;
mod home;
mod hostile;
mod judge;
mod traps;
mod vectors;

use domain::{delivery::Delivery, event::Source};
use providers::{Key, Provider, Secret};

use home::{NOW, provider_at_home, secret_of};

fn provider(name: &str) -> Provider {
    Provider::builtin(name).expect("a built-in provider")
}

fn key(provider: &Provider, secret: &str) -> Key {
    provider.key(&Secret::new(secret)).expect("a secret of this provider")
}

fn source() -> Source {
    Source::new("shop-1").expect("a source name")
}

fn post(headers: &[(&str, &str)], body: &[u8]) -> Delivery {
    Delivery {
        method: "POST".into(),
        headers: headers.iter().copied().collect(),
        query: String::new(),
        body: body.to_vec(),
    }
}
