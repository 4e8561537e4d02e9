//! JSON, read only as far as asked: all pointers in one pass, no tree, values as their own text.
//!
//! The text is checked as a whole first, which takes no recursion, so that depth costs no stack.
//! After that the walk goes as deep as the pointers do and no deeper. A number keeps its text: an
//! id beyond 2^53 is not rounded.
//!
//! A `*` in a pointer stands for every item of a list: `/entry/*/id` is `/id` in each of them.
//!
//! Refused: a name that occurs twice on the way to a value. Which of the two counts differs from
//! reader to reader, so what is identified here need not be what a handler sees.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Pointers by the lists they go through.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pointers: Pointers,
    lists: Vec<List>,
}

/// A list, and what is looked up in each of its items.
#[derive(Debug)]
struct List {
    slot: usize,
    /// The text itself is the list.
    is_text: bool,
    items: Scope,
}

/// Where a pointer's value will be: through which lists, and in which slot there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) lists: Vec<usize>,
    pub(crate) slot: usize,
}

/// What a list turns out to be.
#[derive(Debug)]
pub(crate) enum Listed<'t> {
    /// What was found in each item.
    Items(Vec<Found<'t>>),
    /// Nothing, or `null`; of the text itself, anything but a list.
    Absent,
    /// No list, but something of this name.
    Other(&'static str),
    /// More than one.
    Twice,
    /// More items than are taken.
    TooMany,
}

/// JSON pointers (RFC 6901) that are looked up together.
#[derive(Debug, Default)]
pub(crate) struct Pointers {
    root: Node,
    count: usize,
}

/// A step of one or several pointers.
#[derive(Debug, Default)]
struct Node {
    slot: Option<usize>,
    children: Vec<(String, Node)>,
}

/// What was found, by slot.
#[derive(Clone, Debug)]
pub(crate) struct Found<'t>(Vec<Slot<'t>>);

#[derive(Clone, Copy, Debug)]
enum Slot<'t> {
    Absent,
    Value(&'t str),
    Twice,
}

/// What lies at a pointer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scalar<'t> {
    /// A string, or the text of a number.
    Text(Cow<'t, str>),
    /// `null`.
    Null,
    /// A string whose escapes make no text.
    Undecodable,
    /// Something else, by its name.
    Other(&'static str),
    /// Nothing.
    Absent,
    /// More than one.
    Twice,
}

/// Text that is no JSON. Says where, and nothing of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotJson {
    pub(crate) problem: &'static str,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Scope {
    /// Adds a pointer. One that ends in `*` stands for the items themselves.
    pub(crate) fn add(&mut self, pointer: &str) -> Result<Address, &'static str> {
        let names = steps(pointer)?;
        let mut pieces = names.split(|name| name == "*");
        let outside = pieces.next().unwrap_or_default();
        let mut slot = self.pointers.names(outside);
        let (mut scope, mut lists) = (self, Vec::new());
        let mut is_text = outside.is_empty();
        for piece in pieces {
            let list = match scope.lists.iter().position(|list| list.slot == slot) {
                Some(list) => list,
                None => {
                    scope.lists.push(List { slot, is_text, items: Self::default() });
                    scope.lists.len() - 1
                }
            };
            is_text = false;
            lists.push(list);
            scope = &mut scope.lists[list].items;
            slot = scope.pointers.names(piece);
        }
        Ok(Address { lists, slot })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }

    /// Looks up in `text` what lies outside lists.
    pub(crate) fn find<'t>(&self, text: &'t str) -> Result<Found<'t>, NotJson> {
        self.pointers.find(text)
    }

    /// Looks up what lies in the items of a list, given what was found around it, and what is
    /// looked up in lists within them.
    pub(crate) fn items<'t>(
        &self,
        around: &Found<'t>,
        list: usize,
        most: usize,
    ) -> Result<(&Self, Listed<'t>), NotJson> {
        let List { slot, is_text, items } = &self.lists[list];
        let listed = match around.0[*slot] {
            Slot::Value(text) if text.starts_with('[') => {
                let texts = serde_json::Deserializer::from_str(text)
                    .deserialize_seq(Texts { most })
                    .map_err(|error| NotJson::from(&error))?;
                if texts.len() > most {
                    Listed::TooMany
                } else {
                    let found = texts.into_iter().map(|text| items.pointers.walk(text));
                    Listed::Items(found.collect::<Result<_, _>>()?)
                }
            }
            Slot::Twice => Listed::Twice,
            Slot::Absent => Listed::Absent,
            Slot::Value(_) if *is_text => Listed::Absent,
            Slot::Value(_) => match around.scalar(*slot) {
                Scalar::Null => Listed::Absent,
                Scalar::Other(found) => Listed::Other(found),
                Scalar::Text(_) | Scalar::Undecodable | Scalar::Absent | Scalar::Twice => {
                    Listed::Other("a string or a number")
                }
            },
        };
        Ok((items, listed))
    }
}

