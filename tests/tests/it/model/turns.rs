//! What each party does when it is its turn. Every decision and every write is the domain's; here
//! is only what the receiver, the worker, the sweeper and an operator do about them.

use std::{sync::Arc, time::Duration};

use domain::{
    backoff::Backoff,
    effects::{StepDecision, StepEntry, StepName, StepState, decide_step, step_key},
    event::Event,
    limits,
    receive::{Reaction, react},
    record::{ClaimId, ErrorNote, LeaseOwner, StateName, StoredPayload},
    retention::{Retention, RetryWindows},
    sweep::{Sweep, sweep},
    time::Timestamp,
    transition::{
        Claimed, Fenced, FencedOutcome, Leased, Operator, Policy, Requeue, Standing, claim,
        discard, lease, park_exhausted, replay, requeue, unstick,
    },
    write::Written,
};

use super::{
    BEGIN, Protocol, TICK,
    actions::{Action, Fate, Wish},
    kept::Kept,
    key, step_name,
    world::{Broken, Delivery, Party, Stage, Sweeper, Work, Worker, Working, World},
};

impl Protocol {
    pub(super) fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Claim(d, fate) => self.claim(world, d, fate),
            Action::Enqueue(d) => {
                world.enqueue();
                world.answer(d);
            }
            Action::LoseEnqueue(d) => {
                world.faults -= 1;
                world.answer(d);
            }
            Action::BumpDuplicate(d, fate) => self.bump_duplicate(world, d, fate),
            Action::CrashReceiver(d) => {
                world.faults -= 1;
                let tries = world.deliveries[d].tries();
                world.deliveries[d] = Delivery::again(tries);
            }
            Action::Lease(w, fate) => self.lease(world, w, fate),
            Action::Work(w, work, fate) => self.work(world, w, work, fate),
            Action::ParkExhausted(w) => self.park_exhausted(world, w),
            Action::CrashWorker(w) => {
                world.faults -= 1;
                world.workers[w] = Worker::Idle;
            }
            Action::DuplicateMessage => {
                world.faults -= 1;
                world.enqueue();
            }
            Action::Look => world.look(),
            Action::Sweep(fate) => self.sweep(world, fate),
            Action::SendSwept => {
                world.enqueue();
                world.sweeper = Sweeper::Idle;
            }
            Action::CrashSweeper => {
                world.faults -= 1;
                world.sweeper = Sweeper::Idle;
            }
            Action::Operate(wish) => self.operate(world, wish),
            Action::Tick => {
                world.ticks -= 1;
                world.now += TICK;
            }
            Action::LongTick => {
                let expires_at = world.record.as_ref().and_then(Kept::expires_at);
                world.now += expires_at.unwrap_or_default() - world.table_clock();
            }
            Action::Expire => {
                world.record = None;
                world.truth.expired = true;
                world.truth.claims = 0;
            }
        }
    }

    /// Sends a claim; or sends it again, after its answer got lost.
    fn claim(&self, world: &mut World, d: usize, fate: Fate) {
        let (tries, claim_id, at) = match world.deliveries[d] {
            Delivery::Waiting { tries } => (tries, fresh_claim_id(world), world.now),
            Delivery::Claiming { tries, claim_id, at } => (tries, claim_id, at),
            Delivery::ToEnqueue { .. }
            | Delivery::ToBump { .. }
            | Delivery::Answered
            | Delivery::Unheard => return,
        };
        let payload = StoredPayload { codec: "none".into(), bytes: Vec::new() };
        let id = ClaimId(claim_id.to_string());
        let now = Timestamp::from_millis(at);
        let claim = claim(&event(), payload, id, now, &policy());
        let found = world.record.is_some();
        let written = world.write(Party::Receiver, &claim.write);
        if world.is_unheard(fate, &written) {
            world.deliveries[d] = Delivery::Claiming { tries, claim_id, at };
            return;
        }
        let refused = matches!(written, Written::Refused(_));
        let claimed = claim.settle(written).expect("a readable record");
        match &claimed {
            Claimed::New | Claimed::BeyondHorizon if refused => self.see("claim: own"),
            Claimed::New => self.see("claim: new"),
            Claimed::BeyondHorizon => self.see("claim: beyond horizon"),
            Claimed::Duplicate(_) => self.see("claim: duplicate"),
            Claimed::Replayed => self.see("claim: replayed"),
            Claimed::Vanished => self.see("claim: vanished"),
        }
        let at = world.clock(Party::Receiver);
        match react(&claimed, at) {
            Reaction::Enqueue => world.deliveries[d] = Delivery::ToEnqueue { tries },
            Reaction::Requeue(_) => {
                let seen = world.record.clone().expect("a duplicate of a record");
                world.deliveries[d] = Delivery::ToBump { tries, seen, at: at.millis() };
            }
            Reaction::Parked | Reaction::Nothing(_) | Reaction::Replayed => world.answer(d),
            Reaction::Unavailable => {
                if found {
                    world.truth.breaks(Broken::DuplicateRefused);
                }
                world.deliveries[d] = Delivery::again(tries);
            }
        }
    }

    fn bump_duplicate(&self, world: &mut World, d: usize, fate: Fate) {
        let Delivery::ToBump { tries, seen, at } = world.deliveries[d].clone() else { return };
        let bump = requeue(&seen, Timestamp::from_millis(at)).expect("it was open");
        match self.bump(world, Party::Receiver, &bump, fate) {
            None => {}
            Some(true) => {
                self.see("duplicate: requeued");
                world.deliveries[d] = Delivery::ToEnqueue { tries };
            }
            Some(false) => world.answer(d),
        }
    }

    /// Whether a bump took hold; `None` as long as its answer is lost.
    fn bump(&self, world: &mut World, by: Party, bump: &Requeue, fate: Fate) -> Option<bool> {
        let written = world.write(by, &bump.write);
        if world.is_unheard(fate, &written) {
            return None;
        }
        let held = bump.settle(&written);
        match (held, written) {
            (true, Written::Applied(_)) => {}
            (true, Written::Refused(_)) => self.see("bump: own"),
            (false, _) => self.see("bump: lost"),
        }
        Some(held)
    }

    /// Asks for a lease; or asks again, after the answer got lost.
    fn lease(&self, world: &mut World, w: usize, fate: Fate) {
        let (attempt, now) = match world.workers[w] {
            Worker::Idle if world.messages > 0 => {
                let attempt = world.record.as_ref().map_or(0, |record| record.attempt);
                (attempt, world.clock(Party::Worker(w)))
            }
            Worker::Leasing { attempt, at } => (attempt, Timestamp::from_millis(at)),
            Worker::Idle | Worker::Working(_) | Worker::Exhausted { .. } => return,
        };
        // Unique: no two leases of one worker begin from the same fence.
        let owner = LeaseOwner(format!("{w}/{attempt}"));
        let until = now.plus(limits::MAX_LEASE);
        let take = lease(&key(), owner, now, until, limits::CLOCK_SKEW, None);
        let before = world.state();
        let written = world.write(Party::Worker(w), &take.write);
        if world.is_unheard(fate, &written) {
            world.workers[w] = Worker::Leasing { attempt, at: now.millis() };
            return;
        }
        world.workers[w] = Worker::Idle;
        let refused = matches!(written, Written::Refused(_));
        match take.settle(written).expect("a readable record") {
            Leased::Held(lease, record) => {
                self.see(match before {
                    _ if refused => "lease: own",
                    Some(StateName::Processing) => "lease: taken over",
                    _ => "lease: held",
                });
                world.workers[w] = Worker::Working(Working {
                    last: record.is_exhausted(),
                    journal: record.steps.get(&step_name()).cloned().map(Arc::new),
                    lease: Arc::new(lease),
                    stage: Stage::Leased,
                    unwritten: false,
                    sent: None,
                    expired: world.truth.expired,
                });
            }
            Leased::Settled(_) => {
                self.see("lease: settled");
                world.delete_message();
            }
            Leased::Unknown => {
                self.see("lease: unknown");
                world.delete_message();
            }
            Leased::NotYet(_) => self.see("lease: not yet"),
            Leased::HeldElsewhere(_) => self.see("lease: held elsewhere"),
            Leased::Exhausted(_) => {
                self.see("lease: exhausted");
                let seen = world.record.clone().expect("exhausted");
                world.workers[w] = Worker::Exhausted { seen };
            }
        }
    }

    fn park_exhausted(&self, world: &mut World, w: usize) {
        let Worker::Exhausted { seen } = world.workers[w].clone() else { return };
        let park = park_exhausted(&seen, world.clock(Party::Worker(w)));
        world.workers[w] = Worker::Idle;
        match world.write(Party::Worker(w), &park) {
            Written::Applied(_) => {
                self.see("exhausted: parked");
                world.delete_message();
            }
            Written::Refused(_) => self.see("exhausted: moved on"),
        }
    }

    /// Does something under a lease; or sends it again, after the answer got lost.
    fn work(&self, world: &mut World, w: usize, work: Work, fate: Fate) {
        let Some(working) = world.working(w).cloned() else { return };
        let at = working.sent.map_or(world.clock(Party::Worker(w)).millis(), |(_, at)| at);
        let now = Timestamp::from_millis(at);
        let lease = &working.lease;
        let results = results(&working);
        let write = match work {
            Work::Step => match self.step(world, w, &working) {
                Some(entry) => lease.journal(&[(step_name(), entry)]),
                None => return,
            },
            Work::Complete => lease.complete(&results, now, &policy()),
            Work::Release if !working.last => {
                lease.release(RELEASE_WAIT, &note(now), &results, now)
            }
            Work::Release | Work::Park => lease.park(&note(now), &results, now),
        };
        let written = world.write(Party::Worker(w), &write.write);
        if world.is_unheard(fate, &written) {
            world.workers[w] = match fate {
                Fate::Crash => Worker::Idle,
                Fate::Fine | Fate::AnswerLost => {
                    Worker::Working(Working { sent: Some((work, at)), ..working })
                }
            };
            return;
        }
        if self.settled(world, w, &write, written) {
            match work {
                Work::Step => {
                    let entry = Arc::new(entry(&working, StepState::Started));
                    let (stage, journal) = (Stage::Journalled, Some(entry));
                    let working = Working { stage, journal, sent: None, ..working };
                    world.workers[w] = Worker::Working(working);
                }
                Work::Complete | Work::Park => world.end_of_message(w),
                Work::Release if working.last => world.end_of_message(w),
                Work::Release => world.workers[w] = Worker::Idle,
            }
        }
    }

    /// Whether a write under a lease took hold. If not, the lease is lost.
    fn settled(&self, world: &mut World, w: usize, write: &Fenced, written: Written) -> bool {
        let refused = matches!(written, Written::Refused(_));
        let standing = match write.settle(written).expect("a readable record") {
            FencedOutcome::Applied => {
                self.see(if refused { "fenced: own" } else { "fenced: applied" });
                return true;
            }
            FencedOutcome::Lost(standing) => standing,
        };
        world.workers[w] = Worker::Idle;
        match standing {
            Standing::Waiting(_) => self.see("lost: waiting"),
            Standing::HeldElsewhere(_) => self.see("lost: held elsewhere"),
            Standing::Settled(_) => {
                self.see("lost: settled");
                world.delete_message();
            }
            Standing::Gone => {
                self.see("lost: gone");
                world.delete_message();
            }
        }
        false
    }

    /// Takes the step as far as it goes without a write; gives the entry to journal first, if any.
    fn step(&self, world: &mut World, w: usize, working: &Working) -> Option<StepEntry> {
        let started = entry(working, StepState::Started);
        if working.sent.is_some() {
            return Some(started);
        }
        let (journal, owner) = (working.journal.as_deref(), working.lease.owner());
        match decide_step(journal, owner, self.bounds.step, started.at) {
            StepDecision::Recorded { .. } => {
                self.see("step: recorded");
                world.advance(w, false);
            }
            StepDecision::Call { journal_first: true } => {
                self.see("step: journal first");
                return Some(started);
            }
            StepDecision::Call { journal_first: false } => {
                self.see("step: call");
                world.call(w);
            }
            StepDecision::Reconcile => {
                self.see("step: reconcile");
                // The other side knows what it was asked.
                if world.truth.calls == 0 {
                    world.call(w);
                } else {
                    world.advance(w, true);
                }
            }
            StepDecision::Park => {
                self.see("step: park");
                world.advance(w, false);
                if let Some(working) = world.working_mut(w) {
                    working.stage = Stage::Undecidable;
                }
            }
        }
        None
    }

    /// Acts on what it has read, some time ago.
    fn sweep(&self, world: &mut World, fate: Fate) {
        let Sweeper::Looked { seen, at } = world.sweeper.clone() else { return };
        let swept = match sweep(&seen, Timestamp::from_millis(at), limits::CLOCK_SKEW) {
            Sweep::Requeue(bump) => {
                let held = self.bump(world, Party::Sweeper, &bump, fate);
                held.map(|held| if held { Sweeper::Bumped } else { Sweeper::Idle })
            }
            Sweep::Defer(bump) => {
                self.see("sweep: defer");
                self.bump(world, Party::Sweeper, &bump, fate).map(|_| Sweeper::Idle)
            }
            Sweep::Park(park) => {
                let written = world.write(Party::Sweeper, &park);
                if world.is_unheard(fate, &written) {
                    return;
                }
                let parked = matches!(written, Written::Applied(_));
                self.see(if parked { "sweep: parked" } else { "sweep: moved on" });
                Some(Sweeper::Idle)
            }
            Sweep::Leave => {
                self.see("sweep: leave");
                Some(Sweeper::Idle)
            }
        };
        if swept == Some(Sweeper::Bumped) {
            self.see("sweep: requeued");
        }
        world.sweeper = swept.unwrap_or(Sweeper::Looked { seen, at });
    }

    /// An operator runs it again, gives it up, or takes it from its worker, alive or not.
    fn operate(&self, world: &mut World, wish: Wish) {
        let Some(seen) = world.for_operator().cloned() else { return };
        let operator = Operator { name: "night shift", reason: "fixed" };
        let now = world.clock(Party::Operator);
        let (write, what) = match wish {
            Wish::Replay => (replay(&seen, &operator, now, &policy(), false).ok(), "replayed"),
            Wish::Discard => (discard(&seen, &operator, now, &policy()).ok(), "discarded"),
            Wish::Unstick => (unstick(&seen, &operator, now).ok(), "unstuck"),
        };
        if let Some(write) = write
            && let Written::Applied(_) = world.write(Party::Operator, &write)
        {
            world.operations -= 1;
            self.see(what);
        }
    }
}

