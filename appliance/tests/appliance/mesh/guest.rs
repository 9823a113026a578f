//! Somebody behind a port of a daemon: the test itself, through the other end of a port of its own.

use std::time::{Duration, Instant};

use vnic_backend::{PortEnd, PortKind, PortSpec};

use crate::common::lab::Lab;

/// Only so that a test that hangs does not hang for ever.
const LONG: Duration = Duration::from_secs(60);

pub struct Guest {
    pub mac: [u8; 6],
    end: PortEnd,
}

/// A frame of `len` bytes from a guest.
pub fn frame(from: &Guest, to: [u8; 6], len: usize, salt: u8) -> Vec<u8> {
    let mut frame = [&to[..], &from.mac, &[0x88, 0xb5], b"vnic-mesh-payload"].concat();
    frame.resize(len, salt);
    frame
}

impl Guest {
    /// At a port `gN` of the daemon.
    pub fn new(lab: &Lab, number: u8) -> Guest {
        let nic = &lab.daemon.control().nic;
        let name = format!("g{number}");
        let (_, end) = nic
            .add_port_exchange(PortSpec {
                mtu: 9000,
                ..PortSpec::new(
                    name.clone(),
                    PortKind::Mesh {
                        label: "a test".to_owned(),
                    },
                )
            })
            .expect("a port");
        nic.set_port_link(&name, true, None).expect("a link");
        Guest {
            mac: [2, 0, 0, 0, 0, number],
            end,
        }
    }

    pub fn send(&mut self, frame: &[u8]) {
        assert!(self.end.tx.put(frame), "no room");
        self.end.tx.flush();
    }

    /// Sends frames that come to the switch together.
    pub fn send_all(&mut self, frames: &[Vec<u8>]) {
        assert!(frames.iter().all(|frame| self.end.tx.put(frame)), "no room");
        self.end.tx.flush();
    }

    /// The next frame is this one.
    pub async fn expect(&mut self, frame: &[u8]) {
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            if let Some(came) = self.end.rx.next_frame() {
                assert!(
                    came == frame,
                    "{} bytes: {:x?}",
                    came.len(),
                    &came[..came.len().min(64)]
                );
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("no frame of {} bytes", frame.len());
    }

    /// Does this frame come in the next moment? What comes is nothing else, and whole.
    pub async fn comes(&mut self, frame: &[u8]) -> bool {
        for _ in 0..20 {
            while let Some(came) = self.end.rx.next_frame() {
                if came == frame {
                    return true;
                }
                // One of those that were asked for before, late.
                let number = came.last().copied().unwrap_or_default();
                let len = 3000 + usize::from(number) * 100;
                assert!(
                    came.len() == len && came[40..].iter().all(|b| *b == number),
                    "{} bytes",
                    came.len()
                );
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        false
    }

    /// Nothing is there.
    pub fn expect_nothing(&mut self) {
        assert!(self.end.rx.next_frame().is_none(), "a frame");
    }
}
