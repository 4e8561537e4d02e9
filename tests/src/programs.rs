//! The executables as they are deployed and as a user starts them, built once per test process.
//!
//! Cargo builds the executables of a package for that package's own tests only; these belong to
//! other packages. After a `cargo test --workspace` all their crates are there and linking is left.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The folder with `hookonce`, `receiver`, `worker` and `sweeper`.
///
/// # Panics
/// If they cannot be built.
pub fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build)
}

/// `hookonce` in `folder`, with none of the caller's settings: no `hookonce.toml` that happens to
/// lie about, no variable that happens to be set.
#[must_use]
pub fn hookonce(folder: &Path) -> Command {
    let mut command = Command::new(programs().join("hookonce"));
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["HOOKONCE_", "PAYMENTS_", "AWS_", "RUST_LOG"].iter().any(|own| name.starts_with(own)) {
            command.env_remove(&*name);
        }
    }
    command
}

/// How one call of `hookonce` ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `hookonce` in `folder` to its end.
#[must_use]
pub fn run(folder: &Path, arguments: &[&str]) -> Ended {
    hookonce(folder).args(arguments).output().expect("hookonce starts").into()
}

/// `target/{profile}/deps/it-…`: the executables go where this one came from.
fn build() -> PathBuf {
    let own = std::env::current_exe().expect("a path of the test executable");
    let folder = own.ancestors().nth(2).expect("a profile's folder").to_owned();
    let target = folder.parent().expect("a target folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()).expect("text") {
        "debug" => "dev",
        other => other,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--workspace", "--bins", "--quiet", "--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // What cargo tells a test about its package is nothing to the build: some build scripts would
    // take it for a change and have everything compiled anew.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|own| name.starts_with(own)) {
            cargo.env_remove(&*name);
        }
    }
    let built = cargo.output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder
}
