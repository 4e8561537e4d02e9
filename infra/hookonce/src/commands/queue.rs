//! `hookonce queue`: the queue between receiver and worker, and what it gave up on.

use clap::{Args, Subcommand};
use runtime::{
    clock::Clock,
    environment::{names, optional},
};
use serde_json::{Value, json};
use sqs::Queue;

use super::{NO, Outcome, WrongCall, YES, events::Place};
use crate::operate::{
    connect,
    dead_letters::{
        About, DeadLetter, Depth, Fate, Peeked, dead_letter_queue, depth, give_back, peek, redrive,
    },
    moment, plain,
};

/// Look at the queue and at its dead-letter queue, and put back what belongs there.
///
/// Exit codes: 0 for yes, 1 for no, 2 if the call makes no sense, or the endpoint cannot be asked.
#[derive(Args, Debug)]
pub struct QueueArgs {
    /// The queue between receiver and worker; without, HOOKONCE_QUEUE_URL. One that begins with
    /// http:// is an emulator's, asked without credentials
    #[arg(long, global = true, value_name = "URL")]
    queue_url: Option<String>,
    /// The dead-letter queue; without, the one that the queue's redrive policy names
    #[arg(long, global = true, value_name = "URL")]
    dead_letter_url: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Report as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show how deep both queues are; yes if nothing lies in the dead-letter queue
    ///
    /// The age of the oldest message SQS has as a metric only (ApproximateAgeOfOldestMessage in
    /// CloudWatch, which is not asked here); it is shown where an endpoint says it. The ledger's
    /// oldest open event says more: `hookonce events list --limit 1`.
    Status,
    /// Explain what lies in the dead-letter queue, and leave it there
    ///
    /// Looking counts as a receive of each message, and hides it from others until it is given
    /// back at the end; for two minutes should this be killed.
    DeadLetters(Letters),
    /// Put back what lies in the dead-letter queue and belongs to an open event
    ///
    /// Only shown, until --yes. An open event is enqueued as a sweep does it, and its message
    /// deleted here. The message of a done or discarded event is deleted: it has nothing left to
    /// do. That of a parked event stays: replay the event. What has no record, or is not
    /// hookonce's, stays as well, unless --discard-unreadable. So does, always, that of an event
    /// whose record cannot be read.
    Redrive(RedriveArgs),
}

#[derive(Args, Debug)]
struct Letters {
    /// Most messages to look at
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

#[derive(Args, Debug)]
struct RedriveArgs {
    #[command(flatten)]
    letters: Letters,
    /// Delete what nobody can make anything of: messages that are not hookonce's, and those
    /// without a record. Look at them first: with another --table, none has a record
    #[arg(long)]
    discard_unreadable: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
///
/// # Errors
/// If the call makes no sense, or the endpoint cannot be asked.
pub async fn run(args: QueueArgs) -> Outcome {
    let url = args.queue_url.clone().or_else(|| optional(names::QUEUE_URL));
    let url = url.ok_or_else(|| {
        WrongCall(format!(
            "no queue: give --queue-url, or set {}; it is the output QueueUrl of the stack on AWS, \
             and queue_url in the first line of `hookonce dev`",
            names::QUEUE_URL
        ))
    })?;
    let queue = connect::queue(&url).await?;
    let dead = match &args.dead_letter_url {
        Some(url) => connect::queue(url).await?,
        None => dead_letter_queue(&queue).await?,
    };
    match &args.what {
        What::Status => status(&queue, &dead, args.json).await,
        What::DeadLetters(letters) => dead_letters(&dead, &args, letters.limit.into()).await,
        What::Redrive(redrive) => redrive_all(&queue, &dead, &args, redrive).await,
    }
}

// ---- status ---------------------------------------------------------------------------------

async fn status(queue: &Queue, dead: &Queue, json: bool) -> Outcome {
    let (depth, dead_depth) = (depth(queue).await?, self::depth(dead).await?);
    if json {
        say!("{}", json!({ "queue": depth_json(&depth), "dead_letters": depth_json(&dead_depth) }));
    } else {
        print_depth("queue", &depth);
        print_depth("dead letters", &dead_depth);
    }
    let empty = dead_depth.visible == Some(0) && dead_depth.in_flight == Some(0);
    Ok(if empty { YES } else { NO })
}

fn depth_json(depth: &Depth) -> Value {
    let Depth { visible, in_flight, delayed, oldest_s } = depth;
    json!({ "visible": visible, "in_flight": in_flight, "delayed": delayed, "oldest_s": oldest_s })
}

fn print_depth(name: &str, depth: &Depth) {
    let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    let oldest = depth.oldest_s.map(|age| format!(", the oldest {age} s old")).unwrap_or_default();
    say!(
        "{name:<13} {} waiting, {} in flight, {} delayed{oldest}",
        number(depth.visible),
        number(depth.in_flight),
        number(depth.delayed)
    );
}

// ---- dead letters ---------------------------------------------------------------------------

async fn dead_letters(dead: &Queue, args: &QueueArgs, most: usize) -> Outcome {
    let peeked = peek(dead, &args.place.ledger().await?, most).await?;
    give_back(dead, peeked.letters.iter().map(|letter| &letter.letter)).await;
    for letter in &peeked.letters {
        print_letter(letter, letter.about.fate(false), false, args.json);
    }
    summary(&peeked, args.json);
    Ok(YES)
}

fn print_letter(letter: &DeadLetter, fate: Fate, done: bool, json: bool) {
    let key = letter.about.key().map(ToString::to_string);
    let explained = letter.about.explained();
    let DeadLetter { letter, about } = letter;
    if json {
        say!(
            "{}",
            json!({
                "message_id": letter.id,
                "key": key,
                "sent_at": letter.sent_at.map(moment),
                "receives": letter.receives,
                "explained": explained,
                "redrive": word(fate),
                "done": done,
            })
        );
        return;
    }
    let sent = letter.sent_at.map(moment).unwrap_or_default();
    say!("{}  sent {sent}, received {} times", letter.id, letter.receives);
    say!("  {}", plain(&key.map_or(explained.clone(), |key| format!("{key}: {explained}"))));
    say!("  {}", if done { did(fate) } else { advice(fate, about) });
}

const fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Enqueue => "enqueue",
        Fate::Delete => "delete",
        Fate::Discard => "discard",
        Fate::Parked => "parked",
        Fate::Stay => "stay",
    }
}

