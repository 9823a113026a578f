//! The RDMA function, by both of its drivers: a module for each thing that it does.

mod congestion;
mod congestion_settings;
mod contract;
mod data;
mod deaths;
mod faults;
mod gid_owners;
mod gids;
mod journal;
mod lag;
mod limits;
mod mode;
mod order;
mod preload_objects;
mod preload_work;
mod processes;
mod qos;
mod reset;
mod rings;
mod scenarios;
mod sysfs;
mod testkit;
mod tools;
mod verbs;
mod verbs_faults;
mod wire;
