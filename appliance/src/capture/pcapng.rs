//! Captured frames as pcapng (draft-ietf-opsawg-pcapng): one interface for each adapter or port, the direction in
//! `epb_flags`, the drop reason and the action of fault rules as comments.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcapng::PcapNgWriter as BlockWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use vnic_backend::{CapturedFrame, Direction};

/// `epb_flags`, bits 0 and 1 (section 4.3.1): 01 inbound, 10 outbound.
const INBOUND: u32 = 0b01;
const OUTBOUND: u32 = 0b10;
/// Value of `if_tsresol`: nanoseconds.
const NANOSECONDS: u8 = 9;

/// Writer of pcapng blocks in memory; [`PcapngWriter::take`] returns the bytes.
pub struct PcapngWriter {
    blocks: BlockWriter<Vec<u8>>,
    names: Vec<String>,
    snaplen: u32,
}

impl PcapngWriter {
    /// Writes the section header; `snaplen` is the interfaces' `if_snaplen`.
    pub fn new(snaplen: u32) -> Result<PcapngWriter, PcapError> {
        let header = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(Cow::Owned(format!(
                "vnicd {}",
                crate::VERSION
            )))],
            ..SectionHeaderBlock::default()
        };
        Ok(PcapngWriter {
            blocks: BlockWriter::with_section_header(Vec::new(), header)?,
            names: Vec::new(),
            snaplen,
        })
    }

    /// Number of the interface `name`; a new one gets a description block.
    pub fn interface(&mut self, name: &str) -> Result<u32, PcapError> {
        if let Some(index) = self.names.iter().position(|n| n == name) {
            return Ok(index_of(index));
        }
        self.blocks.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snaplen,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        })?;
        self.names.push(name.to_owned());
        Ok(index_of(self.names.len() - 1))
    }

    /// Writes a frame of the interface `name`.
    pub fn frame(&mut self, name: &str, frame: &CapturedFrame) -> Result<(), PcapError> {
        let interface_id = self.interface(name)?;
        let flags = match frame.direction {
            Direction::Ingress => INBOUND,
            Direction::Egress => OUTBOUND,
        };
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        if let Some(reason) = frame.drop {
            let comment = format!("dropped: {}", reason.name());
            options.push(EnhancedPacketOption::Comment(Cow::Owned(comment)));
        }
        if let Some(comment) = &frame.comment {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(comment)));
        }
        self.blocks.write_pcapng_block(EnhancedPacketBlock {
            interface_id,
            timestamp: since_epoch(frame.time),
            original_len: frame.original_len,
            data: Cow::Borrowed(&frame.data),
            options,
        })?;
        Ok(())
    }

    /// Number of bytes to take.
    pub fn pending(&self) -> usize {
        self.blocks.get_ref().len()
    }

    /// Takes the bytes so far.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.blocks.get_mut())
    }
}

fn index_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