impl World {
    /// Whether a call's answer is lost. That of a refused one is not worth losing: it has left
    /// nothing behind.
    fn is_unheard(&mut self, fate: Fate, written: &Written) -> bool {
        let lost = fate != Fate::Fine && matches!(written, Written::Applied(_));
        self.faults -= u8::from(lost);
        lost
    }

    fn look(&mut self) {
        let at = self.clock(Party::Sweeper).millis();
        if let Some(seen) = self.record.clone() {
            self.sweeper = Sweeper::Looked { seen, at };
        }
    }

    fn call(&mut self, w: usize) {
        let Some(working) = self.working(w) else { return };
        let key = step_key(&key(), &step_name());
        let changed = working.journal.as_ref().is_some_and(|entry| entry.key != key);
        // A later lease began with the journal that says done: it should have known.
        let mine = (working.expired, working.lease.fence());
        let done_before = self.truth.done_under.is_some_and(|done| mine > done);
        if changed {
            self.truth.breaks(Broken::KeyChanged);
        }
        if done_before {
            self.truth.breaks(Broken::CalledAfterDone);
        }
        self.truth.calls = (self.truth.calls + 1).min(2);
        self.advance(w, true);
    }

    fn advance(&mut self, w: usize, result: bool) {
        if let Some(working) = self.working_mut(w) {
            working.stage = Stage::Called;
            working.unwritten |= result;
        }
    }

