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
    let mut values = body
        .split(|byte| *byte == b'&')
        .map(|pair| match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &pair[pair.len()..]),
        })
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
