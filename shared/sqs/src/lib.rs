//! The queue between receiver and worker. A message carries the event key, never the payload:
//! whoever can read the queue learns what happened, not to whom.

mod look;
mod message;
mod queue;

pub use look::Letter;
pub use message::{Message, NotOurs};
pub use queue::{Outgoing, Queue, QueueError};
