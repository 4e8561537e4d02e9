//! The schema of catalogue files, for editors: `catalogue/schema.json`.
//!
//! It is derived from the types that a file is read into, and its explanations from the README's
//! tables, so nothing is written down twice. Only a test derives it, and writes the file anew where
//! it is another: whoever adds a key runs the test twice and commits what it wrote.

use schemars::{Schema, generate::SchemaSettings, transform::transform_subschemas};
use serde_json::Value;

use super::file::File;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue/schema.json");
const README: &str = include_str!("../../catalogue/README.md");

#[test]
fn the_schema_is_that_of_the_types_a_file_is_read_into() {
    // The draft that editors' plugins for TOML know.
    let mut schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<File>();
    without_null(&mut schema);
    schema.insert("title".to_owned(), "A provider file of hookonce".into());
    let mut schema = schema.to_value();
    explain(&mut schema["properties"], "");
    explain(&mut schema["definitions"]["Verify"]["properties"], "\n## `[[verify]]`\n");
    explain(&mut schema["definitions"]["Handshake"]["properties"], "\n## `[[handshake]]`\n");
    let schema = format!("{schema:#}\n");
    if std::fs::read_to_string(PATH).ok().as_ref() != Some(&schema) {
        std::fs::write(PATH, schema).expect("the catalogue can be written to");
        panic!("{PATH} was out of date and is written anew: look at it, and commit it");
    }
}

/// TOML has no null: what is optional is left out.
fn without_null(schema: &mut Schema) {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| !is_null(kind));
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(kinds)) = schema.get("anyOf")
        && let [kind, null] = kinds.as_slice()
        && is_null(null)
    {
        let kind = kind.clone();
        schema.remove("anyOf");
        schema.ensure_object().extend(kind.as_object().cloned().unwrap_or_default());
    }
    schema.remove("default");
    transform_subschemas(&mut without_null, schema);
}

/// Gives properties the explanation of the row that names them, in the table under `heading`.
fn explain(properties: &mut Value, heading: &str) {
    let (_, section) = README.split_once(heading).expect("a heading of the README");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    for (keys, meaning) in rows {
        for key in keys.split(['`', '[', ']', ',', ' ']) {
            if let Some(property) = properties.get_mut(key) {
                property["description"] = meaning.into();
            }
        }
    }
}
