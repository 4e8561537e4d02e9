//! From a written `[keys]` to where keys are asked for.

use std::collections::BTreeMap;

use super::{
    checks::{Refusal, refuse},
    file::{self, OneOrMany},
    places::Places,
};
use crate::{
    endpoint::Setting,
    fetch::{KeyAnswer, KeySource, Posted},
    json,
    reply::{host_and_path, is_host_pattern, is_label},
};

pub(super) fn keys(
    written: file::Keys,
    places: &mut Places<'_>,
    settings: &[Setting],
) -> Result<KeySource, Refusal> {
    let file::Keys { answer, named, at, post, pointer, unknown } = written;
    if places.schemes.iter().all(|scheme| scheme.key.is_shared()) {
        return refuse("keys", "a shared secret is published nowhere");
    }
    let named = named.into_iter().map(|place| places.selector("keys.named", place));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let at = match at {
        OneOrMany::One(address) => vec![address],
        OneOrMany::Many(addresses) => addresses,
    };
    match at.as_slice() {
        [] => return refuse("keys.at", "there is no address"),
        [_, _, ..] if named.is_empty() => {
            return refuse("keys.at", "one address, unless a delivery says in \"named\" which");
        }
        addresses => {
            addresses.iter().try_for_each(|address| is_address(address, !named.is_empty()))?
        }
    }
    if !named.is_empty() && !post.is_empty() {
        return refuse("keys.post", "nothing is posted to an address that a delivery chose");
    }
    if pointer.is_some() && answer == KeyAnswer::Certificate {
        return refuse("keys.pointer", "a certificate is not JSON");
    }
    let default = if answer == KeyAnswer::Jwks { "/keys" } else { "" };
    let pointer = pointer.unwrap_or_else(|| default.to_owned());
    if !pointer.is_empty() {
        json::steps(&pointer).or_else(|problem| refuse("keys.pointer", problem))?;
    }
    let post = posted(post, settings)?;
    let unknown = unknown.map(|file::Unknown { pointer, is }| (pointer, is));
    if let Some((pointer, _)) = &unknown {
        json::steps(pointer).or_else(|problem| refuse("keys.unknown.pointer", problem))?;
        if post.values().all(|value| *value != Posted::KeyId) {
            return refuse("keys.unknown", "it is for a key that is asked for by its {key_id}");
        }
    }
    let source = KeySource { answer, named, at, post, pointer, unknown };
    for name in source.settings_in_address() {
        let known = settings.iter().find(|setting| setting.name == name);
        let values = known.map(|setting| setting.one_of.as_slice()).unwrap_or_default();
        if values.is_empty() || !values.iter().all(|value| is_label(value)) {
            return refuse(
                "keys.at",
                format!("{{{name}}} is no setting that is one of some labels"),
            );
        }
    }
    Ok(source)
}

/// HTTPS, a host without a port, a path without a query. A `*` is for what a delivery may choose,
/// and never for a whole host.
fn is_address(address: &str, is_named: bool) -> Result<(), Refusal> {
    let Some((host, path)) = host_and_path(address) else {
        return refuse("keys.at", "an address is https://HOST/PATH");
    };
    let is_path = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./*".contains(&b));
    if !is_host_pattern(host, is_setting) {
        let reason = format!("{host} is no host: no port, user or number, \"*\" only for a region");
        return refuse("keys.at", reason);
    }
    if !is_path || path.contains("..") {
        return refuse("keys.at", format!("/{path} is no plain path: no query, no \"..\""));
    }
    if address.contains('*') && !is_named {
        return refuse("keys.at", "\"*\" goes with \"named\"");
    }
    if address.contains('{') && is_named {
        return refuse("keys.at", "a setting goes without \"named\"");
    }
    Ok(())
}

fn posted(
    written: BTreeMap<String, String>,
    settings: &[Setting],
) -> Result<BTreeMap<String, Posted>, Refusal> {
    let read = |(member, value): (String, String)| {
        let name = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
        let posted = match name {
            Some("key_id") => Posted::KeyId,
            Some("api_secret") => Posted::ApiSecret,
            Some(name) if settings.iter().any(|setting| setting.name == name) => {
                Posted::Setting(name.to_owned())
            }
            _ => {
                let reason = "it is {key_id}, {api_secret} or a setting";
                return refuse(&format!("keys.post.{member}"), reason);
            }
        };
        Ok((member, posted))
    };
    written.into_iter().map(read).collect()
}

fn is_setting(label: &str) -> bool {
    label.starts_with('{') && label.ends_with('}')
}
