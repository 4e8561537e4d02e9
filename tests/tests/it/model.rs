//! The protocol, explored: every interleaving of a few deliveries, two workers, a sweeper and an
//! operator, with crashes anywhere, answers lost after a write took hold, messages that come twice,
//! late or not at all, clocks that differ, leases that end while their holder still runs, and
//! expiry late or at once.
//!
//! The transitions are production's, `domain::transition` and its kin, on the simulated ledger.
//! What is modelled here is only the world around them. It is harsher than AWS: no worker is ever
//! stopped by its deadline, and a message may be handed out again while somebody works on it.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    backoff::Backoff,
    effects::{StepDecision, StepEntry, StepName, StepPolicy, StepState, decide_step, step_key},
    event::{Event, EventId, EventKey, Source},
    item::{Attribute, Item, Value},
    limits,
    receive::{Reaction, react},
    record::{ClaimId, ErrorNote, LeaseOwner, Record, StateName, StoredPayload},
    retention::{Retention, RetryWindows},
    sweep::{Sweep, sweep},
    time::Timestamp,
    transition::{
        BEYOND_HORIZON, Claimed, Fenced, FencedOutcome, Lease, Leased, Operator, Policy, Requeue,
        Standing, claim, lease, park_exhausted, replay, requeue,
    },
    write::{GuardedWrite, Written},
};
use stateright::{Checker, Model, Property};

use tests::ledger::{SimulatedLedger, holds};

/// What is explored: how many take part, and how much goes wrong at most.
#[derive(Clone, Debug)]
struct Protocol {
    deliveries: usize,
    workers: usize,
    faults: u8,
    ticks: u8,
    step: StepPolicy,
}

/// The world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: i64,
    ticks: u8,
    faults: u8,
    record: Option<Item>,
    /// Messages not deleted. Any of them may be handed out at any time.
    messages: u8,
    deliveries: Vec<Delivery>,
    workers: Vec<Worker>,
    sweeper: Sweeper,
    replays: u8,
    truth: Truth,
}

