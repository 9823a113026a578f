//! The simulator: the product's engine on the product's network, in virtual time. A seed is a whole run, exactly.
//!
//! [`verbs`] makes a world out of a seed and lets it run; [`oracle`] judges it and knows nothing of how it is done;
//! [`runner`] runs many seeds and adds up what they saw; [`shrink()`](shrink::shrink) makes a failing run smaller;
//! [`commands`] throws random verbs at two devices; [`connections`] lets drivers connect; [`pause`] lets hosts and switches
//! tell each other to wait; [`network`] is a whole data centre, with which [`suite`] repeats published results.
#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
pub mod connections;
pub mod memory;
pub mod network;
pub mod oracle;
pub mod pause;
pub mod plot;
pub mod runner;
pub mod shrink;
pub mod suite;
pub mod verbs;