fn advice(fate: Fate, about: &About) -> &'static str {
    match fate {
        Fate::Enqueue => "a redrive enqueues its event again",
        Fate::Delete => "a redrive deletes it",
        Fate::Discard => "a redrive deletes it, as --discard-unreadable says",
        Fate::Parked => "a redrive leaves it; hookonce events replay runs its event again",
        Fate::Stay if about.fate(true) == Fate::Discard => {
            "a redrive leaves it, unless --discard-unreadable"
        }
        Fate::Stay => "a redrive leaves it: its event may be open, and its record is to be mended",
    }
}

const fn did(fate: Fate) -> &'static str {
    match fate {
        Fate::Enqueue => "enqueued",
        Fate::Delete | Fate::Discard => "deleted",
        Fate::Parked => "left: its event is to be replayed",
        Fate::Stay => "left",
    }
}

fn summary(peeked: &Peeked, json: bool) {
    let count = peeked.letters.len();
    if json {
        say!("{}", json!({ "messages": count, "more": peeked.more }));
    } else if peeked.more {
        say!("{count} message(s); there may be more: --limit");
    } else {
        say!("{count} message(s); that is all that can be seen");
    }
}

// ---- redrive --------------------------------------------------------------------------------

async fn redrive_all(queue: &Queue, dead: &Queue, args: &QueueArgs, how: &RedriveArgs) -> Outcome {
    let ledger = args.place.ledger().await?;
    let peeked = peek(dead, &ledger, how.letters.limit.into()).await?;
    let mut staying = Vec::new();
    let mut failed = false;
    for letter in &peeked.letters {
        let fate = letter.about.fate(how.discard_unreadable);
        if !how.yes {
            print_letter(letter, fate, false, args.json);
            staying.push(&letter.letter);
            continue;
        }
        let now = Clock::from_environment().now();
        match redrive(dead, queue, &ledger, letter, how.discard_unreadable, now).await {
            Ok(did) => {
                print_letter(letter, did, true, args.json);
                let stays = matches!(did, Fate::Parked | Fate::Stay);
                staying.extend(stays.then_some(&letter.letter));
            }
            Err(error) => {
                complain!("hookonce: {}: {error}", letter.letter.id);
                staying.push(&letter.letter);
                failed = true;
            }
        }
    }
    give_back(dead, staying.into_iter()).await;
    summary(&peeked, args.json);
    if !how.yes && !peeked.letters.is_empty() && !args.json {
        say!("nothing was changed; --yes does it");
    }
    Ok(if failed { NO } else { YES })
}