impl Pointers {
    /// Adds a pointer; the slot is where [`Found::scalar`] has its value.
    pub(crate) fn add(&mut self, pointer: &str) -> Result<usize, &'static str> {
        let names = steps(pointer)?;
        if names.iter().any(|name| name == "*") {
            return Err("no list can be gone through here");
        }
        Ok(self.names(&names))
    }

    fn names(&mut self, names: &[String]) -> usize {
        let mut node = &mut self.root;
        for name in names {
            let at = match node.children.iter().position(|(known, _)| known == name) {
                Some(at) => at,
                None => {
                    node.children.push((name.clone(), Node::default()));
                    node.children.len() - 1
                }
            };
            node = &mut node.children[at].1;
        }
        let slot = *node.slot.get_or_insert(self.count);
        self.count = self.count.max(slot + 1);
        slot
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Looks all pointers up in `text`.
    pub(crate) fn find<'t>(&self, text: &'t str) -> Result<Found<'t>, NotJson> {
        let whole: &RawValue = serde_json::from_str(text).map_err(|error| NotJson::from(&error))?;
        self.walk(whole.get())
    }

    /// As [`Pointers::find`], in text that is JSON.
    fn walk<'t>(&self, text: &'t str) -> Result<Found<'t>, NotJson> {
        let mut found = Found(vec![Slot::Absent; self.count]);
        self.root.walk(text, &mut found).map_err(|error| NotJson::from(&error))?;
        Ok(found)
    }
}

/// The names of a pointer, unescaped.
pub(crate) fn steps(pointer: &str) -> Result<Vec<String>, &'static str> {
    let names = pointer.strip_prefix('/').ok_or("a JSON pointer begins with '/'")?;
    names.split('/').map(unescaped).collect()
}

fn unescaped(name: &str) -> Result<String, &'static str> {
    let mut rest = name.split('~');
    let mut plain = rest.next().unwrap_or_default().to_owned();
    for escaped in rest {
        let (code, tail) = escaped.split_at_checked(1).unwrap_or_default();
        plain.push(match code {
            "0" => '~',
            "1" => '/',
            _ => return Err("in a JSON pointer '~' is written ~0 and '/' is written ~1"),
        });
        plain.push_str(tail);
    }
    Ok(plain)
}

impl Node {
    fn walk<'t>(&self, value: &'t str, found: &mut Found<'t>) -> serde_json::Result<()> {
        if let Some(slot) = self.slot {
            found.put(slot, value);
        }
        if self.children.is_empty() {
            return Ok(());
        }
        let mut reader = serde_json::Deserializer::from_str(value);
        match value.as_bytes().first() {
            Some(b'{') => reader.deserialize_map(Members { node: self, found }),
            Some(b'[') => reader.deserialize_seq(Items { node: self, found }),
            _ => Ok(()),
        }
    }

    /// Marks everything from here on as ambiguous.
    fn spoil(&self, found: &mut Found<'_>) {
        if let Some(slot) = self.slot {
            found.0[slot] = Slot::Twice;
        }
        for (_, child) in &self.children {
            child.spoil(found);
        }
    }
}

