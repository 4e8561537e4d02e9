//! What must hold for whatever is sent, and for whatever a provider file says. The fuzz targets in
//! `fuzz/` and the tests in `fuzz.rs` judge by the same functions: each panics where something does
//! not hold.
//!
//! A request is a text that a person can read, and that stays one when it is mutated: a line with
//! provider, method and query, a line for each header, an empty line, the body. Within it
//! `{{signature}}` stands for a signature: the one that belongs there, or another, as a judge wants.

#![allow(unreachable_pub, reason = "the fuzz targets are other crates")]

use std::sync::LazyLock;

use domain::{
    delivery::{Delivery, Headers},
    event::Source,
    limits,
};
use providers::{Confirmation, Coverage, Greeting, Key, Provider, SampleRequest, Secret, Unsigned};

use crate::home::{NOW, provider_at_home, secret_of};

/// A provider, its key, and its sample as it signs it.
pub(crate) struct Home {
    pub(crate) name: &'static str,
    provider: Provider,
    key: [Key; 1],
    sample: Unsigned,
    signed: Delivery,
    /// The sample's signature, and the run of letters in it that is the signature itself.
    whole: String,
    core: String,
}

/// Every provider of the catalogue, read once.
pub(crate) static HOMES: LazyLock<Vec<Home>> =
    LazyLock::new(|| Provider::builtin_names().iter().map(|name| Home::new(name)).collect());

const PLACEHOLDER: &str = "{{signature}}";

impl Home {
    fn new(name: &'static str) -> Self {
        let provider = provider_at_home(name);
        let key = provider.key(&Secret::new(secret_of(name))).expect("a secret of this provider");
        let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
        let sample = provider.sample(&request).expect("a sample");
        let signed = provider.sign(&key, sample.clone(), NOW).expect("signed");
        let whole = signature(&sample, &signed);
        let core = core(&whole).to_owned();
        Self { name, provider, key: [key], sample, signed, whole, core }
    }

    /// The sample as a request, with a placeholder for its signature.
    pub(crate) fn seed(&self) -> Vec<u8> {
        let Delivery { method, headers, query, .. } = &self.signed;
        let open = |text: &str| text.replace(&self.core, PLACEHOLDER);
        let mut seed = format!("{} {method} {}\n", self.name, open(query));
        for (name, value) in headers.iter() {
            seed.push_str(&format!("{name}: {}\n", open(value)));
        }
        [seed.as_bytes(), b"\n", &self.sample.body].concat()
    }

    /// A signature as long as the right one, and wrong: zeros in hex as well as in base64.
    fn forged(&self, signature: &str) -> String {
        let zeros: String = self.core.chars().map(|c| if c == '=' { c } else { 'A' }).collect();
        signature.replace(&self.core, &zeros)
    }

    fn verifies(&self, delivery: Delivery) -> bool {
        self.provider.verify(delivery, &self.key, NOW, None).is_ok()
    }
}

/// What signing has put into a header, the query, or the body's placeholder.
fn signature(sample: &Unsigned, signed: &Delivery) -> String {
    let known = |name: &str| sample.headers.iter().any(|(known, _)| known == name);
    let new = signed.headers.iter().filter(|(name, _)| !known(name)).map(|(_, value)| value);
    let header = new.max_by_key(|value| value.len());
    let before = sample.body.windows(PLACEHOLDER.len()).position(|at| at == PLACEHOLDER.as_bytes());
    match (header, before) {
        (_, Some(before)) => {
            let after = sample.body.len() - before - PLACEHOLDER.len();
            let body = &signed.body[before..signed.body.len() - after];
            String::from_utf8_lossy(body).into_owned()
        }
        (Some(header), None) => header.to_owned(),
        (None, None) => signed.query.rsplit('=').next().unwrap_or_default().to_owned(),
    }
}

/// The last run of letters that is long enough for a signature, with its padding; all of it if
/// there is none. In a form, what separates it is escaped.
fn core(signature: &str) -> &str {
    let signature = signature.rsplit("%7C").next().unwrap_or(signature);
    let is_separator = |c: char| !c.is_ascii_alphanumeric() && !"+/_-".contains(c);
    let unpadded = signature.trim_end_matches('=');
    match unpadded.rsplit(is_separator).next() {
        Some(last) if last.len() >= 8 => &signature[unpadded.len() - last.len()..],
        _ => {
            let run = unpadded.rsplit(is_separator).find(|run| run.len() >= 8);
            run.unwrap_or(signature)
        }
    }
}

