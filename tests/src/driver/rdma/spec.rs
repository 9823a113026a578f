//! The table of commands in `proto/device/SPEC.md`, as a list of what must have been seen.

use std::collections::{BTreeMap, BTreeSet};

use vnic_device::command::Opcode;
use vnic_device::status::CommandStatus;

const SPEC: &str = include_str!("../../../../proto/device/SPEC.md");

/// `NoSuchObject` as `NO_SUCH_OBJECT`.
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

fn statuses(text: &str) -> BTreeSet<CommandStatus> {
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    let by_name = |word: &str| {
        let all = CommandStatus::ALL.iter();
        all.copied().find(|s| shouted(&format!("{s:?}")) == word)
    };
    words.filter_map(by_name).collect()
}

/// Every end of every command that the contract names in section 5.3, INTERNAL excepted: OK, what its row has, and what
/// any command may end in.
///
/// # Panics
/// When the table is not there, or has a command that the code does not have.
pub fn ends() -> BTreeSet<(Opcode, CommandStatus)> {
    let (_, rest) = SPEC
        .split_once("<!-- numbers: Opcode -->")
        .expect("the table of commands");
    let lines = rest.lines().skip(1).take_while(|l| l.starts_with('|')).skip(2);
    let mut rows: BTreeMap<String, (Opcode, BTreeSet<CommandStatus>, Vec<String>)> = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = cells[0].parse().expect("a number");
        let opcode = Opcode::from_number(number).expect("a command");
        // "as CREATE_CQ": what that row has, too.
        let others = cells[4]
            .split(',')
            .filter_map(|part| part.trim().strip_prefix("as "));
        let others = others.map(|o| o.split(';').next().unwrap_or(o).trim().to_owned());
        rows.insert(
            cells[1].to_owned(),
            (opcode, statuses(cells[4]), others.collect()),
        );
    }
    let mut ends = BTreeSet::new();
    for (opcode, own, others) in rows.values() {
        use CommandStatus as S;
        let general = [S::Ok, S::NotSupported, S::Malformed, S::NotReady];
        let theirs = others.iter().flat_map(|o| {
            let row = rows.get(o).unwrap_or_else(|| panic!("there is no row {o:?}"));
            row.1.iter().copied()
        });
        ends.extend(
            general
                .into_iter()
                .chain(own.iter().copied())
                .chain(theirs)
                .map(|s| (*opcode, s)),
        );
    }
    // HELLO needs none before it.
    ends.remove(&(Opcode::Hello, CommandStatus::NotReady));
    assert!(ends.len() > 200, "{} ends", ends.len());
    ends
}

/// Bytes of a command's body in the version that brought it, and whether a list follows.
pub fn shape(opcode: Opcode) -> (usize, bool) {
    use Opcode as O;
    use vnic_device::command::device::{GidRecord, Hello, JudgePost};
    use vnic_device::command::memory as mem;
    use vnic_device::command::{Object, Range, connection, flow, qp, queues};
    match opcode {
        O::Hello => (size_of::<Hello>(), false),
        O::QueryDevice | O::QueryPort | O::QueryClock | O::Reset | O::AllocPd | O::OpenXrcd => (0, false),
        O::JudgePost => (size_of::<JudgePost>(), false),
        O::QueryGids | O::QueryCounters | O::QueryResources => (size_of::<Range>(), false),
        O::SetGid => (size_of::<GidRecord>(), false),
        O::RegisterMr => (size_of::<mem::RegisterMr>(), true),
        O::ReregisterMr => (size_of::<mem::ReregisterMr>(), true),
        O::AllocMw => (size_of::<mem::AllocMw>(), false),
        O::AllocDm => (size_of::<mem::AllocDm>(), false),
        O::CopyToDm => (size_of::<mem::CopyDm>(), true),
        O::CopyFromDm => (size_of::<mem::CopyDm>(), false),
        O::RegisterDmMr => (size_of::<mem::RegisterDmMr>(), false),
        O::RegisterOnDemandMr => (size_of::<mem::RegisterOnDemandMr>(), false),
        O::SetPages => (size_of::<mem::SetPages>(), true),
        O::CreateCq => (size_of::<queues::CreateCq>(), true),
        O::ResizeCq => (size_of::<queues::ResizeCq>(), true),
        O::CreateSrq => (size_of::<queues::CreateSrq>(), true),
        O::ModifySrq => (size_of::<queues::ModifySrq>(), false),
        O::CreateAh => (size_of::<qp::CreateAh>(), false),
        O::CreateQp => (qp::CreateQp::LEN_1_0, true),
        O::ModifyQp => (size_of::<qp::ModifyQp>(), false),
        O::AttachMulticast | O::DetachMulticast => (size_of::<qp::Multicast>(), false),
        O::CreateDoorbells => (size_of::<queues::CreateDoorbells>(), true),
        O::DeallocPd | O::DeregisterMr | O::DeallocMw | O::FreeDm | O::DestroyCq | O::QuerySrq => {
            (size_of::<Object>(), false)
        }
        O::DestroySrq | O::QueryAh | O::DestroyAh | O::CloseXrcd | O::QueryQp | O::DestroyQp => {
            (size_of::<Object>(), false)
        }
        O::ModifyQpRate => (size_of::<qp::QpRate>(), false),
        O::CreateFlow => (flow::CreateFlow::LEN_1_6, false),
        O::CreateHashQp => (size_of::<flow::CreateHashQp>(), false),
        O::DestroyFlow | O::DestroyHashQp => (size_of::<Object>(), false),
        O::DestroyDoorbells | O::QueryQpRate | O::RegisterNullMr => (size_of::<Object>(), false),
        O::Listen | O::Unlisten => (size_of::<connection::Listen>(), false),
        O::Connect | O::Accept | O::Reject | O::Disconnect => (size_of::<connection::Message>(), false),
        O::DestroyConnection | O::QueryConnection => (size_of::<Object>(), false),
        O::TakeConnectionEvents => (0, false),
    }
}
