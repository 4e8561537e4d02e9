//! `hookonce`: webhook idempotency on AWS Lambda, DynamoDB and SQS, from the command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use hookonce::commands::{self, check, demo, dev, doctor, events, providers, queue, send, verify};

/// Webhook idempotency on AWS Lambda, DynamoDB and SQS.
///
/// Exit codes: 0 for yes, 1 for no, 2 for a call that makes no sense.
#[derive(Parser, Debug)]
#[command(name = "hookonce", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Dev(dev::DevArgs),
    Send(send::SendArgs),
    Verify(verify::VerifyArgs),
    Check(check::CheckArgs),
    Providers(providers::ProvidersArgs),
    Events(events::EventsArgs),
    Queue(queue::QueueArgs),
    Doctor(doctor::DoctorArgs),
    /// Run as one of the functions, through the Lambda Runtime API
    #[command(hide = true)]
    Function {
        which: Which,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Receiver,
    Worker,
    Sweeper,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Check(args) => commands::exit(check::run(&args)),
        Command::Providers(args) => commands::exit(providers::run(&args)),
        Command::Verify(args) => commands::exit(verify::run(&args)),
        Command::Demo(args) => commands::exit(on_threads(demo::run(args))),
        Command::Dev(args) => commands::exit(on_threads(dev::run(args))),
        Command::Send(args) => commands::exit(on_threads(send::run(args))),
        Command::Events(args) => commands::exit(on_threads(events::run(args))),
        Command::Doctor(args) => commands::exit(on_threads(doctor::run(args))),
        Command::Queue(args) => commands::exit(on_threads(queue::run(args))),
        Command::Function { which } => function(which),
    }
}

fn on_threads(command: impl Future<Output = commands::Outcome>) -> commands::Outcome {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

/// As the function's own executable does: one thread.
fn function(which: Which) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return commands::exit(Err(error.into())),
    };
    let ended = runtime.block_on(async {
        match which {
            Which::Receiver => receiver::run().await,
            Which::Worker => worker::run().await,
            Which::Sweeper => sweeper::run().await,
        }
    });
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
