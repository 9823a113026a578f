//! The switch compared with a naive model, and flow control in tables.

mod flow_control;
mod model;
