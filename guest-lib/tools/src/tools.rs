//! The tools: one file each. What is above a tool's loop is in the modules beside.

pub mod devices;
pub mod devinfo;
pub mod doctor;
pub mod rc_pingpong;
pub mod send_lat;
pub mod show_gids;