/// What really happened, for nobody in the world to see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Truth {
    claims: u8,
    acknowledged: bool,
    expired: bool,
    local_effects: u8,
    keys: BTreeSet<String>,
    calls: u8,
    /// The fence under which the step was recorded as done.
    done_under: Option<u32>,
    called_after_done: bool,
    stale_write_held: bool,
    seen: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Delivery {
    Waiting {
        tries: u8,
    },
    Claimed {
        tries: u8,
    },
    Overdue {
        tries: u8,
    },
    Bumped {
        tries: u8,
    },
    Answered,
    /// The provider has given up.
    Unheard,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Working {
        lease: Lease,
        /// The step's entry, as this worker knows it.
        journal: Option<StepEntry>,
        stage: Stage,
        unwritten: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Leased,
    Journalled,
    Called,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sweeper {
    Idle,
    Looked(Box<Item>),
    Bumped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Claim(usize, Fate),
    CrashReceiver(usize),
    Enqueue(usize),
    LoseEnqueue(usize),
    BumpDuplicate(usize),
    Lease(usize, Fate),
    Step(usize, Fate),
    Complete(usize, Fate),
    Release(usize, Fate),
    Park(usize, Fate),
    CrashWorker(usize),
    DuplicateMessage,
    Look,
    Sweep(Fate),
    SendSwept,
    CrashSweeper,
    Replay,
    Tick,
    LongTick,
    Expire,
}

/// What becomes of a call to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// It takes hold, its answer is lost, and the SDK sends it again.
    AnswerLost,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: BEGIN,
            ticks: self.ticks,
            faults: self.faults,
            record: None,
            messages: 0,
            deliveries: vec![Delivery::Waiting { tries: 2 }; self.deliveries],
            workers: vec![Worker::Idle; self.workers],
            sweeper: Sweeper::Idle,
            replays: 1,
            truth: Truth::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for d in 0..self.deliveries {
            world.delivery_actions(d, actions);
        }
        for w in 0..self.workers {
            world.worker_actions(w, actions);
        }
        world.sweeper_actions(actions);
        if world.faults > 0 && world.messages == 1 {
            actions.push(Action::DuplicateMessage);
        }
        if world.replays > 0 && world.is_replayable() {
            actions.push(Action::Replay);
        }
        if world.ticks > 0 {
            actions.push(Action::Tick);
        }
        match world.expires_at() {
            Some(at) if at > world.now => actions.push(Action::LongTick),
            Some(_) => actions.push(Action::Expire),
            None => {}
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        self.act(&mut world, action);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("I2 one claim wins", |_, world: &World| {
                world.truth.claims <= 1 || world.truth.expired
            }),
            Property::always("I3 an acknowledged event is on record", |_, world: &World| {
                !world.truth.acknowledged || world.record.is_some() || world.truth.expired
            }),
            Property::always(
                "I4 it ends done or parked once faults stop",
                |model: &Self, world: &World| model.settles(world),
            ),
            Property::always(
                "I5 local effects hold if and only if it is done, once",
                |_, world: &World| {
                    let done = world.state() == Some(StateName::Done);
                    match world.truth.local_effects {
                        0 => !done,
                        1 => done || world.truth.expired,
                        _ => false,
                    }
                },
            ),
            Property::always(
                "I6 a step keeps its key, and once done is not called",
                |_, world: &World| world.truth.keys.len() <= 1 && !world.truth.called_after_done,
            ),
            Property::always(
                "I6 a step that must not be repeated is called once",
                |model: &Self, world: &World| {
                    model.step != StepPolicy::Never || world.truth.calls <= 1
                },
            ),
            Property::always(
                "I7 a worker that outlived its lease changes nothing",
                |_, world: &World| !world.truth.stale_write_held,
            ),
            Property::always("I9 only a closed record expires", |_, world: &World| {
                let closed = world.state().is_some_and(StateName::is_closed);
                world.expires_at().is_some() == closed
            }),
            Property::sometimes("received", |_, w: &World| w.state() == Some(StateName::Received)),
            Property::sometimes("processing", |_, w: &World| {
                w.state() == Some(StateName::Processing)
            }),
            Property::sometimes("done", |_, w: &World| w.state() == Some(StateName::Done)),
            Property::sometimes("parked", |_, w: &World| w.state() == Some(StateName::Failed)),
            Property::sometimes("duplicate", |_, w: &World| w.saw("duplicate")),
            Property::sometimes("own claim recognised", |_, w: &World| w.saw("own claim")),
            Property::sometimes("own lease recognised", |_, w: &World| w.saw("own lease")),
            Property::sometimes("own completion recognised", |_, w: &World| {
                w.saw("own completion")
            }),
            Property::sometimes("swept", |_, w: &World| w.saw("swept")),
            Property::sometimes("requeued by a duplicate", |_, w: &World| {
                w.saw("requeued by a duplicate")
            }),
            Property::sometimes("replayed", |_, w: &World| w.saw("replayed")),
            Property::sometimes("expired", |_, w: &World| w.truth.expired),
            Property::sometimes("beyond its horizon", |_, w: &World| w.saw("beyond horizon")),
            Property::sometimes("recorded result used", |_, w: &World| w.saw("recorded")),
        ];
        if self.workers > 1 {
            properties.extend([
                Property::sometimes("lease lost", |_, w: &World| w.saw("lease lost")),
                Property::sometimes("taken over", |_, w: &World| w.saw("taken over")),
            ]);
        }
        properties
    }
}

