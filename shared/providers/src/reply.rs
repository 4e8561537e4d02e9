//! What a provider gets to hear, and the requests that are no events but ask whether we are who we
//! say.
//!
//! Some of those come unsigned, and what answers them answers anybody. So what is sent back is
//! short, of a narrow alphabet and never a page that a browser would run; and what is signed for
//! somebody can be no delivery: a body needs characters that a challenge may not have, and a text
//! without them is believed from nobody.

use std::borrow::Cow;

use ring::hmac;

use crate::{
    endpoint::Endpoint,
    secret::Encoding,
    select::{Condition, Reading, Selector},
    verify::same,
};

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
}

/// What an unsigned request for a handshake comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// What its sender wants to hear.
    Answered(Reply),
    /// A wrong token, or a challenge that nobody honest sends.
    Refused(Reply),
}

/// What a handshake wants to be called.
#[derive(Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// This address, at one of the hosts that the catalogue names. Its query is a secret.
    At(String),
    /// No address, or one elsewhere.
    Elsewhere,
}

impl std::fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::At(_) => "At(…)",
            Self::Elsewhere => "Elsewhere",
        })
    }
}

/// A request that is no event but asks whether we are who we say.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// Any where there is none.
    pub(crate) method: Option<String>,
    pub(crate) when: Vec<Condition>,
    /// It is answered without a signature.
    pub(crate) unsigned: bool,
    /// A value that has to be the same as a setting's.
    pub(crate) token: Option<(Selector, String)>,
    pub(crate) challenge: Option<Challenge>,
    /// An address that is to be called to confirm, and the hosts it may be at.
    pub(crate) confirm: Option<(Selector, Vec<String>)>,
    /// The answer, with placeholders in its body.
    pub(crate) reply: Reply,
    /// The status of a refusal.
    pub(crate) refusal: u16,
}

/// What is to be sent back, or signed and sent back.
#[derive(Debug)]
pub(crate) struct Challenge {
    pub(crate) place: Selector,
    pub(crate) alphabet: Alphabet,
    pub(crate) longest: usize,
    /// How its keyed hash is written, where that is wanted.
    pub(crate) hmac: Option<Encoding>,
}

/// What a challenge may consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Alphabet {
    /// Any printable text.
    Text,
    /// Letters, digits, and what base64 and UUIDs have besides.
    Token,
    /// Hexadecimal digits.
    Hex,
}

impl Handshake {
    /// Whether `method` and body are those of this handshake.
    pub(crate) fn is_this(&self, method: &str, reading: &Reading<'_>) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method) && reading.meets(&self.when)
    }

    /// The answer, if token and challenge are as they should be.
    pub(crate) fn answer(
        &self,
        reading: &Reading<'_>,
        endpoint: &Endpoint,
        key: Option<&hmac::Key>,
    ) -> Option<Reply> {
        if let Some((selector, setting)) = &self.token {
            let wanted = endpoint.setting(setting)?;
            if !same(wanted.as_bytes(), reading.text(selector)?.as_bytes()) {
                return None;
            }
        }
        let mut reply = self.reply.clone();
        if let Some(challenge) = &self.challenge {
            let text = reading.text(&challenge.place).filter(|text| challenge.is_sound(text))?;
            if let Some(encoding) = challenge.hmac {
                let code = encoding.encode(hmac::sign(key?, text.as_bytes()).as_ref());
                reply.body = reply.body.replace("{{hmac}}", &code);
            }
            for name in endpoint.names() {
                let value = endpoint.setting(name).unwrap_or_default();
                reply.body = reply.body.replace(&format!("{{{{{name}}}}}"), value);
            }
            // Last, so that nothing in it is taken for a placeholder.
            reply.body = reply.body.replace("{{challenge}}", &text);
        }
        Some(reply)
    }

