//! Tests of the whole house: benches, house rules, and the machinery that end-to-end cases stand on.

pub mod bench;
pub mod driver;
pub mod house;
pub mod lab;