impl Protocol {
    fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Claim(d, fate) => world.claim(d, fate),
            Action::CrashReceiver(d) => {
                world.faults -= 1;
                let tries = world.deliveries[d].tries();
                world.deliveries[d] = Delivery::again(tries);
            }
            Action::Enqueue(d) => {
                world.messages = (world.messages + 1).min(MOST_MESSAGES);
                world.answer(d);
            }
            Action::LoseEnqueue(d) => {
                world.faults -= 1;
                world.answer(d);
            }
            Action::BumpDuplicate(d) => world.bump_duplicate(d),
            Action::Lease(w, fate) => world.lease(w, fate),
            Action::Step(w, fate) => world.step(w, self.step, fate),
            Action::Complete(w, fate) => world.complete(w, fate),
            Action::Release(w, fate) => world.release(w, fate),
            Action::Park(w, fate) => world.park(w, fate),
            Action::CrashWorker(w) => {
                world.faults -= 1;
                world.workers[w] = Worker::Idle;
            }
            Action::DuplicateMessage => {
                world.faults -= 1;
                world.messages += 1;
            }
            Action::Look => {
                if let Some(item) = &world.record {
                    world.sweeper = Sweeper::Looked(Box::new(item.clone()));
                }
            }
            Action::Sweep(fate) => world.sweep(fate),
            Action::SendSwept => {
                world.messages = (world.messages + 1).min(MOST_MESSAGES);
                world.sweeper = Sweeper::Idle;
            }
            Action::CrashSweeper => {
                world.faults -= 1;
                world.sweeper = Sweeper::Idle;
            }
            Action::Replay => world.replay(),
            Action::Tick => {
                world.ticks -= 1;
                world.now += TICK;
            }
            Action::LongTick => {
                world.now = world.expires_at().unwrap_or(world.now);
            }
            Action::Expire => {
                world.record = None;
                world.truth.expired = true;
            }
        }
    }

    /// Whether a world in which nothing goes wrong any more, and time goes on, settles its event.
    fn settles(&self, world: &World) -> bool {
        let mut world = world.clone();
        world.faults = 0;
        for round in 0..ROUNDS {
            let Some(state) = world.state() else { return true };
            if !state.is_open() {
                return true;
            }
            for d in 0..self.deliveries {
                match world.deliveries[d] {
                    Delivery::Claimed { .. } | Delivery::Bumped { .. } => {
                        self.act(&mut world, Action::Enqueue(d));
                    }
                    Delivery::Overdue { .. } => self.act(&mut world, Action::BumpDuplicate(d)),
                    Delivery::Waiting { .. } | Delivery::Answered | Delivery::Unheard => {}
                }
            }
            for w in 0..self.workers {
                self.act(&mut world, Action::Lease(w, Fate::Fine));
                self.act(&mut world, Action::Step(w, Fate::Fine));
                self.act(&mut world, Action::Step(w, Fate::Fine));
                self.act(&mut world, Action::Complete(w, Fate::Fine));
            }
            self.act(&mut world, Action::Look);
            self.act(&mut world, Action::Sweep(Fate::Fine));
            if world.sweeper == Sweeper::Bumped {
                self.act(&mut world, Action::SendSwept);
            }
            // Longer each time: a requeue may wait an hour.
            world.now += TICK << round.min(7);
        }
        false
    }
}

