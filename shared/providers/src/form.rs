//! Form bodies (`application/x-www-form-urlencoded`).
//!
//! Refused: bytes that decode to no UTF-8 (replacing them would make two ids one), and a field that
//! is asked for and comes twice.

use std::borrow::Cow;

/// What a form has under a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field<'b> {
    /// The decoded value.
    Value(Cow<'b, str>),
    /// No such field.
    Absent,
    /// More than one.
    Twice,
    /// A value that is no text.
    Undecodable,
}

/// The field `name` of a form body.
pub(crate) fn field<'b>(body: &'b [u8], name: &str) -> Field<'b> {
    let mut values = raw_pairs(body)
        .filter(|(known, _)| *decoded(known) == *name.as_bytes())
        .map(|(_, value)| value);
    let Some(value) = values.next() else { return Field::Absent };
    if values.next().is_some() {
        return Field::Twice;
    }
    let text = match decoded(value) {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.map_or(Field::Undecodable, Field::Value)
}

/// Names and values of a form body, decoded.
pub(crate) fn pairs(body: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    raw_pairs(body)
        .filter(|(name, value)| !(name.is_empty() && value.is_empty()))
        .map(|(name, value)| (decoded(name), decoded(value)))
}

fn raw_pairs(body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    body.split(|byte| *byte == b'&').map(|pair| match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, &pair[pair.len()..]),
    })
}

/// Percent and plus decoded. A percent sign without two digits stands for itself, as in browsers.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        plain.push(match byte {
            b'+' => b' ',
            b'%' => match tail.first_chunk().and_then(hex_byte) {
                Some(decoded) => {
                    rest = &tail[2..];
                    decoded
                }
                None => b'%',
            },
            other => *other,
        });
    }
    Cow::Owned(plain)
}

/// Bytes as RFC 3986 escapes them.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    bytes.iter().map(escape).collect()
}

fn hex_byte(digits: &[u8; 2]) -> Option<u8> {
    let mut byte = [0];
    hex::decode_to_slice(digits, &mut byte).ok().map(|()| byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let body = b"a=1&b=x+%C3%A4%2Fy&%63=&d&e=%zz%4";
        assert_eq!(field(body, "a"), Field::Value("1".into()));
        assert_eq!(field(body, "b"), Field::Value("x ä/y".into()));
        assert_eq!(field(body, "c"), Field::Value("".into()));
        assert_eq!(field(body, "d"), Field::Value("".into()));
        assert_eq!(field(body, "e"), Field::Value("%zz%4".into()));
        assert_eq!(field(body, "f"), Field::Absent);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        assert_eq!(field(b"a=1&%61=2", "a"), Field::Twice);
        assert_eq!(field(b"a=%ff", "a"), Field::Undecodable);
    }
}
