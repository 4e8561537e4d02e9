//! The messages of one queue and the indexes that make every call logarithmic.
//!
//! A message is in exactly one [`Place`] at a time, and `leave`/`enter` are the only code that
//! moves it between indexes, so counters and sets cannot drift apart. Time comes in as an argument;
//! [`Store::settle`] applies what has become due and must run before anything else reads.
//!
//! Not decided here: who may delete or hide a message ([`Hold`] only says how a receipt stands) and
//! where exhausted messages go.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::message::Content;

/// Order of arrival, unique over all queues and never reused.
pub(super) type Seq = u64;

/// One queue's messages.
#[derive(Debug)]
pub(super) struct Store {
    fifo: bool,
    messages: HashMap<Seq, Slot>,
    /// What a receive may take, oldest offer first. In a FIFO queue: the head of every group that
    /// has nothing in flight.
    ready: BTreeSet<(u64, Seq)>,
    /// Delayed and in-flight messages by the moment they become visible.
    waiting: BTreeSet<(u64, Seq)>,
    /// All messages by the moment retention counts from.
    ages: BTreeSet<(u64, Seq)>,
    groups: HashMap<Arc<str>, Group>,
    in_flight: usize,
    delayed: usize,
}

/// A message and its fate so far.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) content: Arc<Content>,
    /// Retention counts from here.
    pub(super) enqueued_ms: u64,
    /// Receives in every queue the message has been in: what the API shows.
    pub(super) receives: u32,
    /// Receives in this queue: what the redrive policy counts, and the receipt's number.
    pub(super) receives_here: u32,
    pub(super) first_received_ms: Option<u64>,
    /// The queue it was moved here from.
    pub(super) source_arn: Option<String>,
}

/// What a receive asks for, already checked.
#[derive(Debug)]
pub(super) struct Take {
    pub(super) max: usize,
    pub(super) visibility_ms: u64,
    /// A message received this often already is exhausted.
    pub(super) max_receives: Option<u32>,
}

/// What a receive yields.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) delivered: Vec<Delivered>,
    /// Messages the redrive policy takes out; they are no longer in this store.
    pub(super) exhausted: Vec<Message>,
}

/// One message handed to a consumer.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) seq: Seq,
    pub(super) receipt: u32,
    pub(super) content: Arc<Content>,
    pub(super) receives: u32,
    pub(super) first_received_ms: u64,
    pub(super) source_arn: Option<String>,
}

/// How a receipt stands to its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// No such message: deleted, expired or moved.
    Gone,
    /// Received again since.
    Superseded,
    /// The visibility timeout ran out, and nobody has received it since.
    Lapsed,
    /// In flight under this receipt.
    Held {
        /// When it was received.
        since_ms: u64,
    },
}

/// Approximate counts of the API, exact here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) visible: usize,
    pub(super) in_flight: usize,
    pub(super) delayed: usize,
}

#[derive(Debug)]
struct Slot {
    message: Message,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// `since_ms` orders offers: a message that comes back queues behind those already waiting, so
    /// one that fails over and over cannot starve the rest.
    Visible {
        since_ms: u64,
    },
    Delayed {
        until_ms: u64,
    },
    InFlight {
        since_ms: u64,
        until_ms: u64,
    },
}

/// Messages that must be delivered in order.
#[derive(Debug, Default)]
struct Group {
    order: BTreeSet<Seq>,
    in_flight: usize,
    /// The entry in `ready`, when there is one.
    offered: Option<(u64, Seq)>,
}

impl Store {
    pub(super) fn new(fifo: bool) -> Self {
        Self {
            fifo,
            messages: HashMap::new(),
            ready: BTreeSet::new(),
            waiting: BTreeSet::new(),
            ages: BTreeSet::new(),
            groups: HashMap::new(),
            in_flight: 0,
            delayed: 0,
        }
    }

    /// Lets due messages become visible and drops those past retention.
    pub(super) fn settle(&mut self, now_ms: u64, retention_ms: u64) {
        while let Some(&(until_ms, seq)) = self.waiting.first()
            && until_ms <= now_ms
        {
            self.put(seq, Place::Visible { since_ms: until_ms });
        }
        while let Some(&(enqueued_ms, seq)) = self.ages.first()
            && enqueued_ms.saturating_add(retention_ms) <= now_ms
        {
            self.detach(seq);
        }
    }

    /// Adds a message that becomes visible at `visible_ms`; `seq` must be higher than any before.
    pub(super) fn insert(&mut self, seq: Seq, message: Message, visible_ms: u64, now_ms: u64) {
        let place = if visible_ms > now_ms {
            Place::Delayed { until_ms: visible_ms }
        } else {
            Place::Visible { since_ms: now_ms }
        };
        self.ages.insert((message.enqueued_ms, seq));
        if let Some(group) = self.group_of(&message) {
            self.groups.entry(group).or_default().order.insert(seq);
        }
        self.messages.insert(seq, Slot { message, place });
        self.enter(seq);
    }

    /// Hands out up to `take.max` messages and takes out the exhausted ones met on the way.
    pub(super) fn receive(&mut self, take: &Take, now_ms: u64) -> Taken {
        let mut taken = Taken::default();
        while taken.delivered.len() < take.max
            && let Some(&(_, seq)) = self.ready.first()
        {
            if self.fifo {
                self.take_group(seq, take, now_ms, &mut taken);
            } else {
                self.take_one(seq, take, now_ms, &mut taken);
            }
        }
        taken
    }

    /// How the `receipt`-th receive of a message stands now.
    pub(super) fn hold(&self, seq: Seq, receipt: u32) -> Hold {
        let Some(slot) = self.messages.get(&seq) else { return Hold::Gone };
        if slot.message.receives_here != receipt {
            return Hold::Superseded;
        }
        match slot.place {
            Place::InFlight { since_ms, .. } => Hold::Held { since_ms },
            Place::Visible { .. } | Place::Delayed { .. } => Hold::Lapsed,
        }
    }

