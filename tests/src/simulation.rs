//! The whole system in simulated time: the real receiver, worker and sweeper with the real SDK on
//! DynamoDB and SQS emulated in this process, between providers that repeat themselves, an operator
//! and weather that breaks calls and kills processes.
//!
//! One thread and a paused clock: a scenario runs the same way each time, and days take seconds.
//! [`oracle`] sees every write that takes hold and judges it by the bytes in the table, without the
//! code under test.

mod aws;
pub mod oracle;
mod outside;
mod run;
mod weather;

pub use outside::Kind;
pub use run::{Broken, EventPlan, Late, OperatorAct, Scenario, Simulated, simulate};
pub use weather::{Fate, Partition, Service};
