//! What verification costs, beside the bare primitive on the same bytes in the same run:
//! `cargo bench -p providers --profile deploy`, explained in `docs/performance.md`.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use divan::{Bencher, counter::BytesCount};
use domain::{delivery::Delivery, event::Source};
use providers::{Key, Provider, SampleRequest, Secret, Unsigned};
use ring::{digest, hmac, rand, signature};

#[path = "../tests/it/home.rs"]
mod home;

use home::{NOW, provider_at_home, secret_of};

fn main() {
    divan::main();
}

/// A way to sign, and who signs like this.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    provider: &'static str,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

const fn family(name: &'static str, provider: &'static str) -> Family {
    Family { name, provider }
}

const FAMILIES: [Family; 16] = [
    family("hmac_sha256_hex", "github"),
    family("hmac_sha256_base64", "shopify"),
    family("hmac_sha256_members", "stripe"),
    family("hmac_sha256_parts", "standard-webhooks"),
    family("hmac_sha256_url", "square"),
    family("hmac_sha256_headers", "contentful"),
    family("hmac_sha1_hex", "intercom"),
    family("hmac_sha1_form", "twilio"),
    family("hmac_sha256_each_item", "adyen"),
    family("digest_sha256", "digest"),
    family("token", "eventbridge"),
    family("jwt_hs256", "jira-connect"),
    family("jwt_es256_digest", "plaid"),
    family("ed25519", "discord-interactions"),
    family("ecdsa_p256", "sendgrid"),
    family("rsa_sha256_fields", "aws-sns"),
];

/// No provider signs by a digest first, so this one does.
const DIGEST: &str = r#"
name = "digest"
title = "Digest"

[[verify]]
scheme = "digest"
algorithm = "sha256"
encoding = "hex"
key = { format = "raw" }
header = ["x-signature"]
signed = "{secret}{body}"

[[identity]]
id = [{ pointer = "/id" }]

[[sample]]
type = "event"
body = '{"id":"{{id}}"}'
"#;

/// A provider with its key, and a delivery of its own.
struct Case {
    provider: Provider,
    keys: [Key; 1],
    delivery: Delivery,
}

impl Case {
    fn new(Family { provider: name, .. }: Family, kilobytes: usize) -> Self {
        let provider = match name {
            "digest" => Provider::parse("digest.toml", DIGEST).expect("a provider"),
            name => provider_at_home(name),
        };
        let key = provider.key(&Secret::new(secret_of(name))).expect("a secret");
        let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
        let sample = provider.sample(&request).expect("a sample");
        let body = padded(&sample.body, kilobytes * 1000);
        let delivery = provider.sign(&key, Unsigned { body, ..sample }, NOW).expect("signed");
        Self { provider, keys: [key], delivery }
    }

    /// The same, signed for another body of its length.
    fn forged(mut self) -> Self {
        let last = self.delivery.body.windows(8).rposition(|run| run == [PADDING; 8]);
        self.delivery.body[last.expect("padding")] ^= 1;
        self
    }
}

const PADDING: u8 = b'p';

/// `body` with a value more, or a longer one, so that it has `bytes`: where something of it is
/// signed, that is.
fn padded(body: &[u8], bytes: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(body).into_owned();
    let padding = |taken: usize| "p".repeat(bytes.saturating_sub(body.len() + taken));
    if text.contains("tea is ready") {
        return text.replace("tea is ready", &padding(0)).into_bytes();
    }
    match text.find('{') {
        Some(at) if text.starts_with(['{', '[']) => {
            let value = format!("\"padding\":\"{}\",", padding(13));
            [&text[..=at], &value, &text[at + 1..]].concat().into_bytes()
        }
        _ => format!("{text}&padding={}", padding(9)).into_bytes(),
    }
}

/// One verification. Never inlined, so that its instructions can be counted.
#[inline(never)]
fn verify_once(case: &Case, delivery: Delivery) -> bool {
    case.provider.verify(delivery, &case.keys, NOW, None).is_ok()
}

#[divan::bench(args = FAMILIES, consts = [1, 10, 100])]
fn genuine<const KILOBYTES: usize>(bencher: Bencher<'_, '_>, family: Family) {
    verify(bencher, &Case::new(family, KILOBYTES), true);
}

/// Of one, what must be read and hashed before it is known. Without a signature not even that.
#[divan::bench(args = FAMILIES)]
fn forged(bencher: Bencher<'_, '_>, family: Family) {
    let unsigned_body = ["token", "jwt_hs256", "hmac_sha256_each_item"].contains(&family.name);
    let case = Case::new(family, 10);
    // Where the body is not signed there is nothing to forge: another secret, then.
    let other = |case: Case| Case { keys: [other_key(family)], ..case };
    let case = if unsigned_body { other(case) } else { case.forged() };
    verify(bencher, &case, false);
}