    /// Moves the moment at which a held message becomes visible.
    pub(super) fn hide(&mut self, seq: Seq, since_ms: u64, until_ms: u64) {
        self.put(seq, Place::InFlight { since_ms, until_ms });
    }

    /// Takes a message out for good.
    pub(super) fn detach(&mut self, seq: Seq) -> Option<Message> {
        self.leave(seq);
        let Slot { message, .. } = self.messages.remove(&seq)?;
        self.ages.remove(&(message.enqueued_ms, seq));
        if let Some(name) = self.group_of(&message) {
            if let Some(group) = self.groups.get_mut(&name) {
                group.order.remove(&seq);
            }
            self.offer(&name);
        }
        Some(message)
    }

    pub(super) fn purge(&mut self) {
        *self = Self::new(self.fifo);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            visible: self.messages.len() - self.in_flight - self.delayed,
            in_flight: self.in_flight,
            delayed: self.delayed,
        }
    }

    /// When the next hidden message becomes visible.
    pub(super) fn next_visible_ms(&self) -> Option<u64> {
        self.waiting.first().map(|&(until_ms, _)| until_ms)
    }

    /// One receive may carry several messages of a group, in order; the rest of the group then
    /// waits until all of them are deleted or visible again.
    fn take_group(&mut self, head: Seq, take: &Take, now_ms: u64, taken: &mut Taken) {
        let name = self.messages.get(&head).and_then(|slot| self.group_of(&slot.message));
        let Some(name) = name else { return };
        let mut next = Some(head);
        while taken.delivered.len() < take.max
            && let Some(seq) = next
            && self.is_visible(seq)
        {
            self.take_one(seq, take, now_ms, taken);
            let group = self.groups.get(&name);
            next = group
                .and_then(|group| group.order.range((Excluded(seq), Unbounded)).next().copied());
        }
    }

    fn take_one(&mut self, seq: Seq, take: &Take, now_ms: u64, taken: &mut Taken) {
        let Some(slot) = self.messages.get_mut(&seq) else { return };
        if take.max_receives.is_some_and(|max| slot.message.receives_here >= max) {
            taken.exhausted.extend(self.detach(seq));
            return;
        }
        let message = &mut slot.message;
        message.receives = message.receives.saturating_add(1);
        message.receives_here = message.receives_here.saturating_add(1);
        taken.delivered.push(Delivered {
            seq,
            receipt: message.receives_here,
            content: Arc::clone(&message.content),
            receives: message.receives,
            first_received_ms: *message.first_received_ms.get_or_insert(now_ms),
            source_arn: message.source_arn.clone(),
        });
        let until_ms = now_ms.saturating_add(take.visibility_ms);
        self.put(seq, Place::InFlight { since_ms: now_ms, until_ms });
    }

    fn is_visible(&self, seq: Seq) -> bool {
        let place = self.messages.get(&seq).map(|slot| slot.place);
        matches!(place, Some(Place::Visible { .. }))
    }

    fn group_of(&self, message: &Message) -> Option<Arc<str>> {
        // On a standard queue the group id is a hint for fairness and orders nothing.
        self.fifo.then(|| message.content.group.clone()).flatten()
    }

    fn put(&mut self, seq: Seq, place: Place) {
        self.leave(seq);
        if let Some(slot) = self.messages.get_mut(&seq) {
            slot.place = place;
        }
        self.enter(seq);
    }

    fn leave(&mut self, seq: Seq) {
        let Some(slot) = self.messages.get(&seq) else { return };
        match slot.place {
            Place::Visible { since_ms } => {
                self.ready.remove(&(since_ms, seq));
            }
            Place::Delayed { until_ms } => {
                self.waiting.remove(&(until_ms, seq));
                self.delayed -= 1;
            }
            Place::InFlight { until_ms, .. } => {
                self.waiting.remove(&(until_ms, seq));
                self.in_flight -= 1;
                if let Some(name) = self.group_of(&slot.message)
                    && let Some(group) = self.groups.get_mut(&name)
                {
                    group.in_flight -= 1;
                }
            }
        }
    }

    fn enter(&mut self, seq: Seq) {
        let Some(slot) = self.messages.get(&seq) else { return };
        let place = slot.place;
        let name = self.group_of(&slot.message);
        match place {
            Place::Visible { since_ms } if name.is_none() => {
                self.ready.insert((since_ms, seq));
            }
            Place::Visible { .. } => {}
            Place::Delayed { until_ms } => {
                self.waiting.insert((until_ms, seq));
                self.delayed += 1;
            }
            Place::InFlight { until_ms, .. } => {
                self.waiting.insert((until_ms, seq));
                self.in_flight += 1;
                if let Some(group) = name.as_ref().and_then(|name| self.groups.get_mut(name)) {
                    group.in_flight += 1;
                }
            }
        }
        if let Some(name) = name {
            self.offer(&name);
        }
    }

    /// Brings a group's entry in `ready` up to date: its head, if that is visible and nothing of
    /// the group is in flight.
    fn offer(&mut self, name: &str) {
        let Some(group) = self.groups.get_mut(name) else { return };
        if let Some(offered) = group.offered.take() {
            self.ready.remove(&offered);
        }
        let Some(&head) = group.order.first() else {
            self.groups.remove(name);
            return;
        };
        if group.in_flight == 0
            && let Some(Slot { place: Place::Visible { since_ms }, .. }) = self.messages.get(&head)
        {
            group.offered = Some((*since_ms, head));
            self.ready.insert((*since_ms, head));
        }
    }
}
