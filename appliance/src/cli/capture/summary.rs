//! Text of a live capture, a line for each frame: time, interface, direction, addresses, protocol, and drop reason.

use std::fmt::Write as _;

use pcap_file::PcapError;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgParser};

use crate::cli::{Failure, text};

/// Decodes pcapng into lines; each chunk has whole blocks.
#[derive(Default)]
pub struct Lines {
    parser: Option<PcapNgParser>,
}

impl Lines {
    /// Lines of the next chunk.
    pub fn chunk(&mut self, pcapng: &[u8]) -> Result<String, Failure> {
        self.read(pcapng)
            .map_err(|e| Failure::Failed(format!("the daemon sent a broken capture: {e}")))
    }

    fn read(&mut self, mut rest: &[u8]) -> Result<String, PcapError> {
        let mut lines = String::new();
        if rest.is_empty() {
            return Ok(lines);
        }
        if self.parser.is_none() {
            let (after, parser) = PcapNgParser::new(rest)?;
            (rest, self.parser) = (after, Some(parser));
        }
        let Some(parser) = &mut self.parser else {
            return Ok(lines);
        };
        while !rest.is_empty() {
            let (after, block) = parser.next_block(rest)?;
            rest = after;
            if let Block::EnhancedPacket(packet) = block {
                let interface = usize::try_from(packet.interface_id)
                    .ok()
                    .and_then(|i| parser.interfaces().get(i));
                let name = interface.and_then(|i| {
                    i.options.iter().find_map(|o| match o {
                        InterfaceDescriptionOption::IfName(name) => Some(name.as_ref()),
                        _ => None,
                    })
                });
                line(&mut lines, name.unwrap_or("?"), &packet);
            }
        }
        Ok(lines)
    }
}

fn line(lines: &mut String, interface: &str, packet: &EnhancedPacketBlock<'_>) {
    let mut way = "?";
    let mut remark = String::new();
    for option in &packet.options {
        match option {
            EnhancedPacketOption::Flags(flags) if flags & 3 == 1 => way = "in ",
            EnhancedPacketOption::Flags(flags) if flags & 3 == 2 => way = "out",
            EnhancedPacketOption::Comment(comment) => {
                let _ = write!(remark, "  {comment}");
            }
            _ => {}
        }
    }
    let since = prost_types::Timestamp {
        seconds: i64::try_from(packet.timestamp.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(packet.timestamp.subsec_nanos()).unwrap_or(0),
    };
    let _ = writeln!(
        lines,
        "{}  {interface:<15}  {way}  {}  {} bytes{remark}",
        text::time(Some(since)),
        ethernet(&packet.data),
        packet.original_len
    );
}

/// The Ethernet header in words.
fn ethernet(data: &[u8]) -> String {
    let Some((header, payload)) = data.split_at_checked(14) else {
        return "shorter than an Ethernet header".to_owned();
    };
    let mac = |bytes: &[u8]| {
        let parts: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
        parts.join(":")
    };
    let kind = |bytes: &[u8]| match bytes {
        [a, b, ..] => u16::from_be_bytes([*a, *b]),
        _ => 0,
    };
    let mut ethertype = kind(&header[12..]);
    let mut vlan = String::new();
    if ethertype == 0x8100
        && let Some((tag, _)) = payload.split_at_checked(4)
    {
        vlan = format!(" vlan {}", kind(tag) & 0xfff);
        ethertype = kind(&tag[2..]);
    }
    let name = match ethertype {
        0x0800 => "IPv4".to_owned(),
        0x0806 => "ARP".to_owned(),
        0x86dd => "IPv6".to_owned(),
        0x8808 => "pause".to_owned(),
        0x88cc => "LLDP".to_owned(),
        0x8915 => "RoCE".to_owned(),
        other => format!("0x{other:04x}"),
    };
    format!("{} > {}{vlan}  {name}", mac(&header[6..12]), mac(&header[..6]))
}
