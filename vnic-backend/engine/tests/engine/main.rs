//! The engine, with time, memory and frames as arguments: a module for each thing that it decides.

mod clock;
mod cm;
mod coalesce;
mod counter_names;
mod dcqcn;
mod dcqcn_plus;
mod dropless;
mod gids;
mod moderation;
mod offload;
mod oid;
mod program;
mod rdma;
mod rdma_objects;
mod rdma_regions;
mod rdma_regions_model;
mod rdma_states;
mod rmpp;
mod settings;
