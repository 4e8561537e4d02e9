//! Style as tests over the source tree: rules that nobody has to remember.
//!
//! What clippy can say is clippy's: the length of functions, docs of public items, `unwrap`
//! in what it compiles. Here is what it cannot: what is absent from a crate, and from a file.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use domain::seeded::Fault;

/// One source file, by its path from the workspace's root.
struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file of these folders; `only` keeps those whose path has it.
fn sources(folders: &[&str], only: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut found);
    }
    found.retain(|source| source.path.contains(only));
    assert!(found.len() > 5, "only {} files under {folders:?}", found.len());
    found
}

fn walk(folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target" && name != "node_modules") {
                walk(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let path = path.strip_prefix(root()).expect("under the root").display().to_string();
            found.push(Source { path, text });
        }
    }
}

/// `path:line: word` for each of `words` that stands in code: not in a comment, and not inside
/// another word.
fn uses(source: &Source, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (i, line) in source.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for word in words {
            if stands_in(code, word) {
                found.push(format!("{}:{}: {word}", source.path, i + 1));
            }
        }
    }
    found
}

fn stands_in(code: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(part_of_word);
        let after = code[at + word.len()..].chars().next().is_some_and(part_of_word);
        let inside = before && word.starts_with(part_of_word);
        let goes_on = after && word.ends_with(part_of_word);
        !inside && !goes_on
    })
}

