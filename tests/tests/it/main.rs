//! The tests of the whole: one binary, one module a subject.

mod receiver_table;
