//! What hookonce decides, and nothing of how it is carried out.
//!
//! Every state change of an event is built here as data: a [`write::GuardedWrite`] says which
//! record changes, under which [`guard::Guard`], and how. `dynamo` renders it for DynamoDB, the
//! simulated ledger of `tests` evaluates it in memory, so what is checked is what runs.
//!
//! Absent on purpose: async, SDK types, the clock, the environment and randomness. `now` and
//! jitter are arguments.

pub mod backoff;
pub mod delivery;
pub mod effects;
pub mod event;
pub mod guard;
pub mod item;
pub mod limits;
pub mod receive;
pub mod record;
pub mod retention;
pub mod seeded;
pub mod sweep;
pub mod time;
pub mod transition;
pub mod write;
