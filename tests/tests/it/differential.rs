//! A guard has two readers: DynamoDB, by the expression that `dynamo` makes of it, and the ledger
//! in memory that the model checker explores. Here both carry out the same random writes and must
//! agree on every outcome and every record: what is checked is what runs.
//!
//! Values are few and stand next to the bounds that guards compare with, so that equal numbers,
//! absent attributes and those of another type are the rule, not the exception.
//! `HOOKONCE_DIFFERENTIAL_CASES` sets the number of cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use domain::{
    backoff::Backoff,
    effects::{StepEntry, StepName, StepState},
    event::{Event, EventId, EventKey},
    guard::{Comparison, Guard},
    item::{Attribute, Item, Value},
    limits,
    record::{ClaimId, ErrorNote, LeaseOwner, Record, StoredPayload},
    retention::{Retention, RetryWindows},
    time::Timestamp,
    transition::{
        Claim, Leased, Operator, Policy, claim, defer, discard, lease, note_mismatch,
        park_exhausted, replay, requeue, unstick,
    },
    write::{Both, Change, Edit, GuardedWrite, Written},
};
use dynamo::{Ledger, Returning};
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use tests::{
    ledger::SimulatedLedger,
    world::{World, stripe_key},
};

#[test]
fn both_readers_of_a_guard_agree_on_every_write() {
    let threads = tokio::runtime::Runtime::new().expect("a runtime");
    let world = threads.block_on(World::start());
    let seen = std::cell::RefCell::new(Seen::default());
    let cases = cases();
    // A record at a time: shrinking replays a case under a key of its own.
    let keys = std::cell::Cell::new(0_u64);
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    let script = (proptest::option::weighted(0.9, claim_operation()), operations())
        .prop_map(|(claim, operations)| claim.into_iter().chain(operations).collect::<Vec<_>>());
    let ran = runner.run(&script, |script| {
        keys.set(keys.get() + 1);
        let key = stripe_key(&format!("evt_{}", keys.get()));
        threads.block_on(compare(&world.ledger, &key, &script, &seen))
    });
    let seen = seen.into_inner();
    println!("{cases} cases run: {seen:?}");
    ran.expect("both readers agree");
    // Agreement over nothing would be agreement too.
    assert!(seen.applied > u64::from(cases) / 2, "{seen:?}");
    assert!(seen.refused > u64::from(cases) / 2, "{seen:?}");
    assert!(seen.refused_absent > 0, "{seen:?}");
    let all = [
        "Claim",
        "Discard",
        "Fenced",
        "Lease",
        "ParkExhausted",
        "Raw",
        "Replay",
        "Requeue",
        "Unstick",
    ];
    let missing: Vec<_> =
        all.into_iter().filter(|kind| !seen.took_hold.contains_key(kind)).collect();
    assert!(missing.is_empty() || cases < 200, "never took hold: {missing:?}");
}