#[divan::bench(args = FAMILIES)]
fn unsigned(bencher: Bencher<'_, '_>, family: Family) {
    let mut case = Case::new(family, 10);
    case.delivery.headers = [("content-type", "application/json")].into_iter().collect();
    let text = String::from_utf8_lossy(&case.delivery.body).replace("ignature", "o");
    case.delivery.body = text.into_bytes();
    verify(bencher, &case, false);
}

fn other_key(Family { provider, .. }: Family) -> Key {
    let secret = if provider == "adyen" { "ff" } else { "another" };
    provider_at_home(provider).key(&Secret::new(secret)).expect("a secret")
}

fn verify(bencher: Bencher<'_, '_>, case: &Case, holds: bool) {
    assert_eq!(verify_once(case, case.delivery.clone()), holds);
    bencher
        .counter(BytesCount::new(case.delivery.body.len()))
        .with_inputs(|| case.delivery.clone())
        .bench_values(|delivery| verify_once(case, delivery));
}

/// From a verified delivery to its events.
#[divan::bench(args = FAMILIES, consts = [1, 10, 100])]
fn identified<const KILOBYTES: usize>(bencher: Bencher<'_, '_>, family: Family) {
    let case = Case::new(family, KILOBYTES);
    let source = Source::new("shop-1").expect("a source name");
    let Case { provider, keys, delivery } = &case;
    let verified = provider.verify(delivery.clone(), keys, NOW, None).expect("signed by us");
    let identify = |verified| provider.identify(verified, &source);
    let _ = identify(verified.clone());
    bencher
        .counter(BytesCount::new(delivery.body.len()))
        .with_inputs(|| verified.clone())
        .bench_values(identify);
}

/// What nothing that verifies can be cheaper than, on the same number of bytes.
#[divan::bench_group]
mod primitive {
    use super::*;

    fn text(kilobytes: usize) -> Vec<u8> {
        vec![PADDING; kilobytes * 1000]
    }

    fn measure<T>(bencher: Bencher<'_, '_>, kilobytes: usize, compute: impl Fn(&[u8]) -> T + Sync) {
        let text = text(kilobytes);
        bencher.counter(BytesCount::new(text.len())).bench(|| compute(divan::black_box(&text)));
    }

    #[divan::bench(args = [1, 10, 100])]
    fn hmac_sha256(bencher: Bencher<'_, '_>, kilobytes: usize) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"ours only");
        measure(bencher, kilobytes, |text| hmac::sign(&key, text));
    }

    #[divan::bench(args = [1, 10, 100])]
    fn hmac_sha1(bencher: Bencher<'_, '_>, kilobytes: usize) {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"ours only");
        measure(bencher, kilobytes, |text| hmac::sign(&key, text));
    }

    #[divan::bench(args = [1, 10, 100])]
    fn sha256(bencher: Bencher<'_, '_>, kilobytes: usize) {
        measure(bencher, kilobytes, |text| digest::digest(&digest::SHA256, text));
    }

    #[divan::bench(args = [1, 10, 100])]
    fn ed25519(bencher: Bencher<'_, '_>, kilobytes: usize) {
        let pair = signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed");
        let signed = pair.sign(&text(kilobytes));
        let public = signature::KeyPair::public_key(&pair).as_ref().to_vec();
        asymmetric(bencher, kilobytes, &signature::ED25519, &public, signed.as_ref());
    }

    #[divan::bench(args = [1, 10, 100])]
    fn ecdsa_p256(bencher: Bencher<'_, '_>, kilobytes: usize) {
        let random = rand::SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = signature::EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = signature::EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        let pair = pair.expect("a key");
        let signed = pair.sign(&random, &text(kilobytes)).expect("signed");
        let public = signature::KeyPair::public_key(&pair).as_ref().to_vec();
        let algorithm = &signature::ECDSA_P256_SHA256_ASN1;
        asymmetric(bencher, kilobytes, algorithm, &public, signed.as_ref());
    }

    #[divan::bench(args = [1, 10, 100])]
    fn rsa_sha256(bencher: Bencher<'_, '_>, kilobytes: usize) {
        let pem: Vec<_> = secret_of("aws-sns").lines().filter(|l| !l.starts_with('-')).collect();
        let document = BASE64_STANDARD.decode(pem.concat()).expect("base64");
        let pair = signature::RsaKeyPair::from_pkcs8(&document).expect("a key");
        let mut signed = vec![0; pair.public().modulus_len()];
        let random = rand::SystemRandom::new();
        let signing =
            pair.sign(&signature::RSA_PKCS1_SHA256, &random, &text(kilobytes), &mut signed);
        signing.expect("signed");
        let algorithm = &signature::RSA_PKCS1_2048_8192_SHA256;
        asymmetric(bencher, kilobytes, algorithm, pair.public().as_ref(), &signed);
    }

    fn asymmetric(
        bencher: Bencher<'_, '_>,
        kilobytes: usize,
        algorithm: &'static dyn signature::VerificationAlgorithm,
        public: &[u8],
        signed: &[u8],
    ) {
        let key = signature::UnparsedPublicKey::new(algorithm, public);
        measure(bencher, kilobytes, |text| key.verify(text, signed).is_ok());
    }
}
