//! A TAP device as uplink: one frame a system call, finished in software both ways.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use tun_rs::{DeviceBuilder, Layer, SyncDevice};
use vnic_engine::virtio_net::NetHdr;

use super::device::{Arrived, Opened, RxHalf, Sent, TxHalf, own_address};
use super::link::Links;
use crate::types::{NicError, PortSpec};

/// Frames from the host.
pub struct TapRx(Arc<SyncDevice>);

/// Frames to the host.
pub struct TapTx(Arc<SyncDevice>);

/// Creates the device, or attaches to it when it exists.
pub fn open(spec: &PortSpec, ifname: &str, links: &mut Links) -> Result<Opened, NicError> {
    let refused = |source: io::Error| {
        let what = if source.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) {
            format!(
                "port {}: opening TAP device {ifname} needs the capability CAP_NET_ADMIN; run vnicd with it, or \
                 create the device for its user first: ip tuntap add dev {ifname} mode tap user USER",
                spec.name
            )
        } else if source.kind() == io::ErrorKind::NotFound {
            format!(
                "port {}: /dev/net/tun is missing; load the kernel module tun",
                spec.name
            )
        } else {
            format!("port {}: opening TAP device {ifname}", spec.name)
        };
        NicError::Os { what, source }
    };
    let existed = links.find(ifname).map_err(refused)?.is_some();
    let builder = DeviceBuilder::new().name(ifname).layer(Layer::L2);
    let builder = if existed {
        builder.inherit_enable_state()
    } else {
        builder.mtu(spec.mtu).enable(true)
    };
    let device = builder.build_sync().map_err(refused)?;
    device.set_nonblocking(true).map_err(refused)?;
    let mtu = device.mtu().map_err(refused)?;
    if mtu != spec.mtu {
        let problem = format!(
            "TAP device {ifname} has MTU {mtu}, not {}: set one of them to the other's value",
            spec.mtu
        );
        return Err(NicError::Invalid {
            field: "mtu",
            problem,
        });
    }
    let index = links.find(ifname).map_err(refused)?.map_or(0, |f| f.index);
    let device = Arc::new(device);
    Ok(Opened {
        rx: RxHalf::Tap(TapRx(device.clone())),
        tx: TxHalf::Tap(TapTx(device)),
        mtu,
        mac: own_address(&spec.name),
        index,
    })
}

impl TapRx {
    /// See [`RxHalf::next`].
    pub fn next<'a>(&self, buf: &'a mut [u8]) -> io::Result<Option<Arrived<'a>>> {
        match self.0.recv(buf) {
            Ok(n) => Ok(Some(Arrived {
                bytes: &mut buf[..n],
                hdr: NetHdr::default(),
            })),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// For waiting.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the device owns the descriptor and outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

impl TapTx {
    /// See [`TxHalf::send`].
    pub fn send(&self, frames: &[&[u8]]) -> Sent {
        let Some(first) = frames.first() else {
            return Sent::Some(0);
        };
        match self.0.send(first) {
            Ok(_) => Sent::Some(1),
            // A device that is gone takes nothing; that is found out when it is read.
            Err(_) => Sent::Refused,
        }
    }
}
