//! `SPEC.md` and the code say the same: numbers, bits, sizes, offsets, examples.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use vnic_device::command::device::capabilities;
use vnic_device::command::memory::{MrReply, RegisterMr};
use vnic_device::command::qp::create_flags;
use vnic_device::command::{CommandHead, Opcode, ReplyHead};
use vnic_device::config::{self, Config};
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::event::{EventKind, EventRecord};
use vnic_device::queue::{
    self, CompletionEntry, CompletionKind, Element, Operation, ReceiveHead, SendHead, completion_flags,
    send_flags,
};
use vnic_device::ring::{self, Extent, ExtentList};
use vnic_device::status::CommandStatus;
use vnic_device::verbs::{self, access, flow_headers, hash_types, pages, qp_mask, reregister, srq_mask};
use vnic_device::zerocopy::IntoBytes;
use vnic_device::{LAYOUTS, doorbell};

const SPEC: &str = include_str!("../SPEC.md");

/// Cells of the rows of the table that follows each `<!-- what: name … -->`, by name and what else the mark says.
fn tables(what: &str) -> BTreeMap<String, (String, Vec<Vec<String>>)> {
    let mut found = BTreeMap::new();
    let open = format!("<!-- {what}: ");
    for (at, _) in SPEC.match_indices(&open) {
        let rest = &SPEC[at + open.len()..];
        let (mark, rest) = rest.split_once(" -->").expect("a mark ends");
        let (name, more) = mark.split_once(' ').unwrap_or((mark, ""));
        let lines = rest.lines().skip(1).take_while(|l| l.starts_with('|'));
        let cells = |line: &str| -> Vec<String> {
            let cells = line.trim_matches('|').split('|').map(str::trim);
            // A whole cell of code is meant as a name; code among words stays as it is.
            let name = |cell: &str| match cell.strip_prefix('`').and_then(|c| c.strip_suffix('`')) {
                Some(name) if !name.contains('`') => name.to_owned(),
                _ => cell.to_owned(),
            };
            cells.map(name).collect()
        };
        let rows: Vec<_> = lines.skip(2).map(cells).collect();
        assert!(!rows.is_empty(), "{name} has no table");
        let twice = found.insert(name.to_owned(), (more.to_owned(), rows));
        assert!(twice.is_none(), "{name} is there twice");
    }
    found
}

