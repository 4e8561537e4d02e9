//! `hookonce demo`: the promise, shown. Signed events, each delivered several times at once through
//! the real receiver and worker; then the books are read and judged.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use futures::{StreamExt as _, stream};
use providers::{Key, Provider, Secret};
use runtime::clock::Clock;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use url::Url;

use super::{
    NO, Outcome, WrongCall, YES, own_program, percentile,
    send::{client, deliver, fresh_id, sign, unsigned_event},
};
use crate::{
    lambda::Function,
    services::{Count, Services},
    stack::{Accounts, Functions, Stack, StackOptions},
};

/// Deliver the same signed events several times at once, and see that each takes effect once.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// How many deliveries in all
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    deliveries: u32,
    /// How many different events they carry
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    events: u32,
    /// How many deliveries at once; all of them, up to 64, without
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    parallel: Option<u16>,
    /// Kill the worker's process again and again while it works
    #[arg(long)]
    kill: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// What the functions' own lines said, counted.
#[derive(Debug, Default)]
struct Counted {
    new: u64,
    duplicates: u64,
    /// The last lines that speak of an error.
    errors: Vec<String>,
}

/// What became of the deliveries.
#[derive(Default)]
struct Delivered {
    acknowledged: u64,
    latencies: Vec<f64>,
    /// Why one was not acknowledged, of the last one.
    refusal: Option<String>,
}

/// What is judged.
struct Books {
    deliveries: u64,
    delivered: Delivered,
    counted: Counted,
    accounts: Accounts,
    receipt: Count,
    shipment: Count,
    kills: u64,
    open: usize,
    parked: usize,
    elapsed: Duration,
}

/// What `--json` says.
#[derive(Serialize)]
struct Report {
    deliveries: u64,
    acknowledged: u64,
    new: u64,
    duplicates: u64,
    effects: Effects,
}

#[derive(Serialize)]
struct Effects {
    credit: u64,
    receipt: u64,
    shipment: u64,
}

/// Runs the command. Yes: every delivery acknowledged, every event's effects there once.
///
/// # Errors
/// If the stack cannot be started, or the call makes no sense.
pub async fn run(args: DemoArgs) -> Outcome {
    if args.events > args.deliveries {
        return Err(WrongCall(format!(
            "{} events need as many deliveries at least, not {}",
            args.events, args.deliveries
        )));
    }
    let books = play(&args).await?;
    let balanced = books.balance(&args);
    if args.json {
        say!("{}", serde_json::to_string(&books.report())?);
    } else {
        books.print(&args, balanced);
    }
    if !balanced {
        if let Some(problem) = &books.delivered.refusal {
            complain!("hookonce demo: {problem}");
        }
        for error in &books.counted.errors {
            complain!("{error}");
        }
    }
    Ok(if balanced { YES } else { NO })
}

async fn play(args: &DemoArgs) -> Result<Books, WrongCall> {
    let (ended, ending) = watch::channel(false);
    let service_delay = if args.kill { KILL_SERVICE_DELAY } else { Duration::ZERO };
    let (services, services_url) = Services::start(service_delay, ending).await?;
    let (lines, written) = mpsc::unbounded_channel();
    let counting = tokio::spawn(count(written));
    let stack = Stack::start(options(args, &services_url)?, lines).await?;
    progress(
        args,
        &format!("receiver, worker, sweeper, DynamoDB and SQS run at {}", stack.receiver_url),
    );

    let started = Instant::now();
    let killer = args.kill.then(|| tokio::spawn(kill(Arc::clone(&stack.worker))));
    let delivered = deliver_all(args, &stack.receiver_url).await?;
    let kills = wait_until_settled(args, &stack, killer).await?;
    let elapsed = started.elapsed();

    let (open, parked) = stack.backlog().await?;
    let accounts = stack.accounts().await?;
    stack.stop().await;
    let _ = ended.send(true);
    let counted = counting.await?;
    Ok(Books {
        deliveries: args.deliveries.into(),
        delivered,
        counted,
        accounts,
        receipt: services.count("receipt"),
        shipment: services.count("shipment"),
        kills,
        open,
        parked,
        elapsed,
    })
}

