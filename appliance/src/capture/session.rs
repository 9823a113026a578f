//! A running capture: takes frames from the NIC until a limit, its reader or another cause ends it.

use std::collections::HashMap;
use std::time::Duration;

use crossbeam_channel::{Receiver, never, select, tick};
use pcap_file::PcapError;
use vnic_backend::{CapturedFrame, Nic, PortId, heap};

use super::pcapng::PcapngWriter;

/// Limits after which a capture ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Number of frames.
    pub frames: Option<u64>,
    /// Time.
    pub duration: Option<Duration>,
    /// Number of bytes; the capture may exceed it by one frame.
    pub bytes: Option<u64>,
}

/// Cause of the end of a capture.
#[derive(Debug)]
pub enum End {
    /// The capture was stopped, or the NIC ended.
    Stopped,
    /// A limit was reached.
    Limit,
    /// The reader was dropped.
    ReaderGone,
    /// The bytes could not be written.
    Failed(PcapError),
}

/// Approximate size of the chunks for the reader, in bytes.
const CHUNK: usize = 256 << 10;
/// Greatest time between two chunks while there are bytes.
const FLUSH: Duration = Duration::from_millis(100);

/// A running capture.
pub struct Session {
    nic: Nic,
    /// Names of adapters and ports to capture; empty: all.
    owners: Vec<String>,
    snaplen: u32,
    limits: Limits,
}

impl Session {
    /// Makes the session of a capture that is started already, of `owners` (all if empty); [`Session::run`] gets its frames.
    pub fn new(nic: Nic, owners: Vec<String>, snaplen: u32, limits: Limits) -> Session {
        Session {
            nic,
            owners,
            snaplen,
            limits,
        }
    }

    /// Runs until the end. `sink` gets the bytes in order, each time with the number of frames so far; it returns whether
    /// it wants more. The capture ends when `stop` is closed.
    pub fn run(
        &self,
        frames: &Receiver<CapturedFrame>,
        stop: &Receiver<()>,
        mut sink: impl FnMut(Vec<u8>, u64) -> bool,
    ) -> End {
        let end = self.follow(frames, stop, &mut sink);
        end.unwrap_or_else(End::Failed)
    }

    fn follow(
        &self,
        frames: &Receiver<CapturedFrame>,
        stop: &Receiver<()>,
        sink: &mut impl FnMut(Vec<u8>, u64) -> bool,
    ) -> Result<End, PcapError> {
        let mut file = Progress {
            writer: PcapngWriter::new(self.snaplen)?,
            names: HashMap::new(),
            frames: 0,
            taken: 0,
        };
        for name in self.present() {
            file.writer.interface(&name)?;
        }
        if !file.flush(sink) {
            return Ok(End::ReaderGone);
        }
        let deadline = self.limits.duration.map_or_else(never, crossbeam_channel::after);
        let ticks = tick(FLUSH);
        let end = loop {
            select! {
                recv(frames) -> frame => match frame {
                    Ok(frame) => file.add(&self.nic, &frame)?,
                    Err(_) => break End::Stopped,
                },
                recv(stop) -> _ => {
                    // Frames that were captured before the end are part of the file.
                    for frame in frames.try_iter().take(frames.len()) {
                        if self.full(&file) {
                            break;
                        }
                        file.add(&self.nic, &frame)?;
                    }
                    break End::Stopped;
                }
                recv(deadline) -> _ => break End::Limit,
                recv(ticks) -> _ => {
                    // A port number can get a new owner, so names are looked up again.
                    file.names.clear();
                    if !file.flush(sink) {
                        return Ok(End::ReaderGone);
                    }
                }
            }
            if self.full(&file) {
                break End::Limit;
            }
            if file.writer.pending() >= CHUNK && !file.flush(sink) {
                return Ok(End::ReaderGone);
            }
        };
        if !file.flush(sink) {
            return Ok(End::ReaderGone);
        }
        Ok(end)
    }

    /// Whether the limit of frames or bytes is reached.
    fn full(&self, file: &Progress) -> bool {
        self.limits.frames.is_some_and(|most| file.frames >= most)
            || self.limits.bytes.is_some_and(|most| file.bytes() >= most)
    }

    /// Names of existing adapters and ports that are captured.
    fn present(&self) -> Vec<String> {
        let adapters = self.nic.adapters().into_iter().map(|a| a.spec.name);
        let ports = self.nic.ports().into_iter().map(|p| p.spec.name);
        adapters
            .chain(ports)
            .filter(|name| self.owners.is_empty() || self.owners.contains(name))
            .collect()
    }
}

/// The frames that waited are gone: their memory need not stay.
impl Drop for Session {
    fn drop(&mut self) {
        heap::give_back();
    }
}

/// The output so far.
struct Progress {
    writer: PcapngWriter,
    names: HashMap<PortId, String>,
    frames: u64,
    /// Number of bytes that the reader has got.
    taken: u64,
}

impl Progress {
    fn add(&mut self, nic: &Nic, frame: &CapturedFrame) -> Result<(), PcapError> {
        let name = self.names.entry(frame.port).or_insert_with(|| {
            nic.port_name(frame.port)
                .unwrap_or_else(|| format!("removed-{}", frame.port.0))
        });
        self.writer.frame(name, frame)?;
        self.frames += 1;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.taken + self.writer.pending() as u64
    }

    /// Hands the bytes to the reader; returns whether it wants more.
    fn flush(&mut self, sink: &mut impl FnMut(Vec<u8>, u64) -> bool) -> bool {
        let chunk = self.writer.take();
        self.taken += chunk.len() as u64;
        chunk.is_empty() || sink(chunk, self.frames)
    }
}