/// Claims under a few ids of events that say the one or the other: both readers agree on which of
/// two writes at once was in the way, and on what is left.
#[test]
fn both_readers_agree_on_two_writes_at_once() {
    let threads = tokio::runtime::Runtime::new().expect("a runtime");
    let world = threads.block_on(World::start());
    let (cases, runs) = (cases() / 5, std::cell::Cell::new(0_u64));
    let seen = std::cell::RefCell::new(BTreeMap::<&str, u64>::new());
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    let script = proptest::collection::vec((0_u8..3, 0_u8..2, any::<bool>()), 2..8);
    let ran = runner.run(&script, |script| {
        runs.set(runs.get() + 1);
        let mut simulated = SimulatedLedger::default();
        for (number, (id, says, alone)) in script.into_iter().enumerate() {
            let key = stripe_key(&format!("evt_{}_{id}", runs.get()));
            let says = EventId::new(format!("{}_{says}", runs.get())).expect("valid");
            let claim = claimed_as(&key, 0, false, number);
            let claim = claim.with_fingerprint(says, NOW, &policy(false));
            let fingerprint = claim.fingerprint.as_ref().expect("there is one");
            if alone {
                let real = threads.block_on(world.ledger.write(&claim.write, Returning::Nothing));
                prop_assert!(real.expect("known") == simulated.write(&claim.write));
                continue;
            }
            let real = threads.block_on(world.ledger.write_both(&claim.write, fingerprint));
            let (real, expected) =
                (real.expect("known"), simulated.write_both(&claim.write, fingerprint));
            prop_assert!(real == expected, "{real:?}, simulated {expected:?}");
            let kind = match &real {
                Both::First(Written::Applied(_)) => "applied",
                Both::First(Written::Refused(_)) => "first refused",
                Both::SecondRefused(_) => "second refused",
            };
            *seen.borrow_mut().entry(kind).or_default() += 1;
            for key in [&claim.write.key, &fingerprint.key] {
                let stored = threads.block_on(world.ledger.read(key)).expect("a read");
                prop_assert_eq!(stored.as_ref(), simulated.get(key));
            }
        }
        Ok(())
    });
    println!("{cases} cases run: {seen:?}");
    ran.expect("both readers agree");
    assert_eq!(seen.borrow().len(), 3, "{seen:?}");
}

#[expect(clippy::disallowed_methods, reason = "how thorough a test is, is its caller's")]
fn cases() -> u32 {
    let wanted = std::env::var("HOOKONCE_DIFFERENTIAL_CASES").ok();
    wanted.map_or(1000, |cases| cases.parse().expect("a number of cases"))
}

/// What the cases came across.
#[derive(Debug, Default)]
struct Seen {
    applied: u64,
    refused: u64,
    refused_absent: u64,
    does_not_fit: u64,
    took_hold: BTreeMap<&'static str, u64>,
}

/// One thing done to the record.
#[derive(Clone, Debug)]
enum Operation {
    /// What no transition does: attributes set or taken away.
    Damage(Vec<(Attribute, Option<Value>)>),
    Claim {
        id: u8,
        old: bool,
    },
    Mismatch,
    Lease {
        owner: u8,
        now: i64,
        opening: bool,
    },
    Fenced {
        fence: u32,
        owner: u8,
        end: End,
    },
    Requeue {
        stale: bool,
        now: i64,
    },
    Defer {
        until: i64,
    },
    ParkExhausted {
        stale: bool,
    },
    Replay {
        stale: bool,
        forget: bool,
    },
    Discard {
        stale: bool,
    },
    Unstick {
        stale: bool,
    },
    /// Any guard over any attribute.
    Raw {
        guard: Guard,
        edits: Vec<Drawn>,
    },
}

/// An edit, to be shown: those of production keep payloads out of what is.
#[derive(Clone)]
struct Drawn(Edit);

impl fmt::Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Edit::Set(attribute, value) => write!(f, "{attribute:?} = {value:?}"),
            Edit::Remove(attribute) => write!(f, "no {attribute:?}"),
            Edit::Increment(attribute, by) => write!(f, "{attribute:?} + {by}"),
            Edit::Append(attribute, value) => write!(f, "{attribute:?}, {value:?}"),
            Edit::SetStep(step, value) => write!(f, "{step} = {value:?}"),
            Edit::SetStepIfAbsent(step, value) => write!(f, "{step} = {value:?} if absent"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Journal,
    Complete { drop_payload: bool },
    Release { long: bool },
    Park,
}