struct Members<'n, 'f, 't> {
    node: &'n Node,
    found: &'f mut Found<'t>,
}

impl<'t> Visitor<'t> for Members<'_, '_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = vec![false; self.node.children.len()];
        while let Some(child) = map.next_key_seed(Name(self.node))? {
            let Some(at) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value: &'t RawValue = map.next_value()?;
            let child = &self.node.children[at].1;
            if std::mem::replace(&mut seen[at], true) {
                child.spoil(self.found);
            } else {
                child.walk(value.get(), self.found).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

struct Items<'n, 'f, 't> {
    node: &'n Node,
    found: &'f mut Found<'t>,
}

impl<'t> Visitor<'t> for Items<'_, '_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        while let Some(value) = items.next_element::<&'t RawValue>()? {
            let name = index.to_string();
            if let Some((_, child)) = self.node.children.iter().find(|(known, _)| *known == name) {
                child.walk(value.get(), self.found).map_err(A::Error::custom)?;
            }
            index += 1;
        }
        Ok(())
    }
}

/// The texts of a list's items, and one more than `most` if there are more.
struct Texts {
    most: usize,
}

impl<'t> Visitor<'t> for Texts {
    type Value = Vec<&'t str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(item) = items.next_element::<&'t RawValue>()? {
            if texts.len() <= self.most {
                texts.push(item.get());
            }
        }
        Ok(texts)
    }
}

/// Which child a name is, if any. Names are compared as bytes, which takes lone surrogates too.
struct Name<'n>(&'n Node);

impl<'t> DeserializeSeed<'t> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'t>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().position(|(known, _)| known.as_bytes() == name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.visit_bytes(name.as_bytes())
    }
}

impl<'t> Found<'t> {
    fn put(&mut self, slot: usize, value: &'t str) {
        self.0[slot] = match self.0[slot] {
            Slot::Absent => Slot::Value(value),
            Slot::Value(_) | Slot::Twice => Slot::Twice,
        };
    }

    /// The text of whatever lies at the pointer of `slot`, as it is written.
    pub(crate) fn raw(&self, slot: usize) -> Option<&'t str> {
        match self.0.get(slot) {
            Some(Slot::Value(value)) => Some(value),
            Some(Slot::Absent | Slot::Twice) | None => None,
        }
    }

    /// What lies at the pointer of `slot`.
    pub(crate) fn scalar(&self, slot: usize) -> Scalar<'t> {
        let value = match self.0.get(slot) {
            Some(Slot::Value(value)) => *value,
            Some(Slot::Twice) => return Scalar::Twice,
            Some(Slot::Absent) | None => return Scalar::Absent,
        };
        match value.as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<Text<'t>>(value) {
                Ok(text) => Scalar::Text(text.0),
                Err(_) => Scalar::Undecodable,
            },
            Some(b'{') => Scalar::Other("an object"),
            Some(b'[') => Scalar::Other("an array"),
            Some(b't' | b'f') => Scalar::Other("a boolean"),
            Some(b'n') => Scalar::Null,
            _ => Scalar::Text(Cow::Borrowed(value)),
        }
    }
}

#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

impl From<&serde_json::Error> for NotJson {
    /// The position only: the error's own text may quote the document.
    fn from(error: &serde_json::Error) -> Self {
        let problem = if error.is_eof() { "it ends too early" } else { "syntax error" };
        Self { problem, line: error.line(), column: error.column() }
    }
}