    /// Whether whoever asks for it gets this text signed. Such a signature proves nothing.
    pub(crate) fn signs_for_anybody(&self, text: &[Cow<'_, [u8]>]) -> bool {
        let challenge = self.challenge.as_ref().filter(|challenge| challenge.hmac.is_some());
        challenge.filter(|_| self.unsigned).is_some_and(|challenge| {
            let length: usize = text.iter().map(|piece| piece.len()).sum();
            length <= challenge.longest
                && str::from_utf8(&text.concat()).is_ok_and(|text| challenge.is_sound(text))
        })
    }

    pub(crate) fn refused(&self) -> Reply {
        Reply { status: self.refusal, headers: Vec::new(), body: String::new() }
    }
}

impl Challenge {
    fn is_sound(&self, text: &str) -> bool {
        let is_sound = |c: char| match self.alphabet {
            Alphabet::Text => !c.is_control(),
            Alphabet::Token => c.is_ascii_alphanumeric() || "-_.~+/=".contains(c),
            Alphabet::Hex => c.is_ascii_hexdigit(),
        };
        (1..=self.longest).contains(&text.len()) && text.chars().all(is_sound)
    }
}

/// Whether `url` is one of HTTPS at one of `hosts`. No port, no user: what a person and two parsers
/// could read differently is not called.
pub(crate) fn is_at(url: &str, hosts: &[String]) -> bool {
    let Some((host, _)) = host_and_path(url) else { return false };
    url.bytes().all(|byte| byte.is_ascii_graphic())
        && hosts.iter().any(|known| is_host(known, host))
}

/// What stands before and after the first slash of `https://HOST/PATH`, as it is.
pub(crate) fn host_and_path(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("https://")?.split_once('/')
}

/// Whether `host` is the one that `pattern` names, in which a `*` stands for a region of AWS and
/// nothing else: `sns.*.amazonaws.com` with any label would be somebody's bucket at
/// `sns.s3.amazonaws.com`.
pub(crate) fn is_host(pattern: &str, host: &str) -> bool {
    let (wanted, labels): (Vec<_>, Vec<_>) =
        (pattern.split('.').collect(), host.split('.').collect());
    wanted.len() == labels.len()
        && wanted.iter().zip(&labels).all(|(wanted, label)| match *wanted {
            "*" => is_region(label),
            wanted => is_label(label) && wanted == *label,
        })
}

/// Whether a catalogue file may name such a host: no address in numbers, and no whole domain of
/// anybody's.
pub(crate) fn is_host_pattern(host: &str, is_variable: impl Fn(&str) -> bool) -> bool {
    let fixed: Vec<_> = host.rsplit('.').take(2).collect();
    fixed.len() == 2
        && fixed.iter().all(|label| is_label(label))
        && fixed[0].bytes().any(|b| b.is_ascii_lowercase())
        && host.split('.').all(|label| label == "*" || is_label(label) || is_variable(label))
}

pub(crate) fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// As `eu-west-1` and `us-gov-east-1` are.
fn is_region(label: &str) -> bool {
    let parts: Vec<_> = label.split('-').collect();
    let is_word = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
    match parts.as_slice() {
        [partition, middle @ .., number] if !middle.is_empty() => {
            partition.len() == 2
                && is_word(partition)
                && middle.iter().all(is_word)
                && !number.is_empty()
                && number.bytes().all(|b| b.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_at_the_hosts_are_called() {
        let hosts = ["sns.*.amazonaws.com".to_owned()];
        assert!(is_at("https://sns.eu-west-1.amazonaws.com/?Action=Confirm", &hosts));
        for url in [
            "https://sns.s3.amazonaws.com/",
            "https://sns.s3-us-west-2.amazonaws.com/",
            "https://sns.us-west.amazonaws.com/",
            "https://sns.anybody.amazonaws.com/",
            "http://sns.eu-west-1.amazonaws.com/",
            "https://sns.eu-west-1.amazonaws.com",
            "https://sns.eu-west-1.amazonaws.com.evil.example/",
            "https://sns.eu.west.amazonaws.com/",
            "https://sns..amazonaws.com/",
            "https://sns.eu-west-1.amazonaws.com:8080/",
            "https://evil.example@sns.eu-west-1.amazonaws.com/",
            "https://evil.example\\\\@sns.eu-west-1.amazonaws.com/",
            "https://evil.example#.amazonaws.com/",
            "https://sns.eu-west-1.amazonaws.com/\n",
        ] {
            assert!(!is_at(url, &hosts), "{url}");
        }
    }
}
