//! Integration tests of the command's parts, in one binary so that they link once.

mod sqs;
