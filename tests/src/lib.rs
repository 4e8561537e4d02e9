//! What the tests share: a small world with the real receiver, worker and sweeper on an emulator
//! over the wire, a proxy that breaks calls on order, handlers that misbehave, and a simulated
//! ledger that evaluates guards in memory.

pub mod deliveries;
pub mod dev;
pub mod handlers;
pub mod ledger;
pub mod play;
pub mod programs;
pub mod proxy;
pub mod shop;
pub mod world;
