//! What a provider gets to hear.

use crate::select::{Condition, Reading, Selector};

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

/// A request that is no event but asks whether we are who we say.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) when: Vec<Condition>,
    /// The answer; its body stays empty where a value is echoed.
    pub(crate) reply: Reply,
    pub(crate) echo: Option<Selector>,
}

impl Handshake {
    /// The answer, if this is such a request and has what is to be echoed.
    pub(crate) fn answer(&self, reading: &Reading<'_>) -> Option<Reply> {
        if !reading.meets(&self.when) {
            return None;
        }
        let mut reply = self.reply.clone();
        if let Some(echo) = &self.echo {
            let text = reading.text(echo).filter(|text| text.len() <= MAX_ECHO_BYTES)?;
            reply.body = text.into_owned();
        }
        Some(reply)
    }
}

/// Longest challenge that is echoed. Those seen have under 100 bytes.
const MAX_ECHO_BYTES: usize = 1024;
