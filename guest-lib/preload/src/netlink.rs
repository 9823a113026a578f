//! Netlink's RDMA family for iproute2's `rdma`: questions about our devices, answered as the kernel answers about its own
//! (`linux/rdma_netlink.h`; kernel, `drivers/infiniband/core/nldev.c`).
//!
//! ```text
//!  message    len u32, type u16, flags u16, sequence u32, port u32, attributes …
//!  attribute  len u16, type u16, value, zeros up to a multiple of 4; the value of a table is attributes
//! ```

use vnic_verbs::{DeviceAttributes, GidEntry, PortState};

use crate::devices::{self, Device};

/// Length of a message's header.
const HEADER: usize = 16;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_MULTI: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The client `RDMA_NL_NLDEV`, in the upper bits of a message's type.
const NLDEV: u16 = 5 << 10;

/// Commands (`RDMA_NLDEV_CMD_*`).
mod command {
    pub const GET: u16 = 1;
    pub const PORT_GET: u16 = 5;
    pub const SYS_GET: u16 = 6;
    pub const RES_GET: u16 = 9;
    /// Objects, one by one: the kernel lists those of all processes, and no process knows those of others here.
    pub const RES_QP_GET: u16 = 10;
    pub const RES_PD_GET: u16 = 14;
    pub const STAT_GET: u16 = 17;
    pub const RES_CTX_GET: u16 = 22;
    pub const RES_SRQ_GET: u16 = 23;
}

/// Attributes (`RDMA_NLDEV_ATTR_*`).
mod attribute {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const PORT_INDEX: u16 = 3;
    pub const CAP_FLAGS: u16 = 4;
    pub const FW_VERSION: u16 = 5;
    pub const NODE_GUID: u16 = 6;
    pub const SYS_IMAGE_GUID: u16 = 7;
    pub const PORT_STATE: u16 = 12;
    pub const PORT_PHYS_STATE: u16 = 13;
    pub const DEV_NODE_TYPE: u16 = 14;
    pub const RES_SUMMARY: u16 = 15;
    pub const RES_SUMMARY_ENTRY: u16 = 16;
    pub const RES_SUMMARY_ENTRY_NAME: u16 = 17;
    pub const RES_SUMMARY_ENTRY_CURR: u16 = 18;
    pub const NDEV_INDEX: u16 = 50;
    pub const NDEV_NAME: u16 = 51;
    pub const SYS_NETNS_MODE: u16 = 66;
    pub const DEV_PROTOCOL: u16 = 67;
    pub const STAT_HWCOUNTERS: u16 = 80;
    pub const STAT_HWCOUNTER_ENTRY: u16 = 81;
    pub const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
}

/// Attributes that are written one behind the other.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn put(&mut self, kind: u16, value: &[u8]) {
        let len = (value.len() + 4) as u16;
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes);
    }

    fn u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    fn u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// A table.
    fn table(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes)) {
        let mut inner = Attributes::default();
        fill(&mut inner);
        self.put(kind, &inner.0);
    }
}

/// A question.
struct Question {
    kind: u16,
    flags: u16,
    sequence: u32,
    device: Option<u32>,
}

