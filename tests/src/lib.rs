//! What the tests share: a small world with the real receiver, worker and sweeper on an emulator
//! over the wire, proxies that break calls or kill the caller on order, handlers that misbehave,
//! providers' hosts and services that keep books, and a simulated ledger that evaluates guards in
//! memory.

pub mod bucket;
pub mod deliveries;
pub mod dev;
pub mod handlers;
pub mod hosts;
pub mod ledger;
pub mod logged;
pub mod outside;
pub mod play;
pub mod programs;
pub mod proxy;
pub mod seeded;
pub mod shop;
pub mod simulation;
pub mod wire;
pub mod world;