async fn compare(
    ledger: &Ledger,
    key: &EventKey,
    script: &[Operation],
    seen: &std::cell::RefCell<Seen>,
) -> Result<(), TestCaseError> {
    let mut simulated = SimulatedLedger::default();
    let mut stale = None;
    for operation in script {
        let current = simulated.get(key).cloned();
        let Some(write) = write_of(operation, key, current.as_ref(), stale.as_ref()) else {
            continue;
        };
        stale = current.clone();
        let real = ledger.write(&write, Returning::Record).await;
        let Ok(real) = real else {
            // An edit that does not fit its attribute: refused whole, and so never a decision.
            let fits = current.as_ref().is_some_and(|item| fits(&write, item));
            prop_assert!(!fits, "{operation:?} on {current:?}: {:?}", real.err());
            prop_assert_eq!(ledger.read(key).await.expect("a read"), current);
            seen.borrow_mut().does_not_fit += 1;
            continue;
        };
        let expected = simulated.write(&write);
        prop_assert!(
            real == expected,
            "{operation:?}\non {current:?}\nguard {:?}\nDynamoDB {}\nsimulated {}",
            write.guard,
            show(&real),
            show(&expected)
        );
        note(&mut seen.borrow_mut(), operation, &real);
    }
    let stored = ledger.read(key).await.expect("a read");
    prop_assert_eq!(stored.as_ref(), simulated.get(key));
    Ok(())
}

fn note(seen: &mut Seen, operation: &Operation, written: &Written) {
    match written {
        Written::Applied(_) => {
            seen.applied += 1;
            let kind = match operation {
                Operation::Damage(_) => "Damage",
                Operation::Claim { .. } => "Claim",
                Operation::Mismatch => "Mismatch",
                Operation::Lease { .. } => "Lease",
                Operation::Fenced { .. } => "Fenced",
                Operation::Requeue { .. } => "Requeue",
                Operation::Defer { .. } => "Defer",
                Operation::ParkExhausted { .. } => "ParkExhausted",
                Operation::Replay { .. } => "Replay",
                Operation::Discard { .. } => "Discard",
                Operation::Unstick { .. } => "Unstick",
                Operation::Raw { .. } => "Raw",
            };
            *seen.took_hold.entry(kind).or_default() += 1;
        }
        Written::Refused(Some(_)) => seen.refused += 1,
        Written::Refused(None) => seen.refused_absent += 1,
    }
}

/// `Written` keeps payloads out of its own.
fn show(written: &Written) -> String {
    match written {
        Written::Applied(item) => format!("applied {item:?}"),
        Written::Refused(item) => format!("refused {item:?}"),
    }
}

/// Whether each edit finds an attribute of its type.
fn fits(write: &GuardedWrite, item: &Item) -> bool {
    let Change::Update(edits) = &write.change else { return true };
    edits.iter().all(|edit| match edit {
        Edit::Set(..) | Edit::Remove(_) => true,
        Edit::Increment(attribute, _) => {
            matches!(item.get(attribute), None | Some(Value::Number(_)))
        }
        Edit::Append(attribute, _) => matches!(item.get(attribute), None | Some(Value::List(_))),
        Edit::SetStep(..) | Edit::SetStepIfAbsent(..) => {
            matches!(item.get(&Attribute::Steps), Some(Value::Map(_)))
        }
    })
}

/// The write of an operation; `None` where the domain would not make one.
fn write_of(
    operation: &Operation,
    key: &EventKey,
    current: Option<&Item>,
    stale: Option<&Item>,
) -> Option<GuardedWrite> {
    let who = Operator { name: "ada", reason: "why" };
    let record = |use_stale: bool| {
        let item = if use_stale { stale.or(current) } else { current };
        Record::from_item(item?.clone()).ok()
    };
    match operation {
        Operation::Damage(damage) => Some(damaged(key, current?, damage)),
        Operation::Claim { id, old } => Some(claimed(key, *id, *old)),
        Operation::Mismatch => Some(note_mismatch(key, b"other")),
        Operation::Lease { owner, now, opening } => {
            let entry = started(*owner);
            let step = StepName::new("mail").expect("valid");
            let opening = opening.then_some((&step, &entry));
            let (now, until) = (at(*now), at(*now + 1000));
            Some(lease(key, owner_of(*owner), now, until, SKEW, opening).write)
        }
        Operation::Fenced { fence, owner, end } => fenced(key, *fence, *owner, *end),
        Operation::Requeue { stale, now } => Some(requeue(&record(*stale)?, at(*now))?.write),
        Operation::Defer { until } => Some(defer(&record(false)?, at(*until))?.write),
        Operation::ParkExhausted { stale } => Some(park_exhausted(&record(*stale)?, NOW)),
        Operation::Replay { stale, forget } => {
            replay(&record(*stale)?, &who, NOW, &policy(false), *forget).ok()
        }
        Operation::Discard { stale } => discard(&record(*stale)?, &who, NOW, &policy(false)).ok(),
        Operation::Unstick { stale } => unstick(&record(*stale)?, &who, NOW).ok(),
        Operation::Raw { guard, edits } => Some(GuardedWrite {
            key: key.clone(),
            guard: guard.clone(),
            change: Change::Update(edits.iter().map(|drawn| drawn.0.clone()).collect()),
        }),
    }
}