    fn end_of_message(&mut self, w: usize) {
        self.workers[w] = Worker::Idle;
        self.delete_message();
    }
}

/// Another than those that are about.
fn fresh_claim_id(world: &World) -> u8 {
    let on_record = world.record.as_ref().map(|record| record.claim_id.0.as_str());
    let in_flight = |id| {
        let claiming =
            |d: &Delivery| matches!(d, Delivery::Claiming { claim_id, .. } if *claim_id == id);
        world.deliveries.iter().any(claiming)
    };
    (0..u8::MAX)
        .find(|id| on_record != Some(id.to_string().as_str()) && !in_flight(*id))
        .expect("few claims are about")
}

fn results(working: &Working) -> Vec<(StepName, StepEntry)> {
    let done = StepState::Done { result: "1".into() };
    if working.unwritten { vec![(step_name(), entry(working, done))] } else { Vec::new() }
}

/// A journal entry. Its owner tells the lease that wrote it.
fn entry(working: &Working, state: StepState) -> StepEntry {
    let owner = working.lease.owner().clone();
    let at = Timestamp::from_millis(BEGIN);
    StepEntry { state, key: step_key(&key(), &step_name()), owner, at }
}

fn note(now: Timestamp) -> ErrorNote {
    ErrorNote::new("failed", "", now)
}

/// The provider's clock was ahead when it occurred.
fn event() -> Event {
    Event {
        key: key(),
        provider: "p".into(),
        event_type: None,
        object_id: None,
        occurred_at: Some(Timestamp::from_millis(BEGIN).plus(limits::CLOCK_SKEW)),
        coalesces_until: None,
        payload: Vec::new(),
        content_type: None,
        headers: Vec::new(),
    }
}

pub(super) fn policy() -> Policy {
    let day = Duration::from_secs(86_400);
    let windows = RetryWindows { automatic: Some(day), manual: Some(day) };
    Policy {
        retention: Retention::new(None, &windows).expect("covers the windows"),
        attempt_limit: 2,
        backoff: Backoff::default(),
        drop_payload_when_done: false,
    }
}

const RELEASE_WAIT: Duration = Duration::from_secs(30);
