//! The other end of an uplink's TAP device.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, bind, socket};
use vnic_backend::{NicError, PortKind, PortSpec};

use super::rig::{Rig, deadline};

/// What is on an uplink's wire.
pub struct Wire(OwnedFd);

impl Wire {
    /// The wire of an uplink port `p0` that is made for it, on this core or any; none where this machine makes no TAP
    /// devices.
    pub fn of_port(rig: &Rig, ifname: &str, core: Option<usize>) -> Result<Option<Wire>> {
        let port = PortSpec {
            data_core: core.map(|i| rig.cores[i]),
            ..PortSpec::new(
                "p0",
                PortKind::Tap {
                    ifname: ifname.into(),
                    queues: 1,
                },
            )
        };
        match rig.nic.add_port(port) {
            Err(NicError::Os { what, source }) => {
                println!("skipped: {what}: {source}");
                Ok(None)
            }
            Err(other) => Err(other.into()),
            Ok(_) => Wire::open(ifname).map(Some),
        }
    }

    /// That of an interface.
    pub fn open(ifname: &str) -> Result<Wire> {
        let mut all = getifaddrs()?;
        let link = all.find_map(|a| {
            a.address
                .filter(|_| a.interface_name == ifname)?
                .as_link_addr()
                .copied()
        });
        let link = link.with_context(|| format!("no interface {ifname}"))?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        bind(fd.as_raw_fd(), &link)?;
        Ok(Wire(fd))
    }

    /// Sends a frame to the NIC.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        let sent = rustix::io::write(&self.0, frame).context("sending to the wire")?;
        ensure!(sent == frame.len());
        Ok(())
    }

    /// The next frame, in either direction, if there is one.
    pub fn try_recv(&self) -> Option<Vec<u8>> {
        let mut buf = vec![0; 10_000];
        let n = rustix::io::read(&self.0, &mut buf).ok()?;
        buf.truncate(n);
        Some(buf)
    }

    /// Waits for a frame like this; others are gone.
    pub fn recv(&self, mut want: impl FnMut(&[u8]) -> bool) -> Result<Vec<u8>> {
        let end = deadline();
        loop {
            match self.try_recv() {
                Some(f) if want(&f) => return Ok(f),
                Some(_) => {}
                None => std::thread::sleep(Duration::from_micros(100)),
            }
            ensure!(Instant::now() < end, "nothing on the wire");
        }
    }
}
