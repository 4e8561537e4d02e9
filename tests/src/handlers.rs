//! A handler that does as a test tells it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use domain::effects::StepName;
use futures::future::BoxFuture;
use worker::{Effects, Event, Failure, handlers::Handler};

/// What a handler does with one event.
pub type Script = Arc<
    dyn for<'a, 'b> Fn(&'a Event, &'a mut Effects<'b>) -> BoxFuture<'a, Result<(), Failure>>
        + Send
        + Sync,
>;

/// A handler that follows a script, and counts how often it was called.
pub struct Scripted {
    script: Script,
    opening: Option<StepName>,
    /// How often it was called.
    pub calls: AtomicUsize,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    /// A handler that follows `script`.
    pub fn new<F>(script: F) -> Arc<Self>
    where
        F: for<'a, 'b> Fn(&'a Event, &'a mut Effects<'b>) -> BoxFuture<'a, Result<(), Failure>>
            + Send
            + Sync
            + 'static,
    {
        Arc::new(Self { script: Arc::new(script), opening: None, calls: AtomicUsize::new(0) })
    }

    /// As [`Scripted::new`], declaring its opening step.
    pub fn opening<F>(step: &str, script: F) -> Arc<Self>
    where
        F: for<'a, 'b> Fn(&'a Event, &'a mut Effects<'b>) -> BoxFuture<'a, Result<(), Failure>>
            + Send
            + Sync
            + 'static,
    {
        let opening = Some(StepName::new(step).expect("a step name"));
        Arc::new(Self { script: Arc::new(script), opening, calls: AtomicUsize::new(0) })
    }

    /// How often it was called.
    #[must_use]
    pub fn called(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Handler for Scripted {
    fn handle<'a>(
        &'a self,
        event: &'a Event,
        effects: &'a mut Effects<'_>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.script)(event, effects)
    }

    fn opening_step(&self, _event_type: Option<&str>) -> Option<StepName> {
        self.opening.clone()
    }
}
