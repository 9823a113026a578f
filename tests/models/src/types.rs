//! In the place of what the NIC is told.

pub struct PortSpec {
    pub name: String,
    pub mtu: u16,
}

#[derive(Debug)]
pub enum NicError {
    Os { what: String, source: std::io::Error },
}
