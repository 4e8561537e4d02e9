//! What handlers do, and the services they call.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::effects::StepPolicy;
use futures::future::BoxFuture;
use worker::{Effects, Event, Failure, handlers::Handler};

use super::{
    aws::Aws,
    weather::{Fate, Process, Service},
};
use crate::shop::credit;

/// How an event's handler behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A local write alone.
    Local,
    /// A step that may be repeated, and a local write.
    Repeat,
    /// A step that must not be repeated.
    Never,
    /// A step whose callee can be asked.
    Reconcile,
    /// Two steps, the second of which must not be repeated.
    Steps,
    /// Two steps, the first of which must not be repeated.
    NeverFirst,
    /// Fails twice, then does as `Repeat`.
    Flaky,
    /// Panics the first time.
    Panics,
    /// Takes longer than there is time for, the first time.
    Slow,
    /// Never succeeds.
    Permanent,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Local,
        Self::Repeat,
        Self::Never,
        Self::Reconcile,
        Self::Steps,
        Self::NeverFirst,
        Self::Flaky,
        Self::Panics,
        Self::Slow,
        Self::Permanent,
    ];

    /// Steps that a done event of this kind has made.
    pub(crate) const fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Local | Self::Permanent => &[],
            Self::Repeat | Self::Flaky | Self::Panics | Self::Slow => &["charge"],
            Self::Never => &["mail"],
            Self::Reconcile => &["ship"],
            Self::Steps | Self::NeverFirst => &["charge", "mail"],
        }
    }
}

/// What the outside services did: effects by event and step. One that is repeated under its key
/// counts once; mail and shipments know no keys, and count each time.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    effects: Mutex<BTreeMap<(String, String), Effect>>,
}

#[derive(Debug, Default)]
struct Effect {
    calls: u32,
    keys: BTreeSet<String>,
}

impl Outside {
    pub(crate) fn effects(&self, pk: &str, step: &str) -> u32 {
        let effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let effect = effects.get(&(pk.to_owned(), step.to_owned()));
        effect.map_or(0, |effect| match step {
            "charge" => u32::try_from(effect.keys.len()).unwrap_or(u32::MAX),
            _ => effect.calls,
        })
    }

    fn take_effect(&self, call: &Call) {
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let effect = effects.entry((call.pk.clone(), call.step.to_owned())).or_default();
        effect.calls += 1;
        effect.keys.insert(call.key.clone());
    }
}

/// One worker's handler.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) aws: Arc<Aws>,
    pub(crate) process: Arc<Process>,
    pub(crate) outside: Arc<Outside>,
    pub(crate) kinds: Arc<BTreeMap<String, Kind>>,
}

struct Call {
    pk: String,
    step: &'static str,
    key: String,
    fence: i64,
}

impl Handler for Work {
    fn handle<'a>(
        &'a self,
        event: &'a Event,
        effects: &'a mut Effects<'_>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let kind = self.kinds[&event.key.pk()];
        Box::pin(async move {
            effects.write(credit(event))?;
            match kind {
                Kind::Local => Ok(()),
                Kind::Repeat => self.step(event, effects, "charge", StepPolicy::Repeat).await,
                Kind::Never => self.step(event, effects, "mail", StepPolicy::Never).await,
                Kind::Reconcile => self.ship(event, effects).await,
                Kind::Steps => {
                    self.step(event, effects, "charge", StepPolicy::Repeat).await?;
                    self.step(event, effects, "mail", StepPolicy::Never).await
                }
                Kind::NeverFirst => {
                    self.step(event, effects, "mail", StepPolicy::Never).await?;
                    self.step(event, effects, "charge", StepPolicy::Repeat).await
                }
                Kind::Flaky if event.attempt <= 2 => {
                    self.step(event, effects, "charge", StepPolicy::Repeat).await?;
                    Err(Failure::retry("flaky", "not yet"))
                }
                Kind::Panics if event.attempt == 1 => {
                    // Without the hook that would print it.
                    std::panic::resume_unwind(Box::new("as the scenario says"))
                }
                Kind::Slow if event.attempt == 1 => {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    Ok(())
                }
                Kind::Flaky | Kind::Panics | Kind::Slow => {
                    self.step(event, effects, "charge", StepPolicy::Repeat).await
                }
                Kind::Permanent => Err(Failure::permanent("never", "as the scenario says")),
            }
        })
    }
}

impl Work {
    async fn step(
        &self,
        event: &Event,
        effects: &mut Effects<'_>,
        step: &'static str,
        policy: StepPolicy,
    ) -> Result<(), Failure> {
        let result: String =
            effects.step(step, policy, async |key| self.call(event, step, key).await).await?;
        self.aws.oracle().returned(&event.key.pk(), step, &result);
        Ok(())
    }

    async fn ship(&self, event: &Event, effects: &mut Effects<'_>) -> Result<(), Failure> {
        let made = self.outside.effects(&event.key.pk(), "ship") > 0;
        let ask = async |_key| Ok(made.then(|| "ship".to_owned()));
        let call = async |key| self.call(event, "ship", key).await;
        effects.reconciled_step("ship", ask, call).await.map(|_: String| ())
    }

    async fn call(
        &self,
        event: &Event,
        step: &'static str,
        key: String,
    ) -> Result<String, Failure> {
        let call = Call { pk: event.key.pk(), step, key, fence: event.attempt.into() };
        let fate = self.aws.fate(Service::Outside, &self.process);
        let latency = self.aws.weather().latency();
        tokio::time::sleep(latency).await;
        match fate {
            Fate::Fine => {
                self.take_effect(&call);
                Ok(step.to_owned())
            }
            // What arrives late cannot be asked about in time: a reconciled callee is not made to.
            Fate::Late if step != "ship" => {
                let (aws, outside) = (Arc::clone(&self.aws), Arc::clone(&self.outside));
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    take_effect(&aws, &outside, &call);
                });
                Err(Failure::retry("late", "no answer"))
            }
            Fate::LoseRequest
            | Fate::Late
            | Fate::Throttle
            | Fate::ServerError
            | Fate::Conflict => Err(Failure::retry("lost", "not made")),
            Fate::LoseResponse => {
                self.take_effect(&call);
                Err(Failure::retry("lost", "no answer"))
            }
            Fate::Slow => {
                self.take_effect(&call);
                tokio::time::sleep(Duration::from_secs(600)).await;
                Ok(step.to_owned())
            }
            Fate::CrashBefore => match self.process.die().await {},
            Fate::CrashAfter => {
                self.take_effect(&call);
                match self.process.die().await {}
            }
        }
    }

    fn take_effect(&self, call: &Call) {
        take_effect(&self.aws, &self.outside, call);
    }
}

fn take_effect(aws: &Aws, outside: &Outside, call: &Call) {
    outside.take_effect(call);
    aws.oracle().called(aws.now(), &call.pk, call.step, &call.key, call.fence);
}

/// Within the lease of the attempt that made the call, and past it.
const LATE: Duration = Duration::from_secs(40);