/// Puts the damaged record in the place of the other, whatever that is.
fn damaged(key: &EventKey, item: &Item, damage: &[(Attribute, Option<Value>)]) -> GuardedWrite {
    let mut item = item.clone();
    for (attribute, value) in damage {
        match value {
            Some(value) => drop(item.insert(*attribute, value.clone())),
            None => drop(item.remove(attribute)),
        }
    }
    let guard = Guard::Present(Attribute::Pk);
    GuardedWrite { key: key.clone(), guard, change: Change::Put(item) }
}

fn claimed(key: &EventKey, id: u8, old: bool) -> GuardedWrite {
    claimed_as(key, id, old, id.into()).write
}

fn claimed_as(key: &EventKey, id: u8, old: bool, claim_id: usize) -> Claim {
    let event = Event {
        key: key.clone(),
        provider: "stripe".into(),
        event_type: (id > 0).then(|| "charge.refunded".into()),
        object_id: None,
        occurred_at: Some(if old { Timestamp::from_secs(0) } else { NOW }),
        coalesces_until: None,
        payload: b"{}".to_vec(),
        content_type: None,
        headers: vec![("x-kept".into(), String::new())],
    };
    let payload = StoredPayload { codec: "none".into(), bytes: vec![id; id.into()] };
    claim(&event, payload, ClaimId(format!("claim-{claim_id}")), NOW, &policy(false))
}

/// A write under a lease of this fence and owner, whether the record knows of it or not.
fn fenced(key: &EventKey, fence: u32, owner: u8, end: End) -> Option<GuardedWrite> {
    let mut item = match claimed(key, 0, false).change {
        Change::Put(item) => item,
        Change::Update(_) => return None,
    };
    item.extend([
        (Attribute::State, "processing".into()),
        (Attribute::Attempt, fence.into()),
        (Attribute::LeaseOwner, owner_of(owner).0.into()),
        (Attribute::LeaseUntil, NOW.millis().into()),
    ]);
    let take = lease(key, owner_of(owner), NOW, NOW, SKEW, None);
    let Ok(Leased::Held(lease, _)) = take.settle(Written::Applied(Some(item))) else {
        return None;
    };
    let error = ErrorNote::new("x", "", NOW);
    let entries = [(StepName::new("mail").expect("valid"), started(owner))];
    let wait = |long| if long { limits::MAX_KEPT_DELAY * 2 } else { Duration::ZERO };
    Some(match end {
        End::Journal => lease.journal(&entries).write,
        End::Complete { drop_payload } => {
            lease.complete(&entries, NOW, &policy(drop_payload)).write
        }
        End::Release { long } => lease.release(wait(long), &error, &[], NOW).write,
        End::Park => lease.park(&error, &entries, NOW).write,
    })
}

fn policy(drop_payload_when_done: bool) -> Policy {
    let windows = RetryWindows { automatic: Some(Duration::ZERO), manual: Some(Duration::ZERO) };
    Policy {
        retention: Retention::new(None, &windows).expect("valid"),
        attempt_limit: 2,
        backoff: Backoff::default(),
        drop_payload_when_done,
    }
}

fn started(owner: u8) -> StepEntry {
    StepEntry { state: StepState::Started, key: "k".into(), owner: owner_of(owner), at: NOW }
}

