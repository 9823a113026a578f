//! One module a target, or a few that are alike.

pub mod cm;
pub mod commands;
pub mod driver;
pub mod engine;
pub mod files;
pub mod gids;
pub mod grpc;
pub mod lacp;
pub mod lldp;
pub mod mesh;
pub mod packed;
pub mod ring;
pub mod roce;
pub mod vhost;
pub mod work;