impl Question {
    fn parse(message: &[u8]) -> Option<Question> {
        let half = |at: usize| Some(u16::from_ne_bytes(message.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
        let end = (word(0)? as usize).min(message.len());
        let mut question = Question {
            kind: half(4)?,
            flags: half(6)?,
            sequence: word(8)?,
            device: None,
        };
        let mut at = HEADER;
        while at + 4 <= end {
            let len = usize::from(half(at)?);
            if half(at + 2)? == attribute::DEV_INDEX {
                question.device = word(at + 4);
            }
            at += len.max(4).next_multiple_of(4);
        }
        Some(question)
    }

    fn dumps(&self) -> bool {
        self.flags & NLM_F_DUMP == NLM_F_DUMP
    }

    /// A message to the port that asked.
    fn message(&self, port: u32, kind: u16, attributes: &[u8]) -> Vec<u8> {
        let flags = if self.dumps() { NLM_F_MULTI } else { 0 };
        let mut message = ((HEADER + attributes.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(port.to_ne_bytes());
        message.extend(attributes);
        message
    }

    /// The end: of a list, or the acknowledgement; `error` is an errno, or 0.
    fn end(&self, port: u32, error: i32) -> Option<Vec<u8>> {
        let mut value = (-error).to_ne_bytes().to_vec();
        if self.dumps() && error == 0 {
            return Some(self.message(port, NLMSG_DONE, &value));
        }
        // With the header of the question.
        value.extend(&self.message(port, self.kind, &[])[..HEADER]);
        (error != 0 || self.flags & NLM_F_ACK != 0).then(|| self.message(port, NLMSG_ERROR, &value))
    }
}

/// Answers to a message that the socket with this port has sent.
pub fn answers(message: &[u8], port: u32) -> Vec<Vec<u8>> {
    let Some(question) = Question::parse(message) else {
        return Vec::new();
    };
    let Some(asked) = question.kind.checked_sub(NLDEV).filter(|c| *c < 1 << 10) else {
        return Vec::from_iter(question.end(port, libc::EOPNOTSUPP));
    };
    let mut answers = Vec::new();
    let mut error = 0;
    match asked {
        command::SYS_GET => {
            let mut reply = Attributes::default();
            // Devices are shared between network namespaces.
            reply.put(attribute::SYS_NETNS_MODE, &[1]);
            answers.push(question.message(port, question.kind, &reply.0));
        }
        command::GET | command::PORT_GET | command::RES_GET | command::STAT_GET => {
            let all = devices::list();
            let wanted = all
                .iter()
                .enumerate()
                .filter(|(i, _)| question.device.is_none_or(|d| d == *i as u32));
            for (index, device) in wanted {
                let mut reply = Attributes::default();
                match describe(asked, index as u32, device, &mut reply) {
                    Some(()) => answers.push(question.message(port, question.kind, &reply.0)),
                    None => error = libc::ENODEV,
                }
            }
            if answers.is_empty() && !question.dumps() {
                error = libc::ENODEV;
            }
        }
        command::RES_QP_GET..=command::RES_PD_GET | command::RES_CTX_GET | command::RES_SRQ_GET
            if question.dumps() => {}
        _ => error = libc::EOPNOTSUPP,
    }
    answers.extend(question.end(port, error));
    answers
}

/// Writes what a command asks of a device. `None`: it cannot be opened.
fn describe(asked: u16, index: u32, device: &Device, reply: &mut Attributes) -> Option<()> {
    use attribute as a;
    let seat = device.seat().ok()?;
    let context = &seat.device;
    reply.u32(a::DEV_INDEX, index);
    reply.text(a::DEV_NAME, &device.name().to_string_lossy());
    // Of a device it is the number of its ports; they are counted from 1.
    reply.u32(a::PORT_INDEX, 1);
    let done = (|| {
        match asked {
            command::GET => {
                let attributes: DeviceAttributes = context.query_device();
                let guid = u64::from_be_bytes(attributes.node_guid);
                reply.text(a::FW_VERSION, &attributes.firmware());
                reply.u64(a::NODE_GUID, guid);
                reply.u64(a::SYS_IMAGE_GUID, guid);
                reply.put(a::DEV_NODE_TYPE, &[1]);
                reply.text(a::DEV_PROTOCOL, "roce");
            }
            command::PORT_GET => {
                let up = context.query_port().ok()?.state() == PortState::Active;
                // GIDs are IP addresses.
                reply.u64(a::CAP_FLAGS, 1 << 26);
                reply.put(a::PORT_STATE, &[if up { 4 } else { 1 }]);
                reply.put(a::PORT_PHYS_STATE, &[if up { 5 } else { 3 }]);
                if let Some((index, name)) = GidEntry::port_interface(&context.gids().ok()?) {
                    reply.u32(a::NDEV_INDEX, index);
                    reply.text(a::NDEV_NAME, &name);
                }
            }
            command::RES_GET => {
                let resources = context.resources().ok()?;
                reply.table(a::RES_SUMMARY, |summary| {
                    for name in ["pd", "cq", "qp", "mr", "srq"] {
                        let used = resources.iter().find(|r| r.name == name).map_or(0, |r| r.used);
                        summary.table(a::RES_SUMMARY_ENTRY, |entry| {
                            entry.text(a::RES_SUMMARY_ENTRY_NAME, name);
                            entry.u64(a::RES_SUMMARY_ENTRY_CURR, used.into());
                        });
                    }
                });
            }
            _ => {
                let counters = context.counters().ok()?;
                reply.table(a::STAT_HWCOUNTERS, |table| {
                    // As Linux: those of communication management (`cm_…`) have files only. (All would not fit into iproute2's buffer.)
                    let shown = |name: &str| !name.contains("_vport_") && !name.starts_with("cm_");
                    for counter in counters.iter().filter(|c| shown(&c.name)) {
                        table.table(a::STAT_HWCOUNTER_ENTRY, |entry| {
                            entry.text(a::STAT_HWCOUNTER_ENTRY_NAME, &counter.name);
                            entry.u64(a::STAT_HWCOUNTER_ENTRY_VALUE, counter.value);
                        });
                    }
                });
            }
        }
        Some(())
    })();
    device.leave(seat);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u16, flags: u16) -> Vec<u8> {
        let asked = Question {
            kind,
            flags,
            sequence: 7,
            device: None,
        };
        let mut attributes = Attributes::default();
        attributes.text(attribute::DEV_NAME, "x");
        attributes.u32(attribute::DEV_INDEX, 3);
        let mut message = asked.message(0, kind, &attributes.0);
        message[6..8].copy_from_slice(&flags.to_ne_bytes());
        message
    }

    #[test]
    fn a_question_is_read_whatever_its_bytes_are() {
        let bytes = question(NLDEV + command::GET, NLM_F_ACK);
        let asked = Question::parse(&bytes).expect("a question");
        assert_eq!((asked.sequence, asked.device), (7, Some(3)));
        for len in 0..bytes.len() {
            let _ = Question::parse(&bytes[..len]);
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] = 0xff;
            let _ = Question::parse(&other);
        }
    }

    #[test]
    fn what_is_not_there_is_refused_and_lists_have_an_end() {
        let errno = |answer: &[u8]| -i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"));
        let kind = |answer: &[u8]| u16::from_ne_bytes([answer[4], answer[5]]);
        let refused = answers(&question(NLDEV + 2, NLM_F_ACK), 9);
        assert_eq!(
            (refused.len(), kind(&refused[0]), errno(&refused[0])),
            (1, NLMSG_ERROR, libc::EOPNOTSUPP)
        );
        let foreign = answers(&question(1, NLM_F_ACK), 9);
        assert_eq!(errno(&foreign[0]), libc::EOPNOTSUPP);
        let list = answers(&question(NLDEV + command::RES_QP_GET, NLM_F_DUMP), 9);
        assert_eq!((list.len(), kind(&list[0]), errno(&list[0])), (1, NLMSG_DONE, 0));
        assert_eq!(list[0][12..16], 9u32.to_ne_bytes(), "to the port that asked");
    }
}