fn owner_of(number: u8) -> LeaseOwner {
    LeaseOwner(format!("owner-{number}"))
}

/// A moment by its distance from the one around which all happens, ms.
fn at(distance: i64) -> Timestamp {
    Timestamp::from_millis(NOW.millis() + distance)
}

// ---- what is drawn --------------------------------------------------------------------------

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 3..9)
}

fn claim_operation() -> impl Strategy<Value = Operation> {
    let old = proptest::bool::weighted(0.1);
    (0_u8..2, old).prop_map(|(id, old)| Operation::Claim { id, old })
}

fn operation() -> impl Strategy<Value = Operation> {
    // One owner and one fence more often than others, so that what a lease allows is met.
    let owner = select(vec![0_u8, 0, 0, 1]);
    let fence = select(vec![1_u32, 1, 1, 1, 2, 2, 3, 0]);
    let near = || select(NEAR.to_vec());
    let end = prop_oneof![
        2 => Just(End::Journal),
        2 => any::<bool>().prop_map(|drop_payload| End::Complete { drop_payload }),
        3 => any::<bool>().prop_map(|long| End::Release { long }),
        2 => Just(End::Park),
    ];
    let damage = proptest::collection::vec(damage(), 1..4);
    let edits = proptest::collection::vec(edit(), 1..4).prop_map(without_repeats);
    let worked = prop_oneof![
        1 => claim_operation(),
        3 => (owner.clone(), near(), any::<bool>())
            .prop_map(|(owner, now, opening)| Operation::Lease { owner, now, opening }),
        3 => (fence, owner, end)
            .prop_map(|(fence, owner, end)| Operation::Fenced { fence, owner, end }),
    ];
    let looked_after = prop_oneof![
        1 => Just(Operation::Mismatch),
        2 => (any::<bool>(), near()).prop_map(|(stale, now)| Operation::Requeue { stale, now }),
        1 => near().prop_map(|until| Operation::Defer { until }),
        2 => any::<bool>().prop_map(|stale| Operation::ParkExhausted { stale }),
        3 => (any::<bool>(), any::<bool>())
            .prop_map(|(stale, forget)| Operation::Replay { stale, forget }),
        3 => any::<bool>().prop_map(|stale| Operation::Discard { stale }),
        2 => any::<bool>().prop_map(|stale| Operation::Unstick { stale }),
    ];
    prop_oneof![
        6 => worked,
        3 => looked_after,
        1 => damage.prop_map(Operation::Damage),
        2 => (guard(), edits).prop_map(|(guard, edits)| Operation::Raw { guard, edits }),
    ]
}

/// DynamoDB refuses an index key of another type, and a record by another key is another record:
/// these three stay well-formed.
fn damage() -> impl Strategy<Value = (Attribute, Option<Value>)> {
    attribute().prop_flat_map(|attribute| {
        let value = if attribute == Attribute::Pk {
            return Just((Attribute::NotBefore, None)).boxed();
        } else if attribute == Attribute::QueueKey {
            Just(Value::from("open#0")).boxed()
        } else if attribute == Attribute::DueAt {
            number().prop_map(Value::Number).boxed()
        } else if attribute == Attribute::State {
            select(STATES.to_vec()).prop_map(Value::from).boxed()
        } else {
            value().boxed()
        };
        proptest::option::weighted(0.8, value).prop_map(move |value| (attribute, value)).boxed()
    })
}

fn edit() -> impl Strategy<Value = Drawn> {
    let step = || select(vec!["mail".to_owned(), "charge".to_owned(), "a-b_c".to_owned()]);
    prop_oneof![
        3 => damage().prop_map(|(attribute, value)| Drawn(match value {
            Some(value) => Edit::Set(attribute, value),
            None => Edit::Remove(attribute),
        })),
        2 => (select(vec![Attribute::Attempt, Attribute::Requeues]), -1_i64..3)
            .prop_map(|(attribute, by)| Drawn(Edit::Increment(attribute, by))),
        1 => value().prop_map(|value| Drawn(Edit::Append(Attribute::Replays, value))),
        1 => (step(), value()).prop_map(|(step, value)| Drawn(Edit::SetStep(step, value))),
        1 => (step(), value()).prop_map(|(step, value)| Drawn(Edit::SetStepIfAbsent(step, value))),
    ]
}

