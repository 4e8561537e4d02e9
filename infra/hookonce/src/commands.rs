//! The subcommands. Each answers 0 for yes, 1 for no, and 2 for a call that makes no sense.

/// A line on standard output. Whoever reads it may have stopped reading, which is no failure.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($argument)*);
    }};
}

/// A line on standard error, likewise.
macro_rules! complain {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

pub mod check;
pub mod demo;
pub mod dev;
pub mod doctor;
pub mod events;
pub mod providers;
pub mod queue;
pub mod send;
pub mod verify;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use ::providers::{Provider, Secret};
use runtime::{
    config::{Config, Trust},
    secrets::{SecretRef, SecretStore},
};

/// Yes.
pub const YES: u8 = 0;
/// No.
pub const NO: u8 = 1;
/// The call makes no sense.
pub const WRONG_CALL: u8 = 2;

/// A call that makes no sense, in words.
#[derive(Debug)]
pub struct WrongCall(pub String);

impl<E: std::error::Error> From<E> for WrongCall {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// How a command ends.
pub type Outcome = Result<u8, WrongCall>;

/// The exit code of an outcome; a wrong call is explained on standard error.
#[must_use]
pub fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code.into(),
        Err(WrongCall(problem)) => {
            complain!("hookonce: {problem}");
            WRONG_CALL.into()
        }
    }
}

/// A secret given on the command line, by reference.
pub(crate) async fn secret_of(reference: &str) -> Result<Secret, WrongCall> {
    let parsed =
        SecretRef::parse(reference).map_err(|error| WrongCall(format!("--secret: {error}")))?;
    Ok(SecretStore::new(None).fetch(&parsed).await?)
}

/// The providers of a configuration by their names, those of one's own files among them.
pub(crate) fn own_providers(
    config: Option<&PathBuf>,
) -> Result<BTreeMap<String, Provider>, WrongCall> {
    let Some(path) = config else { return Ok(BTreeMap::new()) };
    let config = Config::read(path, Trust::Local)?;
    let providers = config.sources.into_values().map(|source| source.provider);
    Ok(providers.map(|provider| (provider.name().to_owned(), provider)).collect())
}

/// The provider of this name: one's own, or the catalogue's.
pub(crate) fn provider_named(
    name: &str,
    own: &BTreeMap<String, Provider>,
) -> Result<Provider, WrongCall> {
    own.get(name).cloned().or_else(|| Provider::builtin(name)).ok_or_else(|| {
        let known = Provider::builtin_names().iter().copied();
        let near = nearest(name, known.chain(own.keys().map(String::as_str)));
        let hint = if near.is_empty() {
            "`hookonce providers` lists what is".to_owned()
        } else {
            format!("near it: {}", near.join(", "))
        };
        WrongCall(format!("`{name}` is not in the catalogue; {hint}"))
    })
}

/// Those that `name` may have been meant to be, the nearest first.
fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Vec<&'k str> {
    let name = name.to_ascii_lowercase();
    let likeness = |known: &str| {
        let is_within = name.len() > 2 && (known.contains(&name) || name.contains(known));
        if is_within { 1.0 } else { strsim::jaro_winkler(&name, known) }
    };
    let mut near: Vec<_> = known.map(|known| (likeness(known), known)).collect();
    near.retain(|(likeness, _)| *likeness >= LEAST_LIKENESS);
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    near.into_iter().map(|(_, known)| known).take(3).collect()
}

/// The name that a provider's only source may have.
pub(crate) fn source_name(provider: &Provider) -> String {
    provider.name().replace('.', "-")
}

/// A time for people: `30d`, `1h25m`, `never`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let Some(at) = units.iter().position(|(_, unit)| seconds >= *unit) else {
        return "never".to_owned();
    };
    let (name, unit) = units[at];
    let rest = units.get(at + 1).map(|(name, smaller)| (name, seconds % unit / smaller));
    match rest {
        Some((smaller, count)) if count > 0 => format!("{}{name}{count}{smaller}", seconds / unit),
        _ => format!("{}{name}", seconds / unit),
    }
}

/// This very executable: the functions are in it.
pub(crate) fn own_program() -> Result<PathBuf, WrongCall> {
    std::env::current_exe()
        .map_err(|error| WrongCall(format!("cannot find the own executable: {error}")))
}

/// The share `at` (0 to 1) of sorted figures lies at or below this one.
pub(crate) fn percentile(sorted: &[f64], at: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a list that fits memory"
    )]
    let index = (last as f64 * at).round() as usize;
    sorted.get(index.min(last)).copied().unwrap_or(0.0)
}

/// Names less alike are no misspelling of one another.
const LEAST_LIKENESS: f64 = 0.8;
