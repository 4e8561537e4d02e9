//! The seeded fault that this process of tests runs with, if it runs with one.

use domain::seeded::{self, Fault};

/// Switches on what the environment names.
pub fn switch_on() {
    if let Some(fault) = named() {
        seeded::switch_on(fault);
    }
}

/// The fault that the environment names.
///
/// # Panics
/// If it names none that there is.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a switch of the tests, not of the program")]
pub fn named() -> Option<Fault> {
    let name = std::env::var(VARIABLE).ok()?;
    let fault = Fault::ALL.iter().find(|fault| fault.name() == name);
    Some(*fault.unwrap_or_else(|| panic!("{VARIABLE}: there is no fault `{name}`")))
}

/// Names the fault.
pub const VARIABLE: &str = "HOOKONCE_SEEDED_FAULT";