/// DynamoDB takes one edit of each path in an expression.
fn without_repeats(edits: Vec<Drawn>) -> Vec<Drawn> {
    let mut touched = BTreeSet::new();
    edits.into_iter().filter(|drawn| touched.insert(drawn.0.attribute())).collect()
}

fn guard() -> impl Strategy<Value = Guard> {
    let leaf = prop_oneof![
        1 => attribute().prop_map(Guard::Present),
        1 => attribute().prop_map(Guard::Missing),
        4 => (attribute(), comparison(), scalar())
            .prop_map(|(attribute, how, value)| Guard::Compare(attribute, how, value)),
        1 => (attribute(), value())
            .prop_map(|(attribute, value)| Guard::Compare(attribute, Comparison::Equal, value)),
        // An expression that compares an attribute with itself is none.
        2 => (attribute(), comparison(), attribute())
            .prop_filter("two attributes", |(one, _, two)| one != two)
            .prop_map(|(one, how, two)| Guard::CompareAttributes(one, how, two)),
    ];
    // Two at least: around one alone the parentheses would be redundant, and DynamoDB refuses those.
    leaf.prop_recursive(3, 12, 3, |inner| {
        let guards = || proptest::collection::vec(inner.clone(), 2..4);
        prop_oneof![guards().prop_map(Guard::All), guards().prop_map(Guard::Any)]
    })
}

/// Those that guards are about, more often than others.
fn attribute() -> impl Strategy<Value = Attribute> {
    let guarded = vec![
        Attribute::State,
        Attribute::Attempt,
        Attribute::AttemptLimit,
        Attribute::LeaseOwner,
        Attribute::LeaseUntil,
        Attribute::NotBefore,
        Attribute::DueAt,
    ];
    prop_oneof![3 => select(guarded), 1 => select(Attribute::ALL.to_vec())]
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::{AtLeast, AtMost, Equal, Less};
    select(vec![Equal, Less, AtMost, AtLeast])
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0_i64..4,
        4 => select(NEAR.to_vec()).prop_map(|distance| at(distance).millis()),
        // Beyond what a double holds exactly, and with another count of digits or another sign.
        1 => select(vec![i64::MIN, i64::MAX, i64::MAX - 1, (1 << 53) + 1, 1 << 53, -1, 9, 10]),
    ]
}

fn scalar() -> impl Strategy<Value = Value> {
    let words = ["owner-0", "owner-1", "1", "10", "9", "", "Z", "a", "ä", "\u{ffee}", "𐐷"];
    prop_oneof![
        5 => number().prop_map(Value::Number),
        2 => select(STATES.to_vec()).prop_map(Value::from),
        3 => select(words.to_vec()).prop_map(Value::from),
        1 => select(vec![vec![], vec![0], vec![0, 0], vec![255], b"1".to_vec()])
            .prop_map(Value::Bytes),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let map = proptest::collection::btree_map(
        select(vec!["a".to_owned(), "b".to_owned()]),
        scalar(),
        0..3,
    );
    let list = proptest::collection::vec(scalar(), 0..3);
    prop_oneof![
        8 => scalar(),
        1 => map.prop_map(Value::Map),
        1 => Just(Value::Map(BTreeMap::new())),
        1 => list.prop_map(Value::List),
    ]
}

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const SKEW: Duration = Duration::from_millis(1000);
const STATES: [&str; 5] = ["received", "processing", "done", "failed", "discarded"];
/// Around the ends of leases (a second long), of the skew bound and of waits.
const NEAR: [i64; 10] = [-1, 0, 1, 999, 1000, 1001, 1999, 2000, 2001, 90_000];
