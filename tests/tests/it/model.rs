//! The protocol, explored: every interleaving of a few deliveries, two workers, a sweeper and an
//! operator, with crashes anywhere, answers lost after a write took hold and the write sent again
//! at any later time, messages that come twice, late or not at all, clocks that differ by the skew
//! bound, leases that end while their holder still runs, and expiry late or at once.
//!
//! The transitions are production's, `domain::transition` and its kin, on the simulated ledger.
//! What is modelled here is only the world around them. It is harsher than AWS: no worker is ever
//! stopped by its deadline, and a message may be handed out again while somebody works on it.
//!
//! Every exploration is whole, and its number of states is asserted: a change of the protocol shows
//! here first. `HOOKONCE_MODEL=large` explores more parties and more faults, for a good while.

mod actions;
mod kept;
mod properties;
mod turns;
mod world;

use std::{
    collections::{BTreeSet, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::{
    effects::{StepName, StepPolicy},
    event::{EventId, EventKey, Source},
    record::StateName,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

use actions::Action;
use properties::SETTLES;
use world::{Delivery, Sweeper, Truth, Worker, World};

/// What is explored.
#[derive(Clone, Debug)]
struct Protocol {
    bounds: Bounds,
    /// Every outcome that was met. Kept beside the worlds: a world that remembered what it has
    /// been through would be another for each way to it.
    seen: Option<Arc<Mutex<BTreeSet<&'static str>>>>,
    /// Fingerprints of worlds known to settle.
    settling: Arc<Mutex<HashSet<u64>>>,
}

/// How many take part, and how much happens at most.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    deliveries: usize,
    workers: usize,
    /// Whether the sweeper runs.
    sweeps: bool,
    faults: u8,
    ticks: u8,
    /// Of the operator.
    operations: u8,
    step: StepPolicy,
}

const SMALL: Bounds = Bounds {
    deliveries: 2,
    workers: 2,
    sweeps: true,
    faults: 1,
    ticks: 2,
    operations: 0,
    step: StepPolicy::Repeat,
};

#[test]
fn two_deliveries_and_two_workers_keep_every_promise() {
    for (step, states, outcomes) in [
        (StepPolicy::Repeat, 77_616, &[][..]),
        (StepPolicy::Never, 128_512, &["step: journal first", "step: park"]),
        (StepPolicy::Reconcile, 143_414, &["step: journal first", "step: reconcile"]),
    ] {
        explore(Bounds { step, ..SMALL }, states, outcomes);
    }
}

#[test]
fn an_event_whose_attempts_are_used_up_is_parked() {
    let bounds = Bounds { deliveries: 1, ticks: 3, ..SMALL };
    let outcomes = [
        "exhausted: moved on",
        "exhausted: parked",
        "lease: exhausted",
        "sweep: moved on",
        "sweep: parked",
    ];
    explore(bounds, 80_430, &outcomes);
}

#[test]
fn an_operator_in_between_breaks_no_promise() {
    let outcomes = [
        "discarded",
        "exhausted: moved on",
        "exhausted: parked",
        "lease: exhausted",
        "lost: waiting",
        "replayed",
        "sweep: moved on",
        "sweep: parked",
        "unstuck",
    ];
    explore(Bounds { deliveries: 1, operations: 1, ..SMALL }, 134_023, &outcomes);
}

/// That an event settles is a promise which something must keep, or it says nothing.
#[test]
fn without_a_sweep_a_lost_message_stays_lost() {
    let bounds = Bounds { deliveries: 1, workers: 1, sweeps: false, ..SMALL };
    let checker = Protocol::of(bounds).checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    assert!(checker.discovery(SETTLES).is_some(), "who enqueued it again?");
}

#[test]
fn a_larger_world_keeps_every_promise_if_wanted() {
    #[expect(clippy::disallowed_methods, reason = "how much is wanted is the caller's to say")]
    let wanted = std::env::var("HOOKONCE_MODEL").ok();
    match wanted.as_deref() {
        None => {}
        Some("large") => {
            explore(Bounds { faults: 2, ..SMALL }, 214_142, &[]);
            explore(Bounds { deliveries: 3, ..SMALL }, 259_602, &[]);
            explore(Bounds { deliveries: 3, faults: 2, ..SMALL }, 742_967, &[]);
        }
        Some(other) => panic!("HOOKONCE_MODEL is `large` or not set, not {other:?}"),
    }
}

/// Explores a configuration whole: every promise kept, every state and outcome met and no other,
/// and just so many worlds.
fn explore(bounds: Bounds, states: usize, outcomes: &[&'static str]) {
    let protocol = Protocol::of(bounds);
    let seen = protocol.seen.clone().expect("outcomes are kept");
    let checker = protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    checker.assert_properties();
    let expected: BTreeSet<_> = ALWAYS.iter().chain(outcomes).copied().collect();
    assert_eq!(*locked(&seen), expected, "other outcomes than before with {bounds:?}");
    assert_eq!(checker.unique_state_count(), states, "other worlds than before with {bounds:?}");
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let Bounds { deliveries, workers, faults, ticks, operations, .. } = self.bounds;
        vec![World {
            now: BEGIN,
            ticks,
            faults,
            operations,
            record: None,
            messages: 0,
            deliveries: vec![Delivery::Waiting { tries: 1 }; deliveries],
            workers: vec![Worker::Idle; workers],
            sweeper: if self.bounds.sweeps { Sweeper::Idle } else { Sweeper::Absent },
            truth: Truth::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        self.act(&mut world, action);
        world.deliveries.sort();
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::properties(&self.bounds)
    }
}

impl Protocol {
    fn of(bounds: Bounds) -> Self {
        Self { bounds, seen: Some(Arc::default()), settling: Arc::default() }
    }

    fn see(&self, outcome: &'static str) {
        if let Some(seen) = &self.seen {
            locked(seen).insert(outcome);
        }
    }

    /// Whether a world in which nothing goes wrong any more, and time goes on, settles its event:
    /// workers and sweeper do what is next for them, the provider does not come again.
    fn settles(&self, world: &World) -> bool {
        let quiet = Self { seen: None, ..self.clone() };
        let mut world = world.calm();
        let mut passed = Vec::new();
        for round in 0..ROUNDS {
            let fingerprint = fingerprint(&world);
            let open = world.state().is_some_and(StateName::is_open);
            if !open || locked(&self.settling).contains(&fingerprint) {
                locked(&self.settling).extend(passed);
                return true;
            }
            passed.push(fingerprint);
            for _ in 0..MOST_TURNS {
                let Some(next) = quiet.goes_on(&world) else { break };
                world = next;
            }
            // Longer each time: a requeue may wait an hour.
            world.now += TICK << round.min(7);
        }
        false
    }

    /// What comes next by itself: of what can be done the first that makes a difference.
    fn goes_on(&self, world: &World) -> Option<World> {
        world.untroubled().into_iter().find_map(|action| {
            let mut next = world.clone();
            self.act(&mut next, action);
            (next != *world).then_some(next)
        })
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn key() -> EventKey {
    EventKey::new(Source::new("s").expect("valid"), EventId::new("e").expect("valid"))
}

fn step_name() -> StepName {
    StepName::new("charge").expect("valid")
}

/// What comes about in every configuration. Never: a claim that finds its record vanished in the
/// act, as a simulated call is one moment.
const ALWAYS: [&str; 23] = [
    "bump: lost",
    "bump: own",
    "claim: beyond horizon",
    "claim: duplicate",
    "claim: new",
    "claim: own",
    "duplicate: requeued",
    "fenced: applied",
    "fenced: own",
    "lease: held",
    "lease: held elsewhere",
    "lease: not yet",
    "lease: own",
    "lease: settled",
    "lease: taken over",
    "lease: unknown",
    "lost: gone",
    "lost: held elsewhere",
    "lost: settled",
    "step: call",
    "step: recorded",
    "sweep: defer",
    "sweep: requeued",
];

const BEGIN: i64 = 1_800_000_000_000;
/// One passes a grace, two pass a lease with its skew. By a clock that is ahead by the skew bound
/// one passes a lease alone: who then takes it over has forgotten the skew.
const TICK: i64 = 64_000;
/// Rounds in which a world without faults settles.
const ROUNDS: u32 = 24;
/// Turns in one of them: each party comes to its end.
const MOST_TURNS: u32 = 16;