/// Files with words in them that must not be, this one excepted: it names them.
fn forbid(folders: &[&str], only: &str, words: &[&str]) {
    let found: Vec<_> = sources(folders, only)
        .iter()
        .filter(|source| !source.path.ends_with("it/tidy.rs"))
        .flat_map(|source| uses(source, words))
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

const ALL: [&str; 4] = ["functions", "infra/hookonce", "shared", "tests"];

#[test]
fn a_rule_sees_what_it_forbids_and_nothing_else() {
    let text = "use tokio::time;\n// tokio\nlet tokio_like = 1; // tokio\n    x.await\n".to_owned();
    let source = Source { path: "a.rs".into(), text };
    let expected = ["a.rs:1: tokio", "a.rs:4: await", "a.rs:4: .await"];
    assert_eq!(uses(&source, &["tokio", "await", ".await", "env"]), expected);
}

#[test]
fn what_decides_has_no_async_sdk_clock_environment_or_chance() {
    let words = [
        "tokio",
        "futures",
        "async",
        "await",
        "aws_sdk_dynamodb",
        "aws_sdk_sqs",
        "aws_config",
        "SystemTime",
        "Instant",
        "std::env",
        "env::var",
        "fastrand",
        "uuid",
        "Uuid",
        "std::net",
        "std::fs",
        "std::thread",
    ];
    forbid(&["shared/domain", "shared/providers"], "/src/", &words);
    forbid(&["shared/domain"], "/src/", &["rand"]);
    // A signature by an elliptic curve or RSA needs chance. Only a sender signs.
    let mut others = sources(&["shared/providers"], "/src/");
    others.retain(|source| !source.path.ends_with("/keys.rs"));
    let found: Vec<_> = others.iter().flat_map(|source| uses(source, &["rand"])).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_decides_depends_on_nothing_that_acts() {
    for package in ["domain", "providers"] {
        let manifest = read(&format!("shared/{package}/Cargo.toml"));
        let dependencies = section(&manifest, "[dependencies]");
        assert!(dependencies.contains("serde_json"), "not the dependencies: {dependencies}");
        let acting = ["tokio", "futures", "aws-", "reqwest", "fastrand", "rand", "uuid", "runtime"];
        let found: Vec<_> = dependencies
            .lines()
            .filter(|line| acting.iter().any(|acting| line.starts_with(acting)))
            .collect();
        assert!(found.is_empty(), "{package}: {found:?}");
    }
}

#[test]
fn dependencies_point_one_way() {
    let adapters = ["dynamo", "sqs", "runtime"];
    let functions = ["receiver", "worker", "sweeper"];
    let below: [(&str, &[&str]); 5] = [
        ("shared/domain", &["providers", "dynamo", "sqs", "runtime"]),
        ("shared/providers", &["dynamo", "sqs", "runtime"]),
        ("shared/dynamo", &["providers", "sqs", "runtime"]),
        ("shared/sqs", &["providers", "dynamo", "runtime"]),
        ("shared/runtime", &["dynamo", "sqs"]),
    ];
    let functions_see = functions.map(|function| (format!("functions/{function}"), functions));
    for (package, forbidden) in below {
        let above = [forbidden, &functions, &["hookonce", "tests"]].concat();
        assert_depends_on_none(package, &above);
    }
    for (package, others) in &functions_see {
        let others = others.iter().copied().filter(|other| !package.ends_with(other));
        let above: Vec<_> = others.chain(["hookonce", "tests"]).collect();
        assert_depends_on_none(package, &above);
        let dependencies = read(&format!("{package}/Cargo.toml"));
        assert!(adapters.iter().all(|adapter| dependencies.contains(adapter)), "{package}");
    }
    assert_depends_on_none("infra/hookonce", &["tests"]);
}

fn assert_depends_on_none(package: &str, forbidden: &[&str]) {
    let manifest = read(&format!("{package}/Cargo.toml"));
    let dependencies = section(&manifest, "[dependencies]");
    let names = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    let found: Vec<_> = names.filter(|name| forbidden.contains(name)).collect();
    assert!(found.is_empty(), "{package} depends on {found:?}");
}

#[test]
fn the_clock_and_the_environment_are_read_in_one_place_each() {
    for (words, place) in [
        (["SystemTime::now", "Utc::now"], "shared/runtime/src/clock.rs"),
        (["env::var", "env::vars"], "shared/runtime/src/environment.rs"),
    ] {
        let found: Vec<_> = sources(&["functions", "infra/hookonce", "shared"], "/src/")
            .iter()
            .flat_map(|source| uses(source, &words))
            .collect();
        assert!(!found.is_empty(), "the rule finds not even {place}");
        assert!(found.iter().all(|place_found| place_found.starts_with(place)), "{found:?}");
    }
}

#[test]
fn no_test_is_ignored() {
    forbid(&ALL, "", &["#[ignore", "ignore ="]);
}

#[test]
fn nothing_is_left_to_do_or_to_debug() {
    forbid(&ALL, "", &["todo!", "unimplemented!", "dbg!"]);
}

#[test]
fn nothing_is_unwrapped() {
    forbid(&ALL, "", &[".unwrap()", "unwrap_unchecked"]);
}

#[test]
fn a_warning_is_only_silenced_with_a_reason() {
    let silenced = ["allow(", "expect("];
    for source in sources(&ALL, "") {
        for (at, _) in source.text.match_indices("#[").chain(source.text.match_indices("#![")) {
            let attribute = &source.text[at..];
            let end = attribute.find(")]").map_or(attribute.len(), |end| end + 2);
            let attribute = &attribute[..end];
            let name = attribute.trim_start_matches(['#', '!', '[']);
            if silenced.iter().any(|word| name.starts_with(word)) {
                assert!(attribute.contains("reason"), "{}: {attribute}", source.path);
            }
        }
    }
}

#[test]
fn every_file_begins_with_what_it_is_about() {
    let without: Vec<_> = sources(&ALL, "")
        .into_iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn every_member_inherits_lints_version_and_edition() {
    let members: Vec<_> = ["functions", "shared"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).expect("a folder").flatten())
        .map(|entry| entry.path())
        .chain([root().join("infra/hookonce"), root().join("tests")])
        .filter(|member| member.join("Cargo.toml").is_file())
        .collect();
    assert!(members.len() >= 10, "only {members:?}");
    for member in members {
        let manifest = fs::read_to_string(member.join("Cargo.toml")).expect("text");
        let lints = section(&manifest, "[lints]");
        assert!(lints.starts_with("workspace = true\n"), "{member:?}: {lints}");
        for inherited in ["version", "edition", "rust-version", "license", "publish"] {
            let line = format!("{inherited}.workspace = true");
            assert!(manifest.contains(&line), "{member:?}: {inherited}");
        }
    }
}

#[test]
fn dependencies_are_declared_once_in_the_workspace() {
    for folder in ["functions/receiver", "functions/worker", "functions/sweeper", "infra/hookonce"]
        .into_iter()
        .chain(["shared/domain", "shared/dynamo", "shared/providers", "shared/runtime", "tests"])
    {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        for part in ["[dependencies]", "[dev-dependencies]"] {
            let own = section(&manifest, part);
            let lines = own.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
            let loose: Vec<_> = lines.filter(|line| !line.contains("workspace = true")).collect();
            assert!(loose.is_empty(), "{folder}: {loose:?}");
        }
    }
}

#[test]
fn the_tests_that_the_failure_modes_name_are_there() {
    let page = read("docs/failures.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("::"));
    let named: Vec<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .filter(|text| text.contains("::"))
        .collect();
    assert!(named.len() > 30, "only {} tests are named", named.len());
    for name in named {
        let (folder, rest) = match name.strip_prefix("domain::") {
            Some(rest) => ("shared/domain/tests/it", rest),
            None => ("tests/tests/it", name),
        };
        let (module, test) = rest.split_once("::").expect("a module and a test");
        let text = read(&format!("{folder}/{module}.rs"));
        assert!(text.contains(&format!("fn {test}(")), "{name} is no test");
    }
}

#[test]
fn every_alarm_has_its_section_in_the_runbook_and_every_section_its_alarm() {
    let template = read("template.yaml");
    let lines: Vec<_> = template.lines().collect();
    let alarms: BTreeSet<_> = lines
        .windows(2)
        .filter(|pair| pair[1] == "    Type: AWS::CloudWatch::Alarm")
        .filter_map(|pair| pair[0].trim().strip_suffix(':'))
        .collect();
    assert!(alarms.len() > 10, "only {alarms:?}");
    let page = read("docs/runbook.md");
    let sections: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .filter(|heading| heading.ends_with("Alarm"))
        .collect();
    assert_eq!(sections, alarms);
    for section in page.split("\n## ").filter(|section| alarms.contains(first_line(section))) {
        for part in ["**Means.**", "**First look.**", "**Usual causes", "**Do.**"] {
            assert!(section.contains(part), "{} has no {part}", first_line(section));
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The page is the place to see what each fault breaks: it names all there are, and no other.
#[test]
fn every_seeded_fault_stands_beside_what_it_breaks() {
    let page = read("docs/failures.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("::"));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once("| "));
    let named: BTreeSet<&str> = last.flat_map(|(_, faults)| faults.split(", ")).collect();
    let there_are: BTreeSet<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
    let others: Vec<_> = named.difference(&there_are).filter(|name| **name != "–").collect();
    assert!(others.is_empty(), "no such fault: {others:?}");
    let missing: Vec<_> = there_are.difference(&named).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

/// The faults are for the tests alone.
#[test]
fn only_the_tests_ask_for_seeded_faults() {
    let folders = ["functions", "shared", "infra", "tests"];
    let packages = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)));
    let manifests = packages.flatten().flatten().map(|entry| entry.path().join("Cargo.toml"));
    let mut read = 0;
    for manifest in manifests.chain([root().join("Cargo.toml")]).filter(|path| path.exists()) {
        let text = fs::read_to_string(&manifest).expect("text");
        assert!(!text.contains("\"seeded-faults\""), "{}", manifest.display());
        read += 1;
    }
    assert!(read > 8, "only {read} manifests");
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a file")
}

/// The lines under a heading of a manifest.
fn section<'a>(manifest: &'a str, heading: &str) -> &'a str {
    let Some((_, rest)) = manifest.split_once(&format!("{heading}\n")) else { return "" };
    rest.split("\n[").next().unwrap_or_default()
}