fn options(args: &DemoArgs, services_url: &str) -> Result<StackOptions, WrongCall> {
    let config = json!({
        "clock_skew": "250ms",
        "sources": {
            "stripe": {
                "provider": "stripe",
                "secrets": [format!("literal:{DEMO_SECRET}")],
                "backoff": { "first": "1s", "longest": "2s" },
                "attempts": 50,
                "deliver": { "handler": "payments" }
            }
        }
    });
    let environment = [("PAYMENTS_RECEIPT_URL", "receipt"), ("PAYMENTS_SHIPMENT_URL", "shipment")];
    Ok(StackOptions {
        program: Functions::Hookonce(own_program()?),
        config: config.to_string(),
        data: None,
        clock: Clock::default(),
        port: 0,
        dynamodb_port: 0,
        sqs_port: 0,
        receivers: if args.deliveries > 16 { 6 } else { 3 },
        workers: 2,
        worker_timeout: WORKER_TIMEOUT,
        sweep_every: Duration::from_secs(2),
        environment: environment
            .map(|(name, service)| (name.to_owned(), format!("{services_url}/{service}")))
            .into(),
    })
}

/// Delivery `i` carries event `i` modulo the number of events, so duplicates are in flight at once.
async fn deliver_all(args: &DemoArgs, receiver: &str) -> Result<Delivered, WrongCall> {
    let provider = Provider::builtin("stripe")
        .ok_or_else(|| WrongCall("stripe is not in the catalogue".to_owned()))?;
    let key: Key = provider.key(&Secret::new(DEMO_SECRET))?;
    let url = Url::parse(&format!("{receiver}/webhooks/stripe"))?;
    let client = client(&url)?;
    let now = Clock::default().now();
    let events = (0..args.events)
        .map(|_| {
            let id = fresh_id(&provider);
            unsigned_event(&provider, Some("payment_intent.succeeded"), &id, now)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let parallel = args.parallel.map_or_else(|| args.deliveries.min(64) as usize, usize::from);
    // Copies of one event stand next to each other, so that they meet.
    let answers: Vec<_> = stream::iter(0..args.deliveries as usize)
        .map(|i| {
            let event = &events[i * events.len() / args.deliveries as usize];
            let signed = sign(&provider, &key, event, None, false);
            let (client, url) = (&client, &url);
            async move { Ok::<_, WrongCall>(deliver(client, url, signed?).await) }
        })
        .buffer_unordered(parallel)
        .collect()
        .await;
    let mut delivered = Delivered::default();
    for answer in answers {
        let (status, took) = answer?;
        match status {
            Ok(200..300) => delivered.acknowledged += 1,
            Ok(status) => delivered.refusal = Some(format!("a delivery was answered {status}")),
            Err(problem) => delivered.refusal = Some(problem),
        }
        delivered.latencies.push(took.as_secs_f64() * 1000.0);
    }
    delivered.latencies.sort_by(f64::total_cmp);
    Ok(delivered)
}

/// Until nothing is open any more, or patience ends. Gives the number of kills.
async fn wait_until_settled(
    args: &DemoArgs,
    stack: &Stack,
    killer: Option<JoinHandle<u64>>,
) -> Result<u64, WrongCall> {
    let kills = match killer {
        None => 0,
        Some(killer) => killer.await?,
    };
    let patience = SETTLE_PATIENCE + Duration::from_millis(50) * args.deliveries;
    let started = Instant::now();
    while started.elapsed() < patience {
        let (open, _) = stack.backlog().await?;
        if open == 0 {
            break;
        }
        progress(args, &format!("{open} events open"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(kills)
}

/// Kills a process of the worker again and again, each time in the middle of its work. Gives how
/// often that was.
async fn kill(worker: Arc<Function>) -> u64 {
    let mut kills = 0;
    let started = Instant::now();
    while kills < KILLS && started.elapsed() < KILL_PATIENCE {
        tokio::time::sleep(KILL_EVERY).await;
        kills += u64::from(worker.kill_busy());
    }
    kills
}

/// Counts what the functions' lines say.
async fn count(mut lines: mpsc::UnboundedReceiver<String>) -> Counted {
    let mut counted = Counted::default();
    while let Some(line) = lines.recv().await {
        let Ok(parsed) = serde_json::from_str::<Value>(&line) else {
            counted.note(line);
            continue;
        };
        let total = parsed.get("webhook_events_total").and_then(Value::as_u64).unwrap_or(0);
        match parsed.get("result").and_then(Value::as_str) {
            Some("new") => counted.new += total,
            Some("duplicate") => counted.duplicates += total,
            Some(_) | None => {}
        }
        if parsed.get("error").is_some() {
            counted.note(line);
        }
    }
    counted
}

impl Counted {
    fn note(&mut self, line: String) {
        if self.errors.len() == MAX_NOTES {
            self.errors.remove(0);
        }
        self.errors.push(line);
    }
}

impl Books {
    fn balance(&self, args: &DemoArgs) -> bool {
        let events = u64::from(args.events);
        // A kill that met nobody at work shows nothing.
        (!args.kill || self.kills > 0)
            && self.delivered.acknowledged == self.deliveries
            && self.counted.new == events
            && self.counted.duplicates == self.deliveries - events
            && self.accounts.credits == events
            && self.receipt.effects == events
            && self.shipment.effects == events
            && self.open == 0
            && self.parked == 0
    }

    fn report(&self) -> Report {
        Report {
            deliveries: self.deliveries,
            acknowledged: self.delivered.acknowledged,
            new: self.counted.new,
            duplicates: self.counted.duplicates,
            effects: Effects {
                credit: self.accounts.credits,
                receipt: self.receipt.effects,
                shipment: self.shipment.effects,
            },
        }
    }

    fn print(&self, args: &DemoArgs, balanced: bool) {
        let row = |label: &str, figure: u64, note: String| say!("  {label:<14}{figure:>7}{note}");
        say!("{} signed Stripe deliveries of {} event(s):", self.deliveries, args.events);
        row("acknowledged", self.delivered.acknowledged, self.latency());
        row("new", self.counted.new, String::new());
        row("duplicates", self.counted.duplicates, String::new());
        say!("effects:");
        row("credit", self.accounts.credits, "   in one transaction with the record".to_owned());
        row("receipt", self.receipt.effects, calls(self.receipt));
        row("shipment", self.shipment.effects, calls(self.shipment));
        if args.kill {
            row("worker kills", self.kills, "   SIGKILL, midway".to_owned());
        }
        if self.open + self.parked > 0 {
            say!("  left over: {} open, {} parked", self.open, self.parked);
        }
        let verdict = if balanced { "once each" } else { "NOT once each" };
        say!("{verdict}, after {:.1} s", self.elapsed.as_secs_f64());
    }

    fn latency(&self) -> String {
        let at = |share| percentile(&self.delivered.latencies, share);
        format!("   p50 {:.1} ms, p99 {:.1} ms", at(0.5), at(0.99))
    }
}

fn calls(count: Count) -> String {
    format!("   {} call(s), each event's under one key", count.calls)
}

/// Progress, for a person who watches.
fn progress(args: &DemoArgs, what: &str) {
    if !args.json && stderr().is_terminal() {
        let _ = writeln!(stderr(), "… {what}");
    }
}

const DEMO_SECRET: &str = "whsec_hookonce_demo";
/// Long enough for an attempt, short enough that a killed worker's lease ends while one watches.
const WORKER_TIMEOUT: Duration = Duration::from_secs(4);
const KILL_SERVICE_DELAY: Duration = Duration::from_millis(120);
const KILL_EVERY: Duration = Duration::from_millis(170);
const KILLS: u64 = 4;
/// Until no work is left to be killed in.
const KILL_PATIENCE: Duration = Duration::from_secs(30);
const SETTLE_PATIENCE: Duration = Duration::from_secs(120);
const MAX_NOTES: usize = 20;
