//! Captures: copies of frames for the control plane, without delay for the data path.

use std::time::{Duration, SystemTime};

use crossbeam_channel::{Sender, TrySendError};
use vnic_engine::counters::CoreCounter;
use vnic_fabric::DropReason;
use vnic_fabric::switch::PortId;

use crate::datapath::{CoreCounters, OutFrame};
use crate::mem;
use crate::types::{CapturedFrame, Direction};

/// Destination of captured frames.
pub struct Sink {
    /// Captured ports; empty: all.
    pub ports: Vec<PortId>,
    /// Bytes kept of each frame.
    pub snaplen: usize,
    /// Whether only dropped frames are captured.
    pub drops_only: bool,
    /// Channel to the reader.
    pub frames: Sender<CapturedFrame>,
    /// Number of the capture.
    pub id: u64,
}

impl Sink {
    /// Copies a frame for the reader if it is wanted. A frame that finds the channel full is lost, and counted. `time`: by the NIC's
    /// clock, since 1970.
    pub(crate) fn offer(
        &self,
        time: Duration,
        (port, direction): (PortId, Direction),
        f: &OutFrame<'_>,
        (drop, comment): (Option<DropReason>, Option<&str>),
        counters: &CoreCounters,
    ) {
        let wanted = self.ports.is_empty() || self.ports.contains(&port);
        if !wanted || (self.drops_only && drop.is_none()) {
            return;
        }
        let keep = f.len().min(self.snaplen);
        let mut data = vec![0u8; keep];
        let private = keep.min(f.head.len());
        data[..private].copy_from_slice(&f.head[..private]);
        mem::gather(f.segs, f.skip, &mut data[private..]);
        let frame = CapturedFrame {
            time: SystemTime::UNIX_EPOCH + time,
            port,
            direction,
            drop,
            comment: comment.map(Into::into),
            original_len: f.len() as u32,
            data,
        };
        if let Err(TrySendError::Full(_)) = self.frames.try_send(frame) {
            counters.add(CoreCounter::CaptureLost as usize, 1);
        }
    }
}
