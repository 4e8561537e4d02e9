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
pub mod send;
pub mod verify;

use std::{path::PathBuf, process::ExitCode};

use providers::Secret;
use runtime::secrets::{SecretRef, SecretStore};

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
