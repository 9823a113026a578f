//! The switch compared with a naive model, flow control in tables, and quality of service by path beside OpenSM.

mod flow_control;
mod model;
mod subnet;
mod subnet_agent;