/// A request, as it is written.
struct Request {
    home: &'static Home,
    method: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// `None` for what names no provider.
    fn read(input: &[u8]) -> Option<Self> {
        let end = input.windows(2).position(|at| at == b"\n\n");
        let (head, body) = match end {
            Some(end) => (&input[..end], &input[end + 2..]),
            None => (input, &[][..]),
        };
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split('\n');
        let mut first = lines.next()?.splitn(3, ' ');
        let name = first.next()?;
        let home = HOMES.iter().find(|home| home.name == name)?;
        let method = first.next().unwrap_or_default().to_owned();
        let query = first.next().unwrap_or_default().to_owned();
        let headers = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim_start().to_owned()))
        });
        Some(Self { home, method, query, headers: headers.collect(), body: body.to_vec() })
    }

    /// With the signature `whole`, of which `core` is the run of letters.
    fn signed(&self, core: &str, whole: &str) -> Delivery {
        let fill = |text: &str| text.replace(PLACEHOLDER, core);
        let headers = self.headers.iter().map(|(name, value)| (name, fill(value)));
        Delivery {
            method: self.method.clone(),
            headers: headers.collect(),
            query: fill(&self.query),
            body: replaced(&self.body, PLACEHOLDER.as_bytes(), whole.as_bytes()),
        }
    }

    fn forged(&self) -> Delivery {
        let Home { core, whole, .. } = self.home;
        self.signed(&self.home.forged(core), &self.home.forged(whole))
    }
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let Some(at) = text.windows(from.len()).position(|piece| piece == from) else {
        return text.to_vec();
    };
    [&text[..at], to, &replaced(&text[at + from.len()..], from, to)].concat()
}

/// Nobody is believed without the secret: not for a request that nobody signed, nor for another
/// body under the sample's signature. True if it came as far as to a signature that is none.
pub fn delivery(input: &[u8]) -> bool {
    let Some(request) = Request::read(input) else { return false };
    let Home { name, provider, key, signed, .. } = request.home;
    let forged = request.forged();
    if let Ok(request) = provider.key_request(&forged) {
        assert!(request.address.starts_with("https://"), "{name}: {}", request.address);
    }
    let moved = Delivery { body: forged.body.clone(), ..signed.clone() };
    let rejection = provider.verify(forged, key, NOW, None).expect_err(name);
    assert!(!rejection.to_string().is_empty());
    // A form's parameters are signed in an order of their own.
    let signs_form = *name == "twilio";
    let is_other = moved.body != signed.body && !signs_form;
    if is_other && provider.coverage() == Coverage::Body {
        assert!(!request.home.verifies(moved), "{name}: another body");
    }
    rejection.reason() == "bad_signature"
}

/// A header that is read as signed holds the signature, and says no other time and no other event
/// than what was signed. True if it is.
pub fn signature_header(input: &[u8]) -> bool {
    let Some(request) = Request::read(input) else { return false };
    let Home { name, provider, key, signed, core, .. } = request.home;
    let written = |known: &str| request.headers.iter().any(|(name, _)| name == known);
    let kept = signed.headers.iter().filter(|(name, _)| !written(name));
    let kept = kept.map(|(name, value)| (name, value.to_owned()));
    let own = request.headers.iter();
    let own = own.map(|(name, value)| (name.as_str(), value.replace(PLACEHOLDER, core)));
    let headers: Headers = kept.chain(own).collect();
    let holds = headers.iter().any(|(_, value)| contains(value, core));
    let is_in_header = signed.headers.iter().any(|(_, value)| value.contains(core.as_str()));
    let delivery = Delivery { headers, ..signed.clone() };
    let Ok(verified) = provider.verify(delivery, key, NOW, None) else { return false };
    assert!(holds || !is_in_header, "{name}: no signature is in it");
    let genuine = provider.verify(signed.clone(), key, NOW, None).expect("the sample");
    assert_eq!(verified.signed_at(), genuine.signed_at(), "{name}: another time");
    if provider.signs_event_id() {
        let source = source();
        let ids = |delivery| {
            let events = provider.identify(delivery, &source).expect("the sample");
            events.into_iter().map(|event| event.key).collect::<Vec<_>>()
        };
        assert_eq!(ids(verified), ids(genuine), "{name}: another event");
    }
    true
}

/// Hex may be written in either case.
fn contains(text: &str, core: &str) -> bool {
    let is_hex = core.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.contains(core)
        || (is_hex && text.to_ascii_lowercase().contains(&core.to_ascii_lowercase()))
}

