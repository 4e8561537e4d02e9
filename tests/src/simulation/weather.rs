//! What breaks, and when: the scenario's faults, handed out call by call.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It goes through.
    Fine,
    /// It never arrives; the connection breaks.
    LoseRequest,
    /// It takes hold, and the connection breaks.
    LoseResponse,
    /// It takes hold, and its answer takes longer than anybody waits.
    Slow,
    /// It takes hold long after its sender gave up.
    Late,
    /// It is refused for load.
    Throttle,
    /// It is refused for no reason of its own.
    ServerError,
    /// It is refused for a transaction under way.
    Conflict,
    /// The process dies before it is sent.
    CrashBefore,
    /// The process dies after it took hold.
    CrashAfter,
}

impl Fate {
    /// All that break something.
    pub const FAULTS: [Self; 9] = [
        Self::LoseRequest,
        Self::LoseResponse,
        Self::Slow,
        Self::Late,
        Self::Throttle,
        Self::ServerError,
        Self::Conflict,
        Self::CrashBefore,
        Self::CrashAfter,
    ];
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The table.
    DynamoDb,
    /// The queue.
    Sqs,
    /// What handlers call.
    Outside,
}

/// A time in which a service cannot be reached by anybody.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Which.
    pub service: Service,
    /// From then on, after the begin.
    pub from: Duration,
    /// For so long.
    pub length: Duration,
}

/// The scenario's faults, those left.
#[derive(Debug)]
pub(crate) struct Weather {
    /// After so many further calls, this.
    faults: VecDeque<(u16, Fate)>,
    partitions: Vec<Partition>,
    began: Instant,
    calm: bool,
    chance: fastrand::Rng,
    injected: BTreeMap<Fate, u64>,
    partitioned: u64,
}

impl Weather {
    pub(crate) fn new(faults: &[(u16, Fate)], partitions: &[Partition], seed: u64) -> Self {
        Self {
            faults: faults.iter().copied().collect(),
            partitions: partitions.to_vec(),
            began: Instant::now(),
            calm: false,
            chance: fastrand::Rng::with_seed(seed),
            injected: BTreeMap::new(),
            partitioned: 0,
        }
    }

    /// What becomes of the next call.
    pub(crate) fn next(&mut self, service: Service) -> Fate {
        if self.calm {
            return Fate::Fine;
        }
        let now = self.began.elapsed();
        let cut_off = self.partitions.iter().any(|partition| {
            partition.service == service
                && (partition.from..partition.from + partition.length).contains(&now)
        });
        if cut_off {
            self.partitioned += 1;
            return Fate::LoseRequest;
        }
        let Some((wait, fate)) = self.faults.front_mut() else { return Fate::Fine };
        if *wait > 0 {
            *wait -= 1;
            return Fate::Fine;
        }
        let fate = *fate;
        self.faults.pop_front();
        *self.injected.entry(fate).or_default() += 1;
        fate
    }

    /// How long a call takes.
    pub(crate) fn latency(&mut self) -> Duration {
        Duration::from_micros(self.chance.u64(500..20_000))
    }

    /// One in so many times.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        !self.calm && self.chance.u32(0..times) == 0
    }

    /// From now on nothing breaks.
    pub(crate) fn calm(&mut self) {
        self.calm = true;
    }

    /// Faults that were injected, and calls that a partition cut off.
    pub(crate) fn injected(&self) -> (BTreeMap<Fate, u64>, u64) {
        (self.injected.clone(), self.partitioned)
    }
}

/// One process, as long as it lives.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    dies: Notify,
    /// Faults it has met: an answer is only judged by those that met none.
    pub(crate) disturbed: std::sync::atomic::AtomicU64,
}

impl Process {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        let disturbed = std::sync::atomic::AtomicU64::new(0);
        Self { name: name.into(), dies: Notify::new(), disturbed }
    }

    /// Runs one invocation. `None`: the process died in it.
    pub(crate) async fn run<T>(&self, invocation: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.dies.notified() => None,
            done = invocation => Some(done),
        }
    }

    /// Dies: whatever it was doing is not continued.
    pub(crate) async fn die(&self) -> std::convert::Infallible {
        self.dies.notify_waiters();
        std::future::pending().await
    }
}