/// `SharedReceive` as `SHARED_RECEIVE`.
fn shouted(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if i > 0 && c.is_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

fn numbers<T: Debug>(all: &[T], number: impl Fn(&T) -> u64) -> BTreeSet<(u64, String)> {
    all.iter()
        .map(|v| (number(v), shouted(&format!("{v:?}"))))
        .collect()
}

/// The enumerations by name.
macro_rules! enumerations {
    ($($name:ident in $place:ident),* $(,)?) => {
        [$((stringify!($name), numbers(&$place::$name::ALL, |v| u64::from(v.number()))),)*]
    };
}

#[test]
fn numbers_are_the_same() {
    use vnic_device::command::connection;
    use vnic_device::{command, event, status};
    let code: BTreeMap<&str, _> = BTreeMap::from(enumerations![
        Opcode in command, CommandStatus in status, EventKind in event, FaultQueue in event, FaultReason in event,
        Kind in doorbell, Operation in queue, CompletionKind in queue, NetworkHeader in queue, QpType in verbs, QpState in verbs,
        Mtu in verbs, MwType in verbs, GidKind in verbs, PortState in verbs, AtomicScope in verbs,
        CompletionStatus in verbs, FlowKind in verbs, Post in verbs, PostErrno in verbs, Transport in connection,
        ConnectionState in connection, ConnectionEventKind in connection,
    ]);
    let spec = tables("numbers");
    assert_eq!(
        spec.keys().map(String::as_str).collect::<Vec<_>>(),
        code.keys().copied().collect::<Vec<_>>()
    );
    for (name, (_, rows)) in &spec {
        let rows: BTreeSet<(u64, String)> = rows
            .iter()
            .map(|r| (r[0].parse().expect("a number"), r[1].clone()))
            .collect();
        assert_eq!(rows, code[name.as_str()], "{name}");
    }
}

macro_rules! bits {
    ($module:ident: $($name:ident),*) => {
        (stringify!($module), (u64::from($module::ALL), [$((u64::from($module::$name), stringify!($name)),)*].to_vec()))
    };
}

#[test]
fn bits_are_the_same() {
    use vnic_device::command::connection::message_flags;
    let code = BTreeMap::from([
        bits!(send_flags: FENCE, SIGNALED, SOLICITED, INLINE, TARGET, CHECKSUM, SEGMENT),
        bits!(completion_flags: GRH, IMM, CHECKSUM_OK, INVALIDATED, VLAN),
        bits!(create_flags: SIGNAL_ALL),
        bits!(access: LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ZERO_BASED, INVALIDATE),
        bits!(reregister: TRANSLATION, PD, ACCESS),
        bits!(pages: WRITE, PREFETCH, REFUSED),
        bits!(srq_mask: MAX_WR, LIMIT),
        bits!(qp_mask: STATE, CURRENT_STATE, DRAINED_EVENT, ACCESS, PKEY_INDEX, PORT, QKEY, ADDRESS, PATH_MTU, TIMEOUT,
            RETRY_COUNT, RNR_RETRY, RQ_PSN, MAX_RD_ATOMIC, MIN_RNR_TIMER, SQ_PSN, MAX_DEST_RD_ATOMIC, DESTINATION_QP,
            UDP_SOURCE_PORT),
        bits!(capabilities: UC, UD, XRC, SRQ, MW_TYPE_1, MW_TYPE_2, MULTICAST, INVALIDATE, SET_GID, RESOLVE,
            COMPLETION_TIME, DEVICE_MEMORY, RATE_LIMIT, NULL_MR, ON_DEMAND, CONNECTIONS, DC, RAW_PACKET, SEGMENTS,
            RSS),
        bits!(flow_headers: IPV4, IPV6, TCP, UDP, VXLAN, INNER_IPV4, INNER_IPV6, INNER_TCP, INNER_UDP),
        bits!(hash_types: IPV4, TCPV4, UDPV4, IPV6, TCPV6, UDPV6, INNER),
        bits!(message_flags: FLOW_CONTROL, SRQ),
    ]);
    let spec = tables("bits");
    assert_eq!(
        spec.keys().map(String::as_str).collect::<Vec<_>>(),
        code.keys().copied().collect::<Vec<_>>()
    );
    for (name, (_, rows)) in &spec {
        let rows: Vec<(u64, &str)> = rows
            .iter()
            .map(|r| (1 << r[0].parse::<u32>().expect("a bit"), r[1].as_str()))
            .collect();
        let (all, named) = &code[name.as_str()];
        assert_eq!(&rows, named, "{name}");
        // A constant that neither list has would be missing here.
        assert_eq!(rows.iter().map(|r| r.0).sum::<u64>(), *all, "{name}");
    }
}

#[test]
fn sizes_and_offsets_are_the_same() {
    let mut spec = tables("struct");
    for layout in LAYOUTS.iter().copied().flatten() {
        let (size, rows) = spec
            .remove(layout.name)
            .unwrap_or_else(|| panic!("{} is missing", layout.name));
        assert_eq!(size, layout.size.to_string(), "{}", layout.name);
        let rows: Vec<[&str; 3]> = rows.iter().map(|r| [r[0].as_str(), &r[1], &r[2]]).collect();
        let texts: Vec<[String; 3]> = layout
            .fields
            .iter()
            .map(|f| [f.offset.to_string(), f.size.to_string(), f.name.to_owned()])
            .collect();
        let code: Vec<[&str; 3]> = texts
            .iter()
            .map(|t| [t[0].as_str(), t[1].as_str(), t[2].as_str()])
            .collect();
        assert_eq!(rows, code, "{}", layout.name);
    }
    assert!(spec.is_empty(), "only in the text: {:?}", spec.keys());
}

#[test]
fn structs_have_no_gaps() {
    for layout in LAYOUTS.iter().copied().flatten() {
        let mut end = 0;
        for field in layout.fields {
            assert_eq!(field.offset, end, "{}.{}", layout.name, field.name);
            end += field.size;
        }
        assert_eq!((end, end % 8), (layout.size, 0), "{}", layout.name);
    }
}

/// Types of QP that have an operation, as the table of operations says it.
#[test]
fn operations_belong_to_the_same_services() {
    let tables = tables("numbers");
    for (row, operation) in tables["Operation"].1.iter().zip(Operation::ALL) {
        let spec: BTreeSet<String> = row[2].split(", ").map(Into::into).collect();
        let code: BTreeSet<String> = verbs::QpType::ALL
            .iter()
            .filter(|t| t.allows(operation))
            .map(|t| shouted(&format!("{t:?}")))
            .collect();
        assert_eq!(spec, code, "{operation:?}");
    }
}

/// Names of statuses in the table of commands are statuses.
#[test]
fn commands_name_errors_that_there_are() {
    let known: BTreeSet<String> = CommandStatus::ALL
        .iter()
        .map(|s| shouted(&format!("{s:?}")))
        .collect();
    let structs: BTreeSet<&str> = LAYOUTS.iter().copied().flatten().map(|l| l.name).collect();
    let tables = tables("numbers");
    let opcodes: BTreeSet<&str> = tables["Opcode"].1.iter().map(|r| r[1].as_str()).collect();
    for row in &tables["Opcode"].1 {
        let words = |cell: &str| -> Vec<String> {
            cell.split(|c: char| !c.is_alphanumeric() && c != '_')
                .map(Into::into)
                .collect()
        };
        for word in words(&row[4]).iter().filter(|w| w.contains('_')) {
            assert!(
                known.contains(word) || opcodes.contains(word.as_str()),
                "{}: {word}",
                row[1]
            );
        }
        for cell in [&row[2], &row[3]] {
            let named: Vec<&str> = match cell.contains('`') {
                true => cell.split('`').skip(1).step_by(2).collect(),
                false => words(cell)
                    .iter()
                    .filter(|w| cell.as_str() == *w)
                    .map(|_| cell.as_str())
                    .collect(),
            };
            for name in named.into_iter().filter(|n| *n != "len") {
                assert!(structs.contains(name), "{}: {name}", row[1]);
            }
        }
    }
}

#[test]
fn the_text_is_of_this_version() {
    let version = format!("Version **{}.{}**", config::ABI_MAJOR, config::ABI_MINOR);
    assert!(SPEC.contains(&version), "{version}");
    let ids = format!(
        "device id is {} (reserved for RDMA in virtio 1.3, section 5), or {} with",
        config::VIRTIO_ID,
        config::VIRTIO_ID_ALIAS
    );
    assert!(SPEC.contains(&ids), "{ids}");
    // Lengths of rings, as the table in section 6 has them.
    assert_eq!(ring::doorbell_ring_len(16), 8 * 16 + 128);
    assert_eq!(ring::completion_ring_len(16), 64 * 16 + 64);
    assert_eq!(doorbell::ENTRIES, 16..=4096);
    assert_eq!(ring::ENTRIES_MAX, 1 << 24);
    let used = Config::LAYOUT
        .fields
        .iter()
        .find(|f| f.name == "reserved")
        .expect("there is one");
    assert_eq!(used.offset, usize::from(config::CONFIG_LEN));
}

fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let register = RegisterMr {
        pd: 3,
        access: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
        iova: 0x7f00_0000_1000,
        extents: ExtentList { count: 1, chunks: 0 },
    };
    let page = Extent {
        gpa: 0x1_2345_6000,
        len: 4096,
    };
    let head = CommandHead {
        opcode: Opcode::RegisterMr.number(),
        body_len: size_of::<RegisterMr>() as u16,
        len: (size_of::<RegisterMr>() + size_of::<Extent>()) as u32,
        cookie: 7,
    };
    let reply = ReplyHead {
        status: CommandStatus::Ok.number(),
        len: size_of::<MrReply>() as u32,
        cookie: 7,
    };
    let keys = MrReply {
        mr: 0x12,
        lkey: 0x1200,
        rkey: 0x1200,
        reserved: 0,
    };
    let write = SendHead {
        wr_id: 0x1122_3344_5566_7788,
        operation: Operation::Write.number(),
        flags: send_flags::SIGNALED,
        count: 1,
        imm: 0,
        remote: 0x7f00_0000_2000,
        rkey: 0x1300,
        remote_srq: 0,
    };
    let element = |addr, len| Element {
        addr,
        len,
        lkey: 0x1200,
    };
    let posted = Doorbell {
        kind: Kind::Send,
        number: 0x102,
        index: 6,
    };
    let done = CompletionEntry {
        wr_id: write.wr_id,
        qp: 0x102,
        time: 1_000_000_000,
        consumed: 6,
        status: verbs::CompletionStatus::Success.number(),
        kind: CompletionKind::Write.number(),
        phase: if ring::phase(4, 16) { queue::PHASE } else { 0 },
        ..CompletionEntry::default()
    };
    let receive = ReceiveHead {
        wr_id: 0x2a,
        elements: 1,
        reserved: 0,
    };
    let datagram = SendHead {
        wr_id: 1,
        operation: Operation::SendImm.number(),
        flags: send_flags::SIGNALED | send_flags::SOLICITED | send_flags::INLINE,
        count: 5,
        imm: 0x0a0b_0c0d,
        remote: SendHead::datagram(9, 0x103),
        rkey: 0x1111_1111,
        remote_srq: 0,
    };
    let arm = Doorbell {
        kind: Kind::ArmSolicited,
        number: 9,
        index: 5,
    };
    let event = EventRecord {
        kind: EventKind::Completion.number(),
        object: 9,
        detail: 6,
        reserved: [0; 2],
    };
    let block = |parts: &[&[u8]]| {
        let mut bytes = parts.concat();
        bytes.resize(bytes.len().next_multiple_of(queue::BLOCK_LEN), 0);
        bytes
    };
    vec![
        (
            "register",
            [head.as_bytes(), register.as_bytes(), page.as_bytes()].concat(),
        ),
        ("registered", [reply.as_bytes(), keys.as_bytes()].concat()),
        (
            "write",
            block(&[write.as_bytes(), element(0x7f00_0000_1000, 8).as_bytes()]),
        ),
        (
            "doorbell",
            posted.to_bits(ring::phase(0, 16)).to_le_bytes().to_vec(),
        ),
        ("completion", done.as_bytes().to_vec()),
        (
            "receive",
            [receive.as_bytes(), element(0x7f00_0000_1800, 256).as_bytes()].concat(),
        ),
        ("datagram", block(&[datagram.as_bytes(), b"hello"])),
        ("arm", arm.to_bits(ring::phase(18, 16)).to_le_bytes().to_vec()),
        ("event", event.as_bytes().to_vec()),
    ]
}

/// Lines of 16 bytes behind their offset.
fn dump(bytes: &[u8]) -> String {
    let line = |(i, chunk): (usize, &[u8])| {
        let hex: Vec<String> = chunk.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:04x}  {}\n", 16 * i, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[test]
fn examples_are_the_structs_bytes() {
    let mut marks = SPEC.matches("<!-- hex: ").count();
    for (name, bytes) in examples() {
        let mark = format!("<!-- hex: {name} -->\n```\n");
        let (_, rest) = SPEC
            .split_once(&mark)
            .unwrap_or_else(|| panic!("no example {name}"));
        let (text, _) = rest.split_once("```").expect("the block ends");
        assert_eq!(text, dump(&bytes), "{name}");
        marks -= 1;
    }
    assert_eq!(marks, 0, "examples that nobody checks");
    // Values that the text names beside the bytes.
    let value = |name: &str| -> u64 {
        let bytes = examples()
            .into_iter()
            .find(|e| e.0 == name)
            .expect("an example")
            .1;
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    };
    assert_eq!(value("doorbell"), 0x8000_0102_0000_0006);
    assert_eq!(value("arm"), 0x4000_0009_0000_0005);
}
