//! What people see of a run: a trace in words, and the frames as pcapng.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness};
use vnic_engine::rdma::Completion;
use vnic_wire::transport::{Extended, Headers};

/// `if_tsresol`: nanoseconds.
const NANOSECONDS: u8 = 9;

/// A packet as the trace names it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub from: usize,
    pub to: usize,
    headers: Headers,
    len: usize,
}

impl Seen {
    pub fn of(from: usize, to: usize, headers: &Headers, len: usize) -> Seen {
        Seen {
            from,
            to,
            headers: *headers,
            len,
        }
    }

    fn words(&self) -> String {
        let bth = &self.headers.bth;
        let extra = match self.headers.extended {
            Extended::Aeth(aeth) | Extended::AtomicAck(aeth, _) => {
                format!(" {:?} msn {}", aeth.syndrome, aeth.msn)
            }
            Extended::Reth(reth) | Extended::RethImm(reth, _) => {
                format!(" va {:#x} rkey {:#x} of {}", reth.va, reth.rkey, reth.len)
            }
            _ => String::new(),
        };
        format!(
            "dev{} → dev{} QP {:#x} {} psn {:#x} {} bytes{}{extra}",
            self.from,
            self.to,
            bth.destination_qp,
            bth.opcode,
            bth.psn.value(),
            self.len,
            if bth.ack_request { " A" } else { "" }
        )
    }
}

/// Where trace and frames go.
#[derive(Default)]
pub struct Capture {
    /// Print the trace.
    pub verbose: bool,
    writer: Option<PcapNgWriter<Vec<u8>>>,
}

impl Capture {
    /// Nothing, or with a trace on standard output, or with frames.
    pub fn new(verbose: bool, frames: bool, devices: usize) -> Result<Capture> {
        let mut capture = Capture {
            verbose,
            writer: None,
        };
        if frames {
            let header = SectionHeaderBlock {
                endianness: Endianness::native(),
                options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed("vnic-sim"))],
                ..SectionHeaderBlock::default()
            };
            let mut writer = PcapNgWriter::with_section_header(Vec::new(), header)?;
            for dev in 0..devices {
                writer.write_pcapng_block(InterfaceDescriptionBlock {
                    linktype: DataLink::ETHERNET,
                    snaplen: 0,
                    options: vec![
                        InterfaceDescriptionOption::IfName(Cow::Owned(format!("dev{dev}"))),
                        InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                    ],
                })?;
            }
            capture.writer = Some(writer);
        }
        Ok(capture)
    }

    /// Are frames needed, even where none would be built?
    pub fn wants_frames(&self) -> bool {
        self.writer.is_some()
    }

    /// A line of the trace.
    pub fn note(&self, now: u64, line: impl FnOnce() -> String) {
        if self.verbose {
            // Whoever reads may have seen enough.
            let _ = writeln!(std::io::stdout(), "{:>14.3} µs  {}", now as f64 / 1000.0, line());
        }
    }

    /// A packet, and what the network does to it.
    pub fn packet(&mut self, now: u64, seen: &Seen, frame: Option<&[u8]>, effect: impl Fn() -> String) {
        if self.verbose {
            let effect = effect();
            let note = if effect.is_empty() {
                String::new()
            } else {
                format!("  [{effect}]")
            };
            self.note(now, || format!("{}{note}", seen.words()));
        }
        let (Some(writer), Some(frame)) = (&mut self.writer, frame) else {
            return;
        };
        let mut options = Vec::new();
        let effect = effect();
        if !effect.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Owned(effect)));
        }
        let block = EnhancedPacketBlock {
            interface_id: seen.from as u32,
            timestamp: Duration::from_nanos(now),
            original_len: frame.len() as u32,
            data: Cow::Borrowed(frame),
            options,
        };
        // It is written to memory, which does not fail.
        let _ = writer.write_pcapng_block(block);
    }

    /// A completion.
    pub fn completion(&self, now: u64, dev: usize, c: &Completion) {
        self.note(now, || {
            format!(
                "dev{dev} QP {:#x} completes {:#x} {:?} {:?}, {} bytes",
                c.qp.0, c.wr_id, c.op, c.status, c.byte_len
            )
        });
    }

    /// Writes the frames to a file.
    pub fn save(&mut self, path: &std::path::Path) -> Result<()> {
        let bytes = self.writer.as_mut().map(|w| std::mem::take(w.get_mut()));
        std::fs::write(path, bytes.unwrap_or_default())
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
