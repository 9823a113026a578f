//! Virtual machines, and programs of others, on the real daemon: each test is a case of the lab. `tests/run e2e` runs them, one at a time.

mod clients;
mod dpdk;
mod ethtool;
mod hwstamp;
mod libvirt;
mod moving;
mod pages;
mod ports_guide;
mod qos_guide;
mod rdma;
mod restart;
mod rxe;
mod rxe_bump;
mod rxe_record;
mod tap;
mod two;
mod uml_dropless;
mod uml_qos;
mod uml_two;
mod verbs;
mod verbs_guide;
