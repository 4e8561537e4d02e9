//! What may happen next in a world, and what becomes of a call.

use domain::record::StateName;

use super::{
    kept::Kept,
    world::{Delivery, Stage, Sweeper, Truth, Work, Worker, Working, World},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Claim(usize, Fate),
    Enqueue(usize),
    LoseEnqueue(usize),
    BumpDuplicate(usize, Fate),
    CrashReceiver(usize),
    Lease(usize, Fate),
    Work(usize, Work, Fate),
    ParkExhausted(usize),
    CrashWorker(usize),
    DuplicateMessage,
    Look,
    Sweep(Fate),
    SendSwept,
    CrashSweeper,
    Operate(Wish),
    Tick,
    LongTick,
    Expire,
}

/// What becomes of a call to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Fine,
    /// It takes hold, if it does, and its answer is lost. The caller sends it again.
    AnswerLost,
    /// It takes hold, and the caller dies of it.
    Crash,
}

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Replay,
    Discard,
    Unstick,
}

impl World {
    /// Everything that may happen next.
    pub(super) fn actions(&self, actions: &mut Vec<Action>) {
        for d in 0..self.deliveries.len() {
            // Interchangeable: of several in the same place, one may go first.
            if d == 0 || self.deliveries[d] != self.deliveries[d - 1] {
                self.delivery_actions(d, actions);
            }
        }
        for w in 0..self.workers.len() {
            self.worker_actions(w, actions);
        }
        self.sweeper_actions(actions);
        if self.faults > 0 && self.messages == 1 {
            actions.push(Action::DuplicateMessage);
        }
        if self.operations > 0
            && let Some(record) = self.for_operator()
        {
            let wishes: &[Wish] = match record.state.name() {
                StateName::Processing => &[Wish::Unstick],
                StateName::Received
                | StateName::Done
                | StateName::Failed
                | StateName::Discarded => &[Wish::Replay, Wish::Discard],
            };
            actions.extend(wishes.iter().map(|wish| Action::Operate(*wish)));
        }
        // Before the first claim, and after the last record, one moment is as another.
        if self.ticks > 0 && self.record.is_some() {
            actions.push(Action::Tick);
        }
        match self.record.as_ref().and_then(Kept::expires_at) {
            Some(at) if at <= self.table_clock() => actions.push(Action::Expire),
            // A retention passes in days: of those that were at something, only a worker still is.
            Some(_) if self.is_quiet() => actions.push(Action::LongTick),
            Some(_) | None => {}
        }
    }

    /// What may become of a call: while there are faults left, its answer may be lost.
    ///
    /// Absent here and below are crashes that leave nothing behind which another way does not leave
    /// for less: of one who has written nothing yet, or who waits for a lost answer.
    fn fates(&self) -> &'static [Fate] {
        if self.faults > 0 { &[Fate::Fine, Fate::AnswerLost] } else { &[Fate::Fine] }
    }

    fn delivery_actions(&self, d: usize, actions: &mut Vec<Action>) {
        match self.deliveries[d] {
            Delivery::Waiting { .. } => {
                actions.extend(self.fates().iter().map(|fate| Action::Claim(d, *fate)));
            }
            Delivery::Claiming { .. } => actions.push(Action::Claim(d, Fate::Fine)),
            Delivery::ToEnqueue { .. } => {
                actions.push(Action::Enqueue(d));
                if self.faults > 0 {
                    actions.extend([Action::LoseEnqueue(d), Action::CrashReceiver(d)]);
                }
            }
            Delivery::ToBump { .. } => {
                actions.extend(self.fates().iter().map(|fate| Action::BumpDuplicate(d, *fate)));
            }
            Delivery::Answered | Delivery::Unheard => {}
        }
    }

    fn worker_actions(&self, w: usize, actions: &mut Vec<Action>) {
        match &self.workers[w] {
            Worker::Idle if self.messages > 0 => {
                actions.extend(self.fates().iter().map(|fate| Action::Lease(w, *fate)));
            }
            Worker::Idle => {}
            Worker::Leasing { .. } => actions.push(Action::Lease(w, Fate::Fine)),
            Worker::Exhausted { .. } => actions.push(Action::ParkExhausted(w)),
            Worker::Working(working) => self.work_actions(w, working, actions),
        }
    }

    fn work_actions(&self, w: usize, working: &Working, actions: &mut Vec<Action>) {
        if let Some((work, _)) = working.sent {
            actions.push(Action::Work(w, work, Fate::Fine));
            return;
        }
        let works: &[Work] = match working.stage {
            Stage::Leased | Stage::Journalled => &[Work::Step, Work::Release],
            Stage::Called => &[Work::Complete, Work::Release, Work::Park],
            Stage::Undecidable => &[Work::Park],
        };
        for work in works {
            actions.extend(self.fates().iter().map(|fate| Action::Work(w, *work, *fate)));
        }
        if self.faults > 0 {
            actions.push(Action::CrashWorker(w));
            if working.stage == Stage::Called {
                actions.push(Action::Work(w, Work::Complete, Fate::Crash));
            }
        }
    }

    fn sweeper_actions(&self, actions: &mut Vec<Action>) {
        match self.sweeper {
            Sweeper::Idle if self.is_due() => actions.push(Action::Look),
            Sweeper::Idle | Sweeper::Absent => {}
            Sweeper::Looked { .. } => {
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

    /// Whether no receiver and no sweeper is in the middle of something.
    fn is_quiet(&self) -> bool {
        matches!(self.sweeper, Sweeper::Idle | Sweeper::Absent)
            && self.deliveries.iter().all(is_at_rest)
    }

    /// Of this world what decides how it goes on by itself.
    pub(super) fn calm(&self) -> Self {
        let mut deliveries = self.deliveries.clone();
        deliveries.retain(|delivery| !is_at_rest(delivery));
        let truth = Truth::default();
        Self { ticks: 0, faults: 0, operations: 0, deliveries, truth, ..self.clone() }
    }

    /// What can be done without any fault and without the provider: of each party first what is
    /// meant to come next.
    pub(super) fn untroubled(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for d in 0..self.deliveries.len() {
            self.delivery_actions(d, &mut actions);
        }
        for w in 0..self.workers.len() {
            self.worker_actions(w, &mut actions);
        }
        self.sweeper_actions(&mut actions);
        actions
    }
}

fn is_at_rest(delivery: &Delivery) -> bool {
    match delivery {
        Delivery::Waiting { .. } | Delivery::Answered | Delivery::Unheard => true,
        Delivery::Claiming { .. } | Delivery::ToEnqueue { .. } | Delivery::ToBump { .. } => false,
    }
}