impl World {
    /// What may become of a call: while there are faults left, its answer may be lost.
    fn fates(&self) -> &'static [Fate] {
        if self.faults > 0 { &[Fate::Fine, Fate::AnswerLost] } else { &[Fate::Fine] }
    }

    fn delivery_actions(&self, d: usize, actions: &mut Vec<Action>) {
        match self.deliveries[d] {
            Delivery::Waiting { .. } => {
                actions.extend(self.fates().iter().map(|fate| Action::Claim(d, *fate)));
            }
            Delivery::Claimed { .. } | Delivery::Bumped { .. } => {
                actions.push(Action::Enqueue(d));
                if self.faults > 0 {
                    actions.extend([Action::LoseEnqueue(d), Action::CrashReceiver(d)]);
                }
            }
            Delivery::Overdue { .. } => {
                actions.push(Action::BumpDuplicate(d));
                if self.faults > 0 {
                    actions.push(Action::CrashReceiver(d));
                }
            }
            Delivery::Answered | Delivery::Unheard => {}
        }
    }

    fn worker_actions(&self, w: usize, actions: &mut Vec<Action>) {
        let Worker::Working { stage, .. } = &self.workers[w] else {
            if self.messages > 0 {
                actions.extend(self.fates().iter().map(|fate| Action::Lease(w, *fate)));
            }
            return;
        };
        let next: [fn(usize, Fate) -> Action; 2] = match stage {
            Stage::Leased | Stage::Journalled => [Action::Step, Action::Release],
            Stage::Called => [Action::Complete, Action::Park],
        };
        for action in next {
            actions.extend(self.fates().iter().map(|fate| action(w, *fate)));
        }
        if self.faults > 0 {
            actions.push(Action::CrashWorker(w));
        }
    }

    fn sweeper_actions(&self, actions: &mut Vec<Action>) {
        match self.sweeper {
            Sweeper::Idle if self.is_due() => actions.push(Action::Look),
            Sweeper::Idle => {}
            Sweeper::Looked(_) => {
                actions.extend(self.fates().iter().map(|fate| Action::Sweep(*fate)));
            }
            Sweeper::Bumped => {
                actions.push(Action::SendSwept);
                if self.faults > 0 {
                    actions.push(Action::CrashSweeper);
                }
            }
        }
    }

    fn state(&self) -> Option<StateName> {
        self.decoded().map(|record| record.state.name())
    }

    fn decoded(&self) -> Option<Record> {
        let item = self.record.clone()?;
        Some(Record::from_item(item).expect("the protocol writes readable records"))
    }

    fn expires_at(&self) -> Option<i64> {
        let Value::Number(seconds) = self.record.as_ref()?.get(&Attribute::ExpiresAt)? else {
            return None;
        };
        Some(seconds * 1000)
    }

    fn is_due(&self) -> bool {
        self.state().is_some_and(StateName::is_open)
            && matches!(self.record.as_ref().and_then(|item| item.get(&Attribute::DueAt)),
                Some(Value::Number(due_at)) if *due_at <= self.now)
    }

    /// An operator replays what failed; not what came too late, which may have run before.
    fn is_replayable(&self) -> bool {
        self.decoded().is_some_and(|record| {
            record.state.name() == StateName::Failed
                && record.last_error.is_none_or(|error| error.class != BEYOND_HORIZON)
        })
    }

    fn saw(&self, what: &str) -> bool {
        self.truth.seen.contains(what)
    }

    fn see(&mut self, what: &'static str) {
        self.truth.seen.insert(what);
    }

    /// A worker's clock: the second one is ahead by the skew bound.
    fn clock(&self, w: usize) -> Timestamp {
        let now = Timestamp::from_millis(self.now);
        if w == 1 { now.plus(limits::CLOCK_SKEW) } else { now }
    }

    /// One call to the ledger. A lost answer is a fault, and the SDK's retry is what is seen.
    fn write(&mut self, write: &GuardedWrite, fate: Fate) -> Written {
        let first = self.apply(write);
        match fate {
            Fate::Fine => first,
            Fate::AnswerLost => {
                self.faults = self.faults.saturating_sub(1);
                self.apply(write)
            }
        }
    }

    fn apply(&mut self, write: &GuardedWrite) -> Written {
        let mut ledger = SimulatedLedger::default();
        if let Some(item) = self.record.take() {
            ledger.put(key(), item);
        }
        let written = ledger.write(write);
        self.record = ledger.get(&key()).cloned();
        written
    }

    fn claim(&mut self, d: usize, fate: Fate) {
        let Delivery::Waiting { tries } = self.deliveries[d] else { return };
        let payload = StoredPayload { codec: "none".into(), bytes: Vec::new() };
        let now = Timestamp::from_millis(self.now);
        let claim = claim(&event(), payload, ClaimId(format!("{d}/{tries}")), now, &policy());
        let free = holds(&claim.write.guard, self.record.as_ref());
        self.truth.claims += u8::from(free);
        let written = self.write(&claim.write, fate);
        let claimed = claim.settle(written).expect("a readable record");
        if free && fate == Fate::AnswerLost && !matches!(claimed, Claimed::Duplicate(_)) {
            self.see("own claim");
        }
        match react(&claimed, now) {
            Reaction::Enqueue => self.deliveries[d] = Delivery::Claimed { tries },
            Reaction::Requeue(_) => self.deliveries[d] = Delivery::Overdue { tries },
            Reaction::Parked => {
                self.see("beyond horizon");
                self.answer(d);
            }
            Reaction::Nothing(_) => {
                self.see("duplicate");
                self.answer(d);
            }
            Reaction::Unavailable => self.deliveries[d] = Delivery::again(tries),
        }
    }

    fn answer(&mut self, d: usize) {
        self.deliveries[d] = Delivery::Answered;
        self.truth.acknowledged = true;
    }

    fn bump_duplicate(&mut self, d: usize) {
        let Delivery::Overdue { tries } = self.deliveries[d] else { return };
        let now = Timestamp::from_millis(self.now);
        let bump = self.decoded().and_then(|record| requeue(&record, now));
        if bump.is_some_and(|bump| self.bump(&bump, Fate::Fine)) {
            self.see("requeued by a duplicate");
            self.deliveries[d] = Delivery::Bumped { tries };
        } else {
            self.answer(d);
        }
    }

    fn bump(&mut self, bump: &Requeue, fate: Fate) -> bool {
        let written = self.write(&bump.write, fate);
        bump.settle(&written)
    }

    fn lease(&mut self, w: usize, fate: Fate) {
        if self.workers[w] != Worker::Idle || self.messages == 0 {
            return;
        }
        let now = self.clock(w);
        let until = now.plus(limits::MAX_LEASE);
        let attempt = self.decoded().map_or(0, |record| record.attempt);
        let owner = LeaseOwner(format!("{w}/{attempt}"));
        let take = lease(&key(), owner, now, until, limits::CLOCK_SKEW, None);
        let taken_over = self.state() == Some(StateName::Processing);
        let refused = !holds(&take.write.guard, self.record.as_ref());
        let written = self.write(&take.write, fate);
        match take.settle(written).expect("a readable record") {
            Leased::Held(lease, record) => {
                if taken_over {
                    self.see("taken over");
                }
                if fate == Fate::AnswerLost && !refused {
                    self.see("own lease");
                }
                let journal = record.steps.get(&step_name()).cloned();
                let (stage, unwritten) = (Stage::Leased, false);
                self.workers[w] = Worker::Working { lease, journal, stage, unwritten };
            }
            Leased::Settled(_) | Leased::Unknown => self.messages -= 1,
            Leased::NotYet(_) | Leased::HeldElsewhere(_) => {}
            Leased::Exhausted(record) => {
                let park = park_exhausted(&record, now);
                if let Written::Applied(_) = self.write(&park, Fate::Fine) {
                    self.messages -= 1;
                }
            }
        }
    }

    /// The lease that a worker believes to hold.
    fn held(&self, w: usize) -> Option<(Lease, Stage, bool)> {
        match &self.workers[w] {
            Worker::Idle => None,
            Worker::Working { lease, stage, unwritten, .. } => {
                Some((lease.clone(), *stage, *unwritten))
            }
        }
    }

    /// A write under a lease. Whatever comes of it, a stale one must not have held.
    fn fenced(&mut self, w: usize, fenced: &Fenced, fate: Fate) -> FencedOutcome {
        let fence = self.held(w).map_or(0, |(lease, ..)| lease.fence());
        let stale = self.decoded().is_none_or(|record| {
            record.attempt != fence || record.state.name() != StateName::Processing
        });
        if stale && holds(&fenced.write.guard, self.record.as_ref()) {
            self.truth.stale_write_held = true;
        }
        let written = self.write(&fenced.write, fate);
        let outcome = fenced.settle(written).expect("a readable record");
        let done = self.decoded().is_some_and(|record| {
            let entry = record.steps.get(&step_name());
            entry.is_some_and(|entry| matches!(entry.state, StepState::Done { .. }))
        });
        if done && self.truth.done_under.is_none() {
            self.truth.done_under = Some(fence);
        }
        if let FencedOutcome::Lost(standing) = outcome {
            self.see("lease lost");
            if matches!(standing, Standing::Settled(_) | Standing::Gone) {
                self.messages = self.messages.saturating_sub(1);
            }
            self.workers[w] = Worker::Idle;
        }
        outcome
    }

    fn step(&mut self, w: usize, policy: StepPolicy, fate: Fate) {
        let Some((lease, stage, _)) = self.held(w) else { return };
        if stage == Stage::Called {
            return;
        }
        // A worker knows the journal from its lease, not from the record as it may be by now.
        let Worker::Working { journal, .. } = &self.workers[w] else { return };
        match decide_step(journal.as_ref(), lease.owner(), policy) {
            StepDecision::Recorded { .. } => {
                self.see("recorded");
                self.advance(w, Stage::Called, false);
            }
            StepDecision::Call { journal_first: true } => {
                let entry = self.entry(w, StepState::Started);
                let started = lease.journal(&[(step_name(), entry.clone())]);
                if self.fenced(w, &started, fate) == FencedOutcome::Applied {
                    self.advance(w, Stage::Journalled, false);
                    if let Worker::Working { journal, .. } = &mut self.workers[w] {
                        *journal = Some(entry);
                    }
                }
            }
            StepDecision::Call { journal_first: false } => self.call(w),
            StepDecision::Reconcile => {
                // The other side knows what it was asked.
                if self.truth.calls == 0 {
                    self.call(w);
                } else {
                    self.see("reconciled");
                    self.advance(w, Stage::Called, true);
                }
            }
            StepDecision::Park => self.park(w, fate),
        }
    }

    fn call(&mut self, w: usize) {
        let fence = self.held(w).map_or(0, |(lease, ..)| lease.fence());
        // A later lease began with the journal that says done: it should have known.
        self.truth.called_after_done |= self.truth.done_under.is_some_and(|done| fence > done);
        self.truth.calls = (self.truth.calls + 1).min(3);
        self.truth.keys.insert(step_key(&key(), &step_name()));
        self.advance(w, Stage::Called, true);
    }

    fn advance(&mut self, w: usize, to: Stage, result: bool) {
        if let Worker::Working { stage, unwritten, .. } = &mut self.workers[w] {
            *stage = to;
            *unwritten |= result;
        }
    }

    fn complete(&mut self, w: usize, fate: Fate) {
        let Some((lease, Stage::Called, unwritten)) = self.held(w) else { return };
        let results = self.results(w, unwritten);
        let complete = lease.complete(&results, self.clock(w), &policy());
        let takes_hold = holds(&complete.write.guard, self.record.as_ref());
        self.truth.local_effects += u8::from(takes_hold);
        if self.fenced(w, &complete, fate) == FencedOutcome::Applied {
            if fate == Fate::AnswerLost {
                self.see("own completion");
            }
            self.workers[w] = Worker::Idle;
            self.messages = self.messages.saturating_sub(1);
        }
    }

    fn release(&mut self, w: usize, fate: Fate) {
        let Some((lease, _, unwritten)) = self.held(w) else { return };
        let now = self.clock(w);
        if self.decoded().is_some_and(|record| record.attempt >= record.attempt_limit) {
            return self.park(w, fate);
        }
        let results = self.results(w, unwritten);
        let release = lease.release(RELEASE_WAIT, &note(now), &results, now);
        if self.fenced(w, &release, fate) == FencedOutcome::Applied {
            self.workers[w] = Worker::Idle;
        }
    }

    fn park(&mut self, w: usize, fate: Fate) {
        let Some((lease, _, unwritten)) = self.held(w) else { return };
        let now = self.clock(w);
        let results = self.results(w, unwritten);
        let park = lease.park(&note(now), &results, now);
        if self.fenced(w, &park, fate) == FencedOutcome::Applied {
            self.workers[w] = Worker::Idle;
            self.messages = self.messages.saturating_sub(1);
        }
    }

    fn results(&self, w: usize, unwritten: bool) -> Vec<(StepName, StepEntry)> {
        if !unwritten {
            return Vec::new();
        }
        vec![(step_name(), self.entry(w, StepState::Done { result: "1".into() }))]
    }

    /// A journal entry of a worker. Its owner tells the lease that wrote it.
    fn entry(&self, w: usize, state: StepState) -> StepEntry {
        let owner = self
            .held(w)
            .map_or_else(|| LeaseOwner(String::new()), |(lease, ..)| lease.owner().clone());
        let at = Timestamp::from_millis(BEGIN);
        StepEntry { state, key: step_key(&key(), &step_name()), owner, at }
    }

    fn sweep(&mut self, fate: Fate) {
        let Sweeper::Looked(item) = std::mem::replace(&mut self.sweeper, Sweeper::Idle) else {
            return;
        };
        let record = Record::from_item(*item).expect("a readable record");
        let now = Timestamp::from_millis(self.now);
        match sweep(&record, now, limits::CLOCK_SKEW) {
            Sweep::Requeue(bump) => {
                if self.bump(&bump, fate) {
                    self.see("swept");
                    self.sweeper = Sweeper::Bumped;
                }
            }
            Sweep::Defer(bump) => {
                self.bump(&bump, fate);
            }
            Sweep::Park(park) => {
                self.write(&park, fate);
            }
            Sweep::Leave => {}
        }
    }

    fn replay(&mut self) {
        let Some(record) = self.decoded() else { return };
        let operator = Operator { name: "night shift", reason: "fixed" };
        let now = Timestamp::from_millis(self.now);
        if let Ok(write) = replay(&record, &operator, now, &policy(), false)
            && let Written::Applied(_) = self.write(&write, Fate::Fine)
        {
            self.replays -= 1;
            self.see("replayed");
        }
    }
}