/// Whatever is signed is identified or refused, twice in the same way. True if it is identified.
pub fn identification(input: &[u8]) -> bool {
    let Some(Request { home, headers, body, .. }) = Request::read(input) else { return false };
    let Home { name, provider, key, .. } = home;
    // What is signed in parts, or in the body, cannot always be.
    let Ok(signed) = provider.sign(&key[0], Unsigned { headers, body }, NOW) else { return false };
    let body = signed.body.clone();
    let Ok(verified) = provider.verify(signed, key, NOW, None) else { return false };
    assert!(provider.same_payload(&body, &body), "{name}");
    if let Some(reply) = provider.handshake(&verified) {
        assert!((200..600).contains(&reply.status), "{name}");
    }
    if let Some(Confirmation::At(url)) = provider.confirmation(&verified) {
        assert!(url.starts_with("https://sns."), "{name}: {url}");
    }
    assert_eq!(provider.fingerprint(&verified), provider.fingerprint(&verified.clone()), "{name}");
    let source = source();
    let again = provider.identify(verified.clone(), &source);
    let events = provider.identify(verified, &source);
    assert_eq!(events, again, "{name}");
    let events = match events {
        Ok(events) => events,
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty(), "{name}");
            return false;
        }
    };
    assert!(events.len() <= limits::MAX_EVENTS_PER_DELIVERY, "{name}");
    for event in &events {
        let payload = event.payload.as_slice();
        let is_within = payload.is_empty() || body.windows(payload.len()).any(|at| at == payload);
        assert!(is_within, "{name}: a payload that nobody sent");
        assert!(!event.key.id().as_str().is_empty(), "{name}");
    }
    !events.is_empty()
}

/// What answers anybody is short, and is no signature of anything. True if something is answered.
pub fn greeting(input: &[u8]) -> bool {
    let Some(request) = Request::read(input) else { return false };
    let Home { name, provider, key, signed, core: genuine, .. } = request.home;
    let asked = request.forged();
    let reply = match provider.greet(&asked, key) {
        Some(Greeting::Answered(reply)) => reply,
        Some(Greeting::Refused(reply)) => {
            assert!((400..500).contains(&reply.status) && reply.body.is_empty(), "{name}");
            return false;
        }
        None => return false,
    };
    assert!(reply.body.len() < 2048, "{name}");
    // What is the same without a secret tells nothing of it, whatever it repeats.
    let without = provider.greet(&asked, &[]);
    let depends = without.is_none_or(|other| other != Greeting::Answered(reply.clone()));
    assert!(!depends || !reply.body.contains(secret_of(name)), "{name}: the secret");
    // Whoever asks can send on what was signed for him.
    let padding = &genuine[genuine.trim_end_matches('=').len()..];
    let code = format!("{}{padding}", core(&reply.body).trim_end_matches('='));
    let texts = asked.query.split(['&', '=']).map(|text| text.as_bytes().to_vec());
    for body in texts.chain([asked.body.clone()]) {
        let headers = signed.headers.iter();
        let headers = headers.map(|(header, value)| (header, value.replace(genuine, &code)));
        let recast = Delivery { headers: headers.collect(), body, ..signed.clone() };
        assert!(!request.home.verifies(recast), "{name}: signed for anybody");
    }
    true
}

/// Whatever a provider file says, nobody is believed without a signature, and what it lets sign
/// can be sent. True if it is accepted.
pub fn file(text: &str) -> bool {
    let provider = match Provider::parse("some.toml", text) {
        Ok(provider) => provider,
        Err(refusal) => {
            assert!(refusal.to_string().starts_with("some.toml"), "{refusal}");
            return false;
        }
    };
    let words = provider.describe();
    assert!(!words.schemes.is_empty() && !words.identities.is_empty());
    let _ = provider.windows().required();
    let secrets = ["ours only", "whsec_b3VycyBvbmx5OiBhIHNlY3JldCBrZXk=", secret_of("adyen")];
    let keys: Vec<_> =
        secrets.iter().filter_map(|secret| provider.key(&Secret::new(*secret)).ok()).collect();
    let request = SampleRequest { event_type: None, id: "id_1", now: NOW };
    let Ok(sample) = provider.sample(&request) else { return true };
    let headers: Headers = sample.headers.iter().cloned().collect();
    let unsigned = Delivery {
        method: "POST".into(),
        headers,
        query: String::new(),
        body: sample.body.clone(),
    };
    let _ = provider.greet(&unsigned, &keys);
    let _ = provider.key_request(&unsigned);
    assert!(provider.verify(unsigned, &keys, NOW, None).is_err(), "without a signature");
    for key in &keys {
        let Ok(signed) = provider.sign(key, sample.clone(), NOW) else { continue };
        if let Ok(verified) = provider.verify(signed, std::slice::from_ref(key), NOW, None) {
            let _ = (provider.handshake(&verified), provider.fingerprint(&verified));
            let _ = provider.identify(verified, &source());
        }
    }
    true
}

fn source() -> Source {
    Source::new("shop-1").expect("a source name")
}
