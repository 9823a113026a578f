//! One running capture: takes frames from the NIC until a limit, its reader or someone else ends it.

use std::collections::HashMap;
use std::time::Duration;

use crossbeam_channel::{Receiver, never, select, tick};
use pcap_file::PcapError;
use vnic_backend::{CapturedFrame, Nic, PortId};

use super::pcapng::PcapngWriter;

/// When a capture ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// After this many frames.
    pub frames: Option<u64>,
    /// After this time.
    pub duration: Option<Duration>,
    /// Before it gets larger than this many bytes.
    pub bytes: Option<u64>,
}

/// Why a capture ended.
#[derive(Debug)]
pub enum End {
    /// Someone asked for it, or the NIC ended.
    Stopped,
    /// A limit was reached.
    Limit,
    /// The reader is gone.
    ReaderGone,
    /// The bytes could not be made.
    Failed(PcapError),
}

/// Bytes handed to the reader at once, about.
const CHUNK: usize = 256 << 10;
/// At least this often the reader gets what there is.
const FLUSH: Duration = Duration::from_millis(100);

/// One running capture.
pub struct Session {
    nic: Nic,
    /// Adapters and ports that are asked for; empty: all.
    owners: Vec<String>,
    snaplen: u32,
    limits: Limits,
}

impl Session {
    /// A capture of `owners` (all when empty), which is started already and gives its frames to [`Session::run`].
    pub fn new(nic: Nic, owners: Vec<String>, snaplen: u32, limits: Limits) -> Session {
        Session {
            nic,
            owners,
            snaplen,
            limits,
        }
    }

    /// Runs until the end. `sink` gets the bytes in order, each time with the number of frames so far; it says
    /// whether it wants more. `stop` ends the capture when it is closed.
    pub fn run(
        &self,
        frames: &Receiver<CapturedFrame>,
        stop: &Receiver<()>,
        mut sink: impl FnMut(Vec<u8>, u64) -> bool,
    ) -> End {
        match self.follow(frames, stop, &mut sink) {
            Ok(end) => end,
            Err(error) => End::Failed(error),
        }
    }

    fn follow(
        &self,
        frames: &Receiver<CapturedFrame>,
        stop: &Receiver<()>,
        sink: &mut impl FnMut(Vec<u8>, u64) -> bool,
    ) -> Result<End, PcapError> {
        let mut writer = PcapngWriter::new(self.snaplen)?;
        let mut seen = 0u64;
        let mut bytes = 0u64;
        for name in self.present() {
            writer.interface(&name)?;
        }
        let mut flush = |writer: &mut PcapngWriter, seen: u64| {
            let chunk = writer.take();
            chunk.is_empty() || sink(chunk, seen)
        };
        bytes += length(&writer);
        if !flush(&mut writer, 0) {
            return Ok(End::ReaderGone);
        }
        let deadline = self.limits.duration.map_or_else(never, crossbeam_channel::after);
        let ticks = tick(FLUSH);
        let mut names: HashMap<PortId, String> = HashMap::new();
        // How much of what waits in the writer is counted in `bytes`.
        let mut counted = 0u64;
        let end = loop {
            let frame = select! {
                recv(frames) -> frame => match frame {
                    Ok(frame) => frame,
                    Err(_) => break End::Stopped,
                },
                recv(stop) -> _ => break End::Stopped,
                recv(deadline) -> _ => break End::Limit,
                recv(ticks) -> _ => {
                    // A port's number can get a new owner: names are good until here.
                    names.clear();
                    counted = 0;
                    if !flush(&mut writer, seen) {
                        return Ok(End::ReaderGone);
                    }
                    continue;
                }
            };
            let name = names.entry(frame.port).or_insert_with(|| {
                self.nic
                    .port_name(frame.port)
                    .unwrap_or_else(|| format!("removed-{}", frame.port.0))
            });
            writer.frame(name, &frame)?;
            seen += 1;
            bytes += length(&writer) - counted;
            counted = length(&writer);
            let full = self.limits.bytes.is_some_and(|most| bytes >= most);
            if full || self.limits.frames.is_some_and(|most| seen >= most) {
                break End::Limit;
            }
            if writer.pending() >= CHUNK {
                counted = 0;
                if !flush(&mut writer, seen) {
                    return Ok(End::ReaderGone);
                }
            }
        };
        if !flush(&mut writer, seen) {
            return Ok(End::ReaderGone);
        }
        Ok(end)
    }

    /// Adapters and ports that exist now and are asked for.
    fn present(&self) -> Vec<String> {
        let adapters = self.nic.adapters().into_iter().map(|a| a.spec.name);
        let ports = self.nic.ports().into_iter().map(|p| p.spec.name);
        adapters
            .chain(ports)
            .filter(|name| self.owners.is_empty() || self.owners.contains(name))
            .collect()
    }
}

fn length(writer: &PcapngWriter) -> u64 {
    u64::try_from(writer.pending()).unwrap_or(u64::MAX)
}
