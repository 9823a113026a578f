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
    let (mut vlan, mut packet) = (String::new(), payload);
    if ethertype == 0x8100
        && let Some((tag, rest)) = payload.split_at_checked(4)
    {
        vlan = format!(" vlan {}", kind(tag) & 0xfff);
        (ethertype, packet) = (kind(&tag[2..]), rest);
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
    let roce = base_transport(ethertype, packet).map(roce).unwrap_or_default();
    format!(
        "{} > {}{vlan}  {name}{roce}",
        mac(&header[6..12]),
        mac(&header[..6])
    )
}

/// What begins with the base transport header of a RoCE packet: behind a global route header, or behind IP and UDP's port 4791.
fn base_transport(ethertype: u16, packet: &[u8]) -> Option<&[u8]> {
    const UDP: u8 = 17;
    const UDP_LEN: usize = 8;
    const ROUTE_LEN: usize = 40;
    let udp = match (ethertype, packet.first()?) {
        (0x8915, _) => return packet.get(ROUTE_LEN..),
        (0x0800, version) if packet.get(9) == Some(&UDP) => usize::from(version & 0xf) * 4,
        (0x86dd, _) if packet.get(6) == Some(&UDP) => ROUTE_LEN,
        _ => return None,
    };
    (packet.get(udp + 2..udp + 4)? == 4791u16.to_be_bytes()).then(|| packet.get(udp + UDP_LEN..))?
}

/// Operation, destination queue pair and packet sequence number (IBTA volume 1, section 9.2), and what an acknowledge says
/// (section 9.7.5.2.2).
fn roce(packet: &[u8]) -> String {
    let Some((header, rest)) = packet.split_first_chunk::<12>() else {
        return "  shorter than a base transport header".to_owned();
    };
    let [opcode, _, _, _, congestion, qp @ .., ask, p0, p1, p2] = *header;
    let number = |[a, b, c]: [u8; 3]| u32::from_be_bytes([0, a, b, c]);
    let mut text = format!(
        "  {} qp {:#x} psn {}",
        vnic_backend::fault::opcode_name(opcode),
        number(qp),
        number([p0, p1, p2])
    );
    let marks = [
        (congestion & 0x80, " fecn"),
        (congestion & 0x40, " becn"),
        (ask & 0x80, " ack-req"),
    ];
    text.extend(
        marks
            .into_iter()
            .filter(|(bit, _)| *bit != 0)
            .map(|(_, word)| word),
    );
    // Acknowledges of the reliable transports, RC and XRC.
    if matches!(opcode, 0x11 | 0xb1)
        && let Some(syndrome) = rest.first()
    {
        text.push_str(match (syndrome >> 5, syndrome & 0x1f) {
            (0, _) => " ACK",
            (1, _) => " RNR NAK",
            (3, 0) => " NAK: PSN sequence error",
            (3, 1) => " NAK: invalid request",
            (3, 2) => " NAK: remote access error",
            (3, 3) => " NAK: remote operational error",
            (3, 4) => " NAK: invalid RD request",
            _ => " reserved syndrome",
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of RoCE over IPv4 with these bytes from the base transport header on.
    fn frame(transport: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45];
        frame.extend([0; 8]);
        frame.extend([17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0]);
        frame.extend(transport);
        frame
    }

    #[test]
    fn roce_is_told_by_operation_queue_pair_and_sequence_number() {
        let write = frame(&[0x0a, 0x40, 0xff, 0xff, 0, 0, 1, 0x2c, 0x80, 0, 0x10, 1]);
        assert_eq!(
            ethernet(&write),
            "02:00:00:00:00:01 > 02:00:00:00:00:02  IPv4  RC RDMA_WRITE_ONLY qp 0x12c psn 4097 ack-req"
        );
        let mut tagged = write.clone();
        tagged.splice(12..12, [0x81, 0, 0x60, 55]);
        assert!(ethernet(&tagged).contains(" vlan 55  IPv4  RC RDMA_WRITE_ONLY qp 0x12c"));
        let nak = frame(&[
            0x11, 0x40, 0xff, 0xff, 0x40, 0, 1, 0x2c, 0, 0, 0, 7, 0x60, 0, 0, 0,
        ]);
        assert!(ethernet(&nak).ends_with("RC ACKNOWLEDGE qp 0x12c psn 7 becn NAK: PSN sequence error"));
        let mut v1 = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x89, 0x15];
        v1.extend([0; 40]);
        v1.extend([0x64, 0x40, 0xff, 0xff, 0, 0, 1, 0x2c, 0, 0, 0, 1]);
        assert!(ethernet(&v1).ends_with("RoCE  UD SEND_ONLY qp 0x12c psn 1"));
        // Cut short, and not RoCE.
        assert!(ethernet(&write[..50]).ends_with("IPv4  shorter than a base transport header"));
        let mut dns = write;
        dns[36..38].copy_from_slice(&53u16.to_be_bytes());
        assert!(ethernet(&dns).ends_with("IPv4"));
    }
}
