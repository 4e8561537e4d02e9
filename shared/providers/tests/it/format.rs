//! The format of provider files, as its README says and as it is read: each has the keys and the
//! words that the other has. What can be written is asked of the code itself: refusing a key that
//! it does not know, it says those that it does.

use std::collections::BTreeSet;

use providers::Provider;

const README: &str = include_str!("../../catalogue/README.md");

/// What may stand in place of `zzz`.
fn expected(written: &str) -> BTreeSet<String> {
    let refusal = Provider::parse("some.toml", written).expect_err("zzz is nothing").to_string();
    let (found, expected) = refusal.split_once("expected ").expect("what is expected");
    assert!(found.contains("`zzz`"), "{written}: {refusal}");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The part of the README under this heading, up to the next; the beginning for an empty one.
fn section(heading: &str) -> &'static str {
    let from = if heading.is_empty() {
        README
    } else {
        let at = README.find(&format!("\n## {heading}\n"));
        &README[at.unwrap_or_else(|| panic!("no section {heading}")) + 1..]
    };
    from.split("\n## ").next().unwrap_or_default()
}

/// The words within backticks, but those of an example.
fn words(text: &str) -> BTreeSet<&str> {
    let prose = text.split("```").step_by(2);
    let code = prose.flat_map(|prose| prose.split('`').skip(1).step_by(2));
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    code.flat_map(|code| code.split(move |c| !is_word(c))).collect()
}

#[test]
fn every_key_that_is_read_is_explained_where_it_belongs() {
    for (heading, written) in [
        ("", "zzz = 1"),
        ("", "setting = [{ zzz = 1 }]"),
        ("", "windows = { zzz = 1 }"),
        ("", "answer = { zzz = 1 }"),
        ("", "certificate = { zzz = 1 }"),
        ("", "origin = [{ zzz = 1 }]"),
        ("`[[verify]]`", "verify = [{ zzz = 1 }]"),
        ("`[[verify]]`", "verify = [{ key = { zzz = 1 } }]"),
        ("`[[verify]]`", "verify = [{ members = { zzz = 1 } }]"),
        ("`[[verify]]`", "verify = [{ part = [{ zzz = 1 }] }]"),
        ("`[[verify]]`", "verify = [{ listed_headers = { zzz = 1 } }]"),
        ("`[[verify]]`", "verify = [{ body_digest = { zzz = 1 } }]"),
        ("`[[verify]]`", "verify = [{ pinned = [{ zzz = 1 }] }]"),
        ("`[[verify]]`", "verify = [{ timestamp = { zzz = 1 } }]"),
        ("Places", "identity = [{ id = [{ any = [{ zzz = 1 }] }] }]"),
        ("Places", "identity = [{ id = [{ zzz = 1 }] }]"),
        ("`[[identity]]`", "identity = [{ zzz = 1 }]"),
        ("`[[identity]]`", "identity = [{ when = [{ zzz = 1 }] }]"),
        ("`[[identity]]`", "identity = [{ occurred_at = [{ zzz = 1 }] }]"),
        ("`[[handshake]]`", "handshake = [{ zzz = 1 }]"),
        ("`[[handshake]]`", "handshake = [{ token = { zzz = 1 } }]"),
        ("`[[handshake]]`", "handshake = [{ challenge = { zzz = 1 } }]"),
        ("`[[handshake]]`", "handshake = [{ confirm = { zzz = 1 } }]"),
        ("Facts", "timeout = { zzz = 1 }"),
        ("`[[sample]]`", "sample = [{ zzz = 1 }]"),
    ] {
        // A place may stand wherever a value is looked for, and is explained once.
        let explained = &words(section(heading)) | &words(section("Places"));
        let keys = expected(written);
        assert!(!keys.is_empty(), "{written}");
        let silent: Vec<_> = keys.iter().filter(|key| !explained.contains(key.as_str())).collect();
        assert!(silent.is_empty(), "{written}: {silent:?} not under \"{heading}\"");
    }
}

#[test]
fn every_word_that_a_key_may_have_is_explained() {
    let explained = words(README);
    for written in [
        "verify = [{ scheme = \"zzz\" }]",
        "verify = [{ algorithm = \"zzz\" }]",
        "verify = [{ encoding = \"zzz\" }]",
        "verify = [{ covers = \"zzz\" }]",
        "verify = [{ key = { format = \"zzz\" } }]",
        "verify = [{ timestamp = { unit = \"zzz\" } }]",
        "handshake = [{ challenge = { alphabet = \"zzz\" } }]",
        "timeout = { confidence = \"zzz\" }",
    ] {
        let values = expected(written);
        let silent: Vec<_> =
            values.iter().filter(|value| !explained.contains(value.as_str())).collect();
        assert!(silent.is_empty(), "{written}: {silent:?}");
    }
}

/// The tables' first columns are of keys, and of schemes in one.
#[test]
fn nothing_is_explained_that_is_not_read() {
    for (heading, written) in [
        ("", &["zzz = 1"][..]),
        ("`[[verify]]`", &["verify = [{ zzz = 1 }]", "verify = [{ scheme = \"zzz\" }]"]),
        ("`[[handshake]]`", &["handshake = [{ zzz = 1 }]"]),
    ] {
        let known: BTreeSet<_> = written.iter().flat_map(|written| expected(written)).collect();
        let rows = section(heading).lines().filter(|line| line.starts_with("| `"));
        let first = rows.map(|row| row.split(" | ").next().unwrap_or_default());
        // Placeholders are written as they are in templates, in braces.
        let keys: Vec<_> = first.filter(|key| !key.contains('{')).collect();
        assert!(keys.len() > 5, "{heading}: {keys:?}");
        for key in keys.into_iter().flat_map(words).filter(|key| !key.is_empty()) {
            assert!(known.contains(key), "{heading}: {key}");
        }
    }
}

#[test]
fn the_least_that_does_is_a_provider() {
    let (_, rest) = README.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    assert_eq!(
        Provider::parse("teapots.toml", example).map(|p| p.name().to_owned()),
        Ok("teapots".into())
    );
}
