//! The format of provider files, as its README says, as its schema says and as it is read: each has
//! the keys and the words that the others have. What can be written is asked of the code itself:
//! refusing a key that it does not know, it says those that it does.

use std::{collections::BTreeSet, fs, path::Path};

use boon::{Compiler, SchemaIndex, Schemas};
use providers::{CatalogueError, Provider};
use serde_json::Value;

const README: &str = include_str!("../../catalogue/README.md");

/// Wherever there are keys, and the part of the README that explains them.
const KEYS: &[(&str, &str)] = &[
    ("", "zzz = 1"),
    ("", "setting = [{ zzz = 1 }]"),
    ("", "windows = { zzz = 1 }"),
    ("", "answer = { zzz = 1 }"),
    ("`[keys]`", "keys = { zzz = 1 }"),
    ("`[keys]`", "keys = { unknown = { zzz = 1 } }"),
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
];

/// Wherever there is a choice of words.
const WORDS: &[&str] = &[
    "verify = [{ scheme = \"zzz\" }]",
    "verify = [{ algorithm = \"zzz\" }]",
    "verify = [{ encoding = \"zzz\" }]",
    "verify = [{ covers = \"zzz\" }]",
    "verify = [{ key = { format = \"zzz\" } }]",
    "verify = [{ timestamp = { unit = \"zzz\" } }]",
    "keys = { answer = \"zzz\" }",
    "handshake = [{ challenge = { alphabet = \"zzz\" } }]",
    "timeout = { confidence = \"zzz\" }",
];

/// What is changed in the README's example, and to what.
const WRONG: &[(&str, &str)] = &[
    ("title = \"Teapots\"\n", ""),
    ("title = \"Teapots\"", "title = 1"),
    ("title = \"Teapots\"", "title = \"Teapots\"\nvolatile = \"/a\""),
    ("title = \"Teapots\"", "title = \"Teapots\"\ntimeout = { seconds = 1, page = \"p\" }"),
    (
        "title = \"Teapots\"",
        "title = \"Teapots\"\ntimeout = { seconds = -1, page = \"p\", confidence = \"sdk\" }",
    ),
    (
        "title = \"Teapots\"",
        "title = \"Teapots\"\ntimeout = { seconds = 1, page = \"p\", confidence = \"sure\" }",
    ),
    ("title = \"Teapots\"", "title = \"Teapots\"\nanswer = { status = 70_000 }"),
    ("[[verify]]", "[verify]"),
    ("scheme = \"hmac\"", "scheme = \"hmack\""),
    ("scheme = \"hmac\"\n", ""),
    ("algorithm = \"sha256\"", "algorithm = \"SHA256\""),
    ("encoding = \"hex\"", "encodings = \"hex\""),
    ("{ format = \"raw\" }", "{ format = \"raw\", of = \"a\" }"),
    ("{ format = \"raw\" }", "\"raw\""),
    ("[\"x-teapots-signature\"]", "\"x-teapots-signature\""),
    ("signed = \"{body}\"", "signed = 1"),
    ("signed = \"{body}\"", "signed = \"{body}\"\nbody_digest = { header = \"a\" }"),
    (
        "signed = \"{body}\"",
        "signed = \"{body}\"\nmembers = { separator = \", \", assign = \"=\" }",
    ),
    (
        "signed = \"{body}\"",
        "signed = \"{body}\"\ntimestamp = { header = [\"a\"], unit = \"min\" }",
    ),
    ("id = [{ pointer = \"/id\" }]", "type = [{ pointer = \"/id\" }]"),
    ("{ pointer = \"/id\" }", "{ pointer = 1 }"),
    ("{ pointer = \"/id\" }", "\"/id\""),
    ("{ pointer = \"/id\" }", "{ any = [{ pointer = \"/id\", optional = true }] }"),
];

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
    for (heading, written) in KEYS {
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
    for written in WORDS {
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
        ("`[keys]`", &["keys = { zzz = 1 }"]),
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

/// Keys, or words, that the schema knows where `zzz` is written.
fn in_schema(schema: &Value, at: &Value, written: &Value) -> BTreeSet<String> {
    if let Some(reference) = at["$ref"].as_str() {
        let definition = reference.strip_prefix('#').and_then(|pointer| schema.pointer(pointer));
        return in_schema(schema, definition.expect("a definition"), written);
    }
    let choices = at["oneOf"].as_array().into_iter().flatten().chain([at]);
    match written {
        Value::Object(table) => {
            let (key, value) = table.iter().next().expect("one key");
            if key != "zzz" {
                return in_schema(schema, &at["properties"][key], value);
            }
            let tables = choices.filter_map(|choice| choice["properties"].as_object());
            tables.flat_map(|properties| properties.keys().cloned()).collect()
        }
        Value::Array(items) => in_schema(schema, &at["items"], &items[0]),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let several =
                |choice: &'_ Value| choice["enum"].as_array().cloned().unwrap_or_default();
            let words = choices.flat_map(|choice| [several(choice), vec![choice["const"].clone()]]);
            words.flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
        }
    }
}

#[test]
fn the_schema_has_the_keys_and_words_that_are_read() {
    let schema: Value = serde_json::from_str(Provider::file_schema()).expect("a schema");
    for written in KEYS.iter().map(|(_, written)| written).chain(WORDS) {
        let table: Value = toml::from_str(written).expect("a table");
        assert_eq!(in_schema(&schema, &schema, &table), expected(written), "{written}");
    }
}

/// The schema, as an editor reads it.
struct Editor {
    schemas: Schemas,
    schema: SchemaIndex,
}

impl Editor {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let schema = serde_json::from_str(Provider::file_schema()).expect("a schema");
        compiler.add_resource("provider.json", schema).expect("a resource");
        let schema = compiler.compile("provider.json", &mut schemas).expect("a schema");
        Self { schemas, schema }
    }

    fn accepts(&self, text: &str) -> Result<(), String> {
        let table: Value = toml::from_str(text).expect("a table");
        self.schemas.validate(&table, self.schema).map_err(|error| error.to_string())
    }
}

#[test]
fn every_file_of_the_catalogue_is_as_the_schema_says() {
    let (editor, mut seen) = (Editor::new(), 0);
    let catalogue = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    for entry in fs::read_dir(catalogue).expect("the catalogue") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(&path).expect("a file");
            assert_eq!(editor.accepts(&text), Ok(()), "{}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, Provider::builtin_names().len());
}

#[test]
fn what_the_schema_refuses_is_refused_when_it_is_read() {
    let editor = Editor::new();
    assert_eq!(editor.accepts(example()), Ok(()));
    for (from, to) in WRONG {
        let wrong = example().replacen(from, to, 1);
        assert_ne!(wrong, example(), "{from}");
        assert!(editor.accepts(&wrong).is_err(), "by the schema: {to}");
        let refusal = Provider::parse("wrong.toml", &wrong).expect_err(to);
        assert!(matches!(refusal, CatalogueError::Syntax { .. }), "{to}: {refusal}");
    }
}

/// The least that does.
fn example() -> &'static str {
    let (_, rest) = README.split_once("```toml\n").expect("an example");
    rest.split("```").next().unwrap_or_default()
}

#[test]
fn the_least_that_does_is_a_provider() {
    assert_eq!(
        Provider::parse("teapots.toml", example()).map(|p| p.name().to_owned()),
        Ok("teapots".into())
    );
}