impl Delivery {
    fn tries(self) -> u8 {
        match self {
            Self::Waiting { tries }
            | Self::Claimed { tries }
            | Self::Overdue { tries }
            | Self::Bumped { tries } => tries,
            Self::Answered | Self::Unheard => 0,
        }
    }

    fn again(tries: u8) -> Self {
        match tries {
            0 => Self::Unheard,
            tries => Self::Waiting { tries: tries - 1 },
        }
    }
}

/// Explores a configuration whole; gives the number of its states.
fn explore(protocol: Protocol) -> usize {
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn two_deliveries_and_one_worker_are_safe_in_every_interleaving() {
    let states = explore(Protocol {
        deliveries: 2,
        workers: 1,
        faults: 1,
        ticks: 2,
        step: StepPolicy::Repeat,
    });
    println!("{states} states");
}

#[test]
fn two_workers_are_safe_in_every_interleaving() {
    for step in [StepPolicy::Repeat, StepPolicy::Never, StepPolicy::Reconcile] {
        let states = explore(Protocol { deliveries: 1, workers: 2, faults: 1, ticks: 3, step });
        println!("{step:?}: {states} states");
    }
}

fn key() -> EventKey {
    EventKey::new(Source::new("s").expect("valid"), EventId::new("e").expect("valid"))
}

fn event() -> Event {
    Event {
        key: key(),
        provider: "p".into(),
        event_type: None,
        object_id: None,
        occurred_at: Some(Timestamp::from_millis(BEGIN)),
        payload: Vec::new(),
        content_type: None,
        headers: Vec::new(),
    }
}

fn policy() -> Policy {
    let day = Duration::from_secs(86_400);
    let windows = RetryWindows { automatic: Some(day), manual: Some(day) };
    Policy {
        retention: Retention::new(None, &windows).expect("covers the windows"),
        attempt_limit: 2,
        backoff: Backoff::default(),
        drop_payload_when_done: false,
    }
}

fn note(now: Timestamp) -> ErrorNote {
    ErrorNote::new("failed", "", now)
}

fn step_name() -> StepName {
    StepName::new("charge").expect("valid")
}

const BEGIN: i64 = 1_800_000_000_000;
/// Long enough that two pass a lease and its skew, and two a grace.
const TICK: i64 = 40_000;
const RELEASE_WAIT: Duration = Duration::from_secs(30);
const MOST_MESSAGES: u8 = 2;
/// Rounds in which a world without faults settles.
const ROUNDS: u32 = 24;
