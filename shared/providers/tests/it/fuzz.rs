//! The judgements of the fuzz targets, without a fuzzer: of the seeds, and of what lies near them.
//!
//! The seeds are made here, of our own samples, and written anew where they are others: whoever
//! changes a sample runs the test twice and commits what it wrote.

use std::{cell::Cell, collections::BTreeMap, fs, path::PathBuf, sync::LazyLock};

use proptest::{collection::vec, prelude::*, sample::Index};

use crate::judge::{self, HOMES};

/// Requests of handshakes, which are nobody's samples.
const HANDSHAKES: &[(&str, &str)] = &[
    ("braintree", "GET bt_challenge=0123456789abcdef0123\n\n"),
    ("dropbox", "GET challenge=tea\n\n"),
    ("meta", "GET hub.mode=subscribe&hub.verify_token=setting+of+ours&hub.challenge=1234\n\n"),
    ("microsoft-graph", "POST validationToken=tea\ncontent-type: text/plain\n\n"),
    (
        "whatsapp-cloud",
        "GET hub.mode=subscribe&hub.verify_token=setting+of+ours&hub.challenge=1\n\n",
    ),
    ("woocommerce", "POST \ncontent-type: application/x-www-form-urlencoded\n\nwebhook_id=1"),
    ("x", "GET crc_token=dGVh-1234\n\n"),
    (
        "zoom",
        "POST \ncontent-type: application/json\n\n{\"event\":\"endpoint.url_validation\",\"payload\":{\"plainToken\":\"tea\"}}",
    ),
];

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds"))
}

/// By name of file.
static SEEDS: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let samples = HOMES.iter().map(|home| (home.name.to_owned(), home.seed()));
    let handshakes = HANDSHAKES.iter();
    let handshakes = handshakes
        .map(|(name, asked)| (format!("{name}.handshake"), format!("{name} {asked}").into_bytes()));
    samples.chain(handshakes).collect()
});

/// The catalogue's own files.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let entries = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue"));
    let paths = entries.expect("the catalogue").map(|entry| entry.expect("an entry").path());
    let files = paths.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    files.map(|path| fs::read(path).expect("a file")).collect()
});

/// What the fuzzer puts in, too.
static WORDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let lines = include_str!("../../fuzz/words.dict").lines();
    let words = lines.filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    words.map(|word| word.replace("\\\"", "\"").replace("\\\\", "\\").into_bytes()).collect()
});

/// One change of a seed: some bytes from there on give way to others.
#[derive(Clone, Debug)]
struct Edit {
    at: Index,
    length: usize,
    by: Vec<u8>,
}

fn edit() -> impl Strategy<Value = Edit> {
    let words = any::<Index>().prop_map(|at| at.get(&WORDS).clone());
    let by = prop_oneof![3 => words, 1 => vec(any::<u8>(), 0..8), 1 => Just(Vec::new())];
    let length = prop_oneof![2 => Just(0_usize), 2 => 1_usize..4, 1 => 4_usize..80];
    (any::<Index>(), length, by).prop_map(|(at, length, by)| Edit { at, length, by })
}

/// `text` with `edits`, none of them before `from`.
fn edited(text: &[u8], from: usize, edits: &[Edit]) -> Vec<u8> {
    let mut text = text.to_vec();
    for Edit { at, length, by } in edits {
        let start = from + at.index(text.len() - from + 1);
        let end = (start + length).min(text.len());
        text.splice(start..end, by.iter().copied());
    }
    text
}

#[test]
fn the_seeds_are_our_samples() {
    let found = fs::read_dir(folder()).into_iter().flatten().map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, fs::read(path).expect("a seed"))
    });
    if found.collect::<BTreeMap<_, _>>() != *SEEDS {
        let _ = fs::remove_dir_all(folder());
        fs::create_dir_all(folder()).expect("a folder");
        for (name, seed) in SEEDS.iter() {
            fs::write(folder().join(name), seed).expect("a seed");
        }
        panic!("{} was out of date and is written anew: commit it", folder().display());
    }
}

/// If they did not get that far, nothing near them would.
#[test]
fn the_seeds_get_as_far_as_there_is_a_judgement() {
    for home in HOMES.iter() {
        let (name, seed) = (home.name, &SEEDS[home.name]);
        assert!(judge::signature_header(seed), "{name}");
        assert!(judge::identification(seed), "{name}");
        assert!(judge::delivery(seed), "{name}: delivery");
    }
    for (name, _) in HANDSHAKES {
        assert!(judge::greeting(&SEEDS[&format!("{name}.handshake")]), "{name}");
    }
    for file in FILES.iter() {
        assert!(judge::file(&String::from_utf8_lossy(file)));
    }
}

/// Judges what lies near the seeds, and wants some of it to get far: else it would show little.
fn near<T>(seeds: &[T], judge: impl Fn(&[u8]) -> bool)
where
    T: AsRef<[u8]>,
{
    let far = Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2048)
    });
    let strategy = (any::<Index>(), vec(edit(), 1..4));
    let judged = runner.run(&strategy, |(seed, edits)| {
        let seed = seed.get(seeds).as_ref();
        // The provider stays.
        let from = seed.iter().position(|byte| *byte == b' ').map_or(0, |at| at + 1);
        let input = edited(seed, from, &edits);
        far.set(far.get() + usize::from(judge(&input)));
        Ok(())
    });
    judged.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(far.get() > 50, "only {} got far", far.get());
}

fn requests() -> Vec<&'static Vec<u8>> {
    SEEDS.values().collect()
}

#[test]
fn near_the_seeds_nobody_is_believed() {
    near(&requests(), judge::delivery);
}

#[test]
fn near_the_seeds_a_header_says_what_was_signed() {
    near(&requests(), judge::signature_header);
}

#[test]
fn near_the_seeds_what_is_signed_is_identified_or_refused() {
    near(&requests(), judge::identification);
}

#[test]
fn near_the_seeds_an_answer_tells_nothing() {
    let handshakes: Vec<_> = SEEDS
        .iter()
        .filter(|(name, _)| name.ends_with(".handshake"))
        .map(|(_, seed)| seed)
        .collect();
    near(&handshakes, judge::greeting);
}

#[test]
fn near_the_catalogue_a_file_is_safe_or_refused() {
    near(&FILES, |file| judge::file(&String::from_utf8_lossy(file)));
}
