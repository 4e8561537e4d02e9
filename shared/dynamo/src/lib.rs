//! The ledger on DynamoDB: guarded writes as conditional calls, one round trip per outcome.
//!
//! Absent on purpose: any decision. What may change, and when, is `domain`'s.

mod browse;
mod expression;
mod inspect;
mod item;
mod ledger;
mod outcome;
pub mod payload;
mod table;

pub use browse::Scanned;
pub use inspect::{Index, Table};
pub use ledger::{Backlog, Committed, Ledger, Returning};
pub use outcome::{LedgerError, RetryConflicts};
pub use table::create_table;