/// `bytes` as text that may be JSON.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, NotJson> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(NotJson { problem: "it begins with a byte order mark", line: 1, column: 1 });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        NotJson {
            problem: "it is not UTF-8",
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + before.len() - line_start,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pointer: &str, text: &str) -> String {
        let mut pointers = Pointers::default();
        let slot = pointers.add(pointer).expect("a pointer");
        match pointers.find(text) {
            Ok(found) => format!("{:?}", found.scalar(slot)),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn pointers_reach_members_items_and_escaped_names() {
        assert_eq!(look("/a/b", r#"{"x":[1,{"b":2}],"a":{"b":"c"}}"#), r#"Text("c")"#);
        assert_eq!(look("/a/1/b", r#"{"a":[{"b":1},{"b":2}]}"#), r#"Text("2")"#);
        assert_eq!(look("/a~1b/~0", r#"{"a/b":{"~":"c"}}"#), r#"Text("c")"#);
        assert_eq!(look("/a", r#"{"\u0061":"\u00e4"}"#), r#"Text("ä")"#);
    }

    #[test]
    fn a_pointer_and_a_longer_one_are_found_together() {
        let mut pointers = Pointers::default();
        let outer = pointers.add("/a").expect("a pointer");
        let inner = pointers.add("/a/b").expect("a pointer");
        assert_eq!(pointers.add("/a"), Ok(outer));
        let found = pointers.find(r#"{"a":{"b":7}}"#).expect("JSON");
        assert_eq!(found.scalar(outer), Scalar::Other("an object"));
        assert_eq!(found.scalar(inner), Scalar::Text("7".into()));
    }

    #[test]
    fn numbers_keep_their_text() {
        assert_eq!(look("/a", r#"{"a":9007199254740993}"#), r#"Text("9007199254740993")"#);
        assert_eq!(look("/a", r#"{"a":1e999, "b":1e-999}"#), r#"Text("1e999")"#);
    }

    #[test]
    fn other_types_are_named() {
        for (value, shown) in
            [("{}", "an object"), ("[]", "an array"), ("true", "a boolean"), ("false", "a boolean")]
        {
            assert_eq!(look("/a", &format!("{{\"a\":{value}}}")), format!("Other({shown:?})"));
        }
        assert_eq!(look("/a", r#"{"a":null}"#), "Null");
        assert_eq!(look("/a/b", r#"{"a":"b"}"#), "Absent");
        assert_eq!(look("/a", r#"{"a":"\ud800"}"#), "Undecodable");
    }

    #[test]
    fn a_name_that_occurs_twice_on_the_way_is_ambiguous() {
        assert_eq!(look("/a", r#"{"a":1,"a":2}"#), "Twice");
        assert_eq!(look("/a/b", r#"{"a":{"b":1},"a":{}}"#), "Twice");
        assert_eq!(look("/a", r#"{"a":1,"b":2,"b":3,"\ud800":4}"#), r#"Text("1")"#);
    }

    #[test]
    fn errors_say_where_and_not_what() {
        assert_eq!(
            look("/a", "{\"a\":1,\n hunter2}"),
            "NotJson { problem: \"syntax error\", line: 2, column: 2 }"
        );
        assert!(look("/a", "{\"a\":").contains("it ends too early"));
        assert!(look("/a", "{} {}").contains("syntax error"));
        assert_eq!(
            text(b"{\n \xff}"),
            Err(NotJson { problem: "it is not UTF-8", line: 2, column: 2 })
        );
        assert!(text("\u{feff}{}".as_bytes()).is_err());
    }

    #[test]
    fn depth_takes_no_stack() {
        let deep = format!("{{\"a\":{}1{},\"b\":5}}", "[".repeat(500_000), "]".repeat(500_000));
        assert_eq!(look("/b", &deep), r#"Text("5")"#);
        assert_eq!(look("/a/0/0/0", &deep), r#"Other("an array")"#);
        assert!(look("/b", &"[".repeat(500_000)).contains("it ends too early"));
    }

    #[test]
    fn pointers_are_checked() {
        for pointer in ["", "a", "/a~", "/a~2", "/~ä"] {
            assert!(Pointers::default().add(pointer).is_err(), "{pointer}");
        }
    }
}
