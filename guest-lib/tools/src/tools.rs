//! The tools, one file each. The modules beside have their common parts.

pub mod atomic_lat;
pub mod devices;
pub mod devinfo;
pub mod doctor;
pub mod rc_pingpong;
pub mod read_bw;
pub mod read_lat;
pub mod send_bw;
pub mod send_lat;
pub mod show_gids;
pub mod srq_pingpong;
pub mod ud_pingpong;
pub mod write_bw;
pub mod write_lat;
