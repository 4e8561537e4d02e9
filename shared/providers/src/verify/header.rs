//! How signatures are written, in a header or elsewhere: one alone, or a list of tagged members.
//!
//! Members that are no member, of another tag or undecodable are skipped: the rest still counts, as
//! a provider adds versions and rolls secrets. The number that is tried is bounded.

/// How signatures are written.
#[derive(Clone, Debug)]
pub(crate) enum Grammar {
    /// One signature, after `prefix`.
    Plain { prefix: String },
    /// Members of a tag and a value: `t=1,v1=ab,v1=cd` or `v1,ab v1a,cd`. Without a tag, all of
    /// them count.
    Members { separator: char, assign: char, tag: Option<String> },
}

impl Grammar {
    /// The signatures that count, at most [`MAX_SIGNATURES`].
    pub(crate) fn signatures<'h>(&self, header: &'h str) -> Result<Vec<&'h str>, Unreadable> {
        match self {
            Self::Plain { prefix } => match header.strip_prefix(prefix.as_str()) {
                Some("") => Err(Unreadable::Malformed("it is empty")),
                Some(signature) => Ok(vec![signature]),
                None => Err(Unreadable::Malformed("its prefix is missing")),
            },
            Self::Members { tag, .. } => {
                let signatures: Vec<_> =
                    self.values(header, tag.as_deref()).take(MAX_SIGNATURES).collect();
                if signatures.is_empty() {
                    return Err(match tag {
                        Some(tag) => Unreadable::NoneOf(tag.clone()),
                        None => Unreadable::Malformed("it has no members"),
                    });
                }
                Ok(signatures)
            }
        }
    }

    /// The only member of `tag`. Of two, no one could say which was signed.
    pub(crate) fn only<'h>(
        &self,
        header: &'h str,
        tag: &str,
    ) -> Result<Option<&'h str>, Unreadable> {
        let mut values = self.values(header, Some(tag));
        let first = values.next();
        match values.next() {
            Some(_) => Err(Unreadable::Malformed("it has two timestamps")),
            None => Ok(first),
        }
    }

    fn values<'h>(&self, header: &'h str, tag: Option<&str>) -> impl Iterator<Item = &'h str> {
        let (separator, assign) = match self {
            Self::Plain { .. } => (None, '='),
            Self::Members { separator, assign, .. } => (Some(*separator), *assign),
        };
        separator
            .into_iter()
            .flat_map(|separator| header.split(separator))
            .filter_map(move |member| member.trim().split_once(assign))
            .filter(move |(known, _)| tag.is_none_or(|tag| *known == tag))
            .map(|(_, value)| value)
    }

    /// A header with one signature, and a timestamp if that is a member.
    pub(crate) fn write(&self, timestamp: Option<(&str, &str)>, signature: &str) -> String {
        match self {
            Self::Plain { prefix } => format!("{prefix}{signature}"),
            Self::Members { separator, assign, tag } => {
                let timestamp = timestamp
                    .map(|(tag, time)| format!("{tag}{assign}{time}{separator}"))
                    .unwrap_or_default();
                let tag = tag.as_deref().unwrap_or("sample");
                format!("{timestamp}{tag}{assign}{signature}")
            }
        }
    }
}

/// A header without a signature that could be tried.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Not as the provider writes it.
    Malformed(&'static str),
    /// No member of the tag that counts.
    NoneOf(String),
}

/// Signatures tried per delivery. Providers send one per secret in use: two or three during a
/// rotation, eleven at most where it is documented.
pub(crate) const MAX_SIGNATURES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe() -> Grammar {
        Grammar::Members { separator: ',', assign: '=', tag: Some("v1".into()) }
    }

    #[test]
    fn members_of_the_tag_that_counts_are_taken() {
        let header = "t=1,v1=aa,v0=bb, v1=cc ,v1,junk,=,v1==";
        assert_eq!(stripe().signatures(header), Ok(vec!["aa", "cc", "="]));
        assert_eq!(stripe().only(header, "t"), Ok(Some("1")));
        assert_eq!(stripe().signatures("t=1,v0=bb"), Err(Unreadable::NoneOf("v1".into())));
    }

    #[test]
    fn two_timestamps_are_one_too_many() {
        assert!(stripe().only("t=1,t=2,v1=aa", "t").is_err());
    }

    #[test]
    fn a_plain_header_needs_its_prefix() {
        let github = Grammar::Plain { prefix: "sha256=".into() };
        assert_eq!(github.signatures("sha256=ab"), Ok(vec!["ab"]));
        assert!(github.signatures("sha1=ab").is_err());
        assert!(github.signatures("sha256=").is_err());
    }

    #[test]
    fn the_number_of_tries_is_bounded() {
        let header = "v1,x ".repeat(1000);
        let list = Grammar::Members { separator: ' ', assign: ',', tag: Some("v1".into()) };
        assert_eq!(list.signatures(&header).map(|tried| tried.len()), Ok(MAX_SIGNATURES));
    }
}
