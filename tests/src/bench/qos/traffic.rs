//! Many guests that send and one that receives, all driven by one thread of this process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::product::Product;
use super::super::testpmd::guest_mac;
use super::series::{Series, WINDOW};
use crate::driver::{Guest, NetHdr, Options};

/// What a frame takes on the wire beside its bytes: preamble, FCS, gap (IEEE 802.3 clause 4).
pub const WIRE: u64 = 24;
/// UDP over IPv4 behind Ethernet.
const HEADERS: usize = 14 + 20 + 8;
/// Frames that a source sends in one go at most.
const BURST: usize = 32;

/// What a source sends.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Adapter that it sends from: `vf<adapter>`.
    pub adapter: usize,
    /// Which stream its frames count for.
    pub stream: u16,
    /// DSCP of its packets.
    pub dscp: u8,
    /// Bytes of a frame without FCS.
    pub frame: usize,
    /// Offered in bit/s on the wire.
    pub rate: f64,
}

/// A guest that sends.
pub struct Source {
    guest: Guest,
    load: Load,
    bytes: Vec<u8>,
    /// Bytes on the wire that it may still send.
    credit: f64,
    seen: Instant,
    /// Frames sent since the beginning.
    pub sent: u64,
}

impl Source {
    /// Attaches it.
    pub fn attach(product: &Product, sink: usize, load: Load, ring: u16) -> Result<Source> {
        let options = Options {
            queue_size: ring,
            post: 32,
            ..Options::default()
        };
        Ok(Source {
            guest: Guest::attach(product.socket(load.adapter), options)?,
            bytes: frame(load.adapter, sink, &load)?,
            load,
            credit: 0.0,
            seen: Instant::now(),
            sent: 0,
        })
    }

    /// Stream of its frames.
    pub fn stream(&self) -> usize {
        usize::from(self.load.stream)
    }

    /// Begins to count time here.
    fn begin(&mut self, now: Instant) {
        (self.seen, self.credit) = (now, 0.0);
    }

    /// Sends what has become due; what does not fit its ring is not made up for.
    fn offer(&mut self, now: Instant) {
        let wire = (self.bytes.len() as u64 + WIRE) as f64;
        self.credit += self.load.rate / 8.0 * (now - self.seen).as_secs_f64();
        self.credit = self.credit.min(BURST as f64 * wire);
        self.seen = now;
        let mut staged = false;
        while self.credit >= wire {
            if !self.guest.stage(0, &self.bytes, NetHdr::default()) {
                self.credit = 0.0;
                break;
            }
            (staged, self.credit, self.sent) = (true, self.credit - wire, self.sent + 1);
        }
        if staged {
            self.guest.tx(0).ring.publish();
        }
    }

    /// Frames that the NIC has not taken yet.
    pub fn waiting(&mut self) -> usize {
        self.guest.reclaim(0)
    }
}

/// A UDP packet whose source port is the number of its stream.
fn frame(from: usize, to: usize, load: &Load) -> Result<Vec<u8>> {
    let mut f = Vec::with_capacity(load.frame);
    for guest in [to, from] {
        let mac: vnic_backend::MacAddr = guest_mac(guest).parse()?;
        f.extend_from_slice(&mac.0);
    }
    ensure!(
        (HEADERS..=1514).contains(&load.frame),
        "a frame of {} bytes",
        load.frame
    );
    let ip = (load.frame - 14) as u16;
    f.extend_from_slice(&[0x08, 0x00, 0x45, load.dscp << 2]);
    f.extend_from_slice(&ip.to_be_bytes());
    // Identification, do not fragment, TTL, UDP, and a checksum that nobody on this way looks at.
    f.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    for guest in [from, to] {
        f.extend_from_slice(&[10, 1, 0, guest as u8]);
    }
    f.extend_from_slice(&load.stream.to_be_bytes());
    f.extend_from_slice(&[0, 9]);
    f.extend_from_slice(&(ip - 20).to_be_bytes());
    f.resize(load.frame, 0);
    Ok(f)
}

/// Which stream a frame counts for.
fn stream(frame: &[u8]) -> usize {
    match frame.get(34..36) {
        Some(port) if frame[12..14] == [0x08, 0x00] => usize::from(port[0]) << 8 | usize::from(port[1]),
        _ => usize::MAX,
    }
}

/// The guest that receives.
pub struct Sink {
    guest: Guest,
    frame: Vec<u8>,
    /// Frames by stream.
    pub frames: Vec<u64>,
    /// Bytes on the wire by stream.
    pub bytes: Vec<u64>,
}

impl Sink {
    /// Attaches it.
    pub fn attach(product: &Product, adapter: usize, streams: usize) -> Result<Sink> {
        let options = Options {
            queue_size: 1024,
            ..Options::default()
        };
        Ok(Sink {
            guest: Guest::attach(product.socket(adapter), options)?,
            frame: Vec::with_capacity(2048),
            frames: vec![0; streams],
            bytes: vec![0; streams],
        })
    }

    /// Takes what is there, at most so many frames; answers how many.
    pub fn take(&mut self, most: usize) -> usize {
        for taken in 0..most {
            if self.guest.try_recv_into(0, &mut self.frame).is_none() {
                return taken;
            }
            let stream = stream(&self.frame);
            if let Some(frames) = self.frames.get_mut(stream) {
                *frames += 1;
                self.bytes[stream] += self.frame.len() as u64 + WIRE;
            }
        }
        most
    }
}

/// Somebody else whom the thread drives in turn.
pub trait Extra {
    /// Its turn.
    fn turn(&mut self) -> Result<()>;

    /// Bytes on the wire by stream that it alone knows of.
    fn count(&self, bytes: &mut [u64]);
}

/// Nobody.
pub struct Nobody;

impl Extra for Nobody {
    fn turn(&mut self) -> Result<()> {
        Ok(())
    }

    fn count(&self, _: &mut [u64]) {}
}

/// Lets all send and the sink receive; counts after `warm_up` for `time`.
pub fn drive(
    sources: &mut [Source],
    sink: &mut Sink,
    extra: &mut dyn Extra,
    warm_up: Duration,
    time: Duration,
) -> Result<Series> {
    let mut series = Series::default();
    let start = Instant::now();
    sources.iter_mut().for_each(|s| s.begin(start));
    let (mut next, end) = (start + warm_up, start + warm_up + time);
    loop {
        sink.take(256);
        let now = Instant::now();
        if now >= next {
            let mut bytes = sink.bytes.clone();
            extra.count(&mut bytes);
            series.push(now, bytes);
            if now >= end {
                return Ok(series);
            }
            next = (next + WINDOW).max(now + WINDOW / 2);
        }
        for source in &mut *sources {
            source.offer(now);
        }
        extra.turn()?;
    }
}

/// Nobody sends any more; receives until everything that was taken has come or nothing comes for so long.
pub fn drain(sources: &mut [Source], sink: &mut Sink, silence: Duration) {
    let mut last = Instant::now();
    while last.elapsed() < silence {
        let waiting: usize = sources.iter_mut().map(Source::waiting).sum();
        if sink.take(256) > 0 || waiting > 0 && last.elapsed() < silence / 2 {
            last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_what_they_are_for() {
        let load = Load {
            adapter: 3,
            stream: 513,
            dscp: 26,
            frame: 1514,
            rate: 1e9,
        };
        let f = frame(3, 0, &load).expect("a frame");
        assert_eq!((f.len(), stream(&f), f[15] >> 2), (1514, 513, 26));
        assert_eq!(stream(&f[..20]), usize::MAX);
        assert!(frame(3, 0, &Load { frame: 20, ..load }).is_err());
    }
}
