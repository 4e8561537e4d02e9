//! The tests of the whole: one binary, one module a subject.

mod bad_input;
mod batches;
mod binaries;
mod coalescing;
mod command;
mod configuration;
mod crash_points;
mod differential;
mod effects;
mod embedded;
mod fifo;
mod fingerprints;
mod http_destination;
mod lost_response;
mod model;
mod parallel;
mod payloads;
mod providers_command;
mod receiver_table;
mod seeded_faults;
mod simulation;
mod sweep;
mod takeover;
mod template;
mod tidy;
mod worker_table;
