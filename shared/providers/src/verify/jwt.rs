//! JSON web tokens in the compact form: three pieces, of which the first two are signed.
//!
//! The algorithm is the catalogue's, never the token's: one that names another is refused.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A token, taken apart and not believed yet.
pub(super) struct Token<'t> {
    /// The text that is signed.
    pub(super) signed: &'t str,
    pub(super) signature: &'t str,
    /// The name of the key.
    pub(super) key_id: Option<String>,
    claims: Map<String, Value>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

impl<'t> Token<'t> {
    pub(super) fn read(text: &'t str, algorithm: &str) -> Result<Self, &'static str> {
        let pieces = text.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.')?;
            Some((signed, signature, header, claims))
        });
        let (signed, signature, header, claims) = pieces.ok_or("it is no JSON web token")?;
        let header: Header =
            serde_json::from_slice(&decoded(header)?).map_err(|_| "its header is not readable")?;
        if header.alg != algorithm {
            return Err("it is signed by another algorithm");
        }
        let claims =
            serde_json::from_slice(&decoded(claims)?).map_err(|_| "its claims are not readable")?;
        Ok(Self { signed, signature, key_id: header.kid, claims })
    }

    /// A claim as text; a number as it is written.
    pub(super) fn claim(&self, name: &str) -> Option<String> {
        match self.claims.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// The text to sign for `claims`.
pub(super) fn unsigned(
    algorithm: &str,
    key_id: Option<&str>,
    claims: Map<String, Value>,
) -> String {
    let mut header = Map::new();
    header.insert("alg".to_owned(), algorithm.into());
    if let Some(id) = key_id {
        header.insert("kid".to_owned(), id.into());
    }
    header.insert("typ".to_owned(), "JWT".into());
    let encoded =
        |object| BASE64_URL_SAFE_NO_PAD.encode(Value::Object(object).to_string().as_bytes());
    format!("{}.{}", encoded(header), encoded(claims))
}

fn decoded(piece: &str) -> Result<Vec<u8>, &'static str> {
    BASE64_URL_SAFE_NO_PAD.decode(piece).map_err(|_| "it is not base64")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str, claims: &str) -> Result<Option<String>, &'static str> {
        let [header, claims] = [header, claims].map(|text| BASE64_URL_SAFE_NO_PAD.encode(text));
        Token::read(&format!("{header}.{claims}.c2ln"), "ES256").map(|token| token.claim("iat"))
    }

    #[test]
    fn the_algorithm_is_the_catalogues() {
        assert_eq!(read(r#"{"alg":"ES256"}"#, r#"{"iat":1}"#), Ok(Some("1".into())));
        for algorithm in ["none", "HS256", "es256", "RS256", ""] {
            let header = format!("{{\"alg\":\"{algorithm}\"}}");
            assert_eq!(
                read(&header, "{}"),
                Err("it is signed by another algorithm"),
                "{algorithm}"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert!(read("{}", "{}").is_err() && read("", "{}").is_err());
        assert_eq!(read(r#"{"alg":"ES256"}"#, "[]"), Err("its claims are not readable"));
        for text in ["", ".", "..", "a.b", "a.b.c", "e30.e30.c2ln"] {
            assert!(Token::read(text, "ES256").is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let claims = Map::from_iter([("iat".to_owned(), Value::from(1))]);
        let text = format!("{}.c2ln", unsigned("ES256", Some("k"), claims));
        let token = Token::read(&text, "ES256").expect("a token");
        assert_eq!((token.key_id.as_deref(), token.signature), (Some("k"), "c2ln"));
        assert_eq!(token.claim("iat").as_deref(), Some("1"));
    }
}
