//! The document `docs/counters.md`.

use alloc::format;
use alloc::string::String;

use super::{Family, Instance, Kind, SETS, Set, Source, readable};
use crate::counters;

const INTRODUCTION: &str = "\
# Counters

Every counter of the NIC, and the names under which users of other cards and tools look for it. This file is made from
`vnic-backend/engine/counters.toml`; a test holds it to that.

A name has a value that was counted, or a reason why there is none: never a zero that nobody counted. Bytes are those of
frames without the FCS. In WinOF-2's sets, traffic is Ethernet and RDMA together, as on a port; received is what was delivered,
sent is what was taken from the guest. Rates are made by the reader from two samples. KB are 1000 bytes.

Directions of pause are those of the frames that ask for it, as in the cards' programming manual: `rx_pause`, `rx_pause_us`,
`Rcv Pause` are about pause that the port received, and the time that its own sending stood still for it; `tx_pause`,
`tx_pause_us`, `Sent Pause` about pause that it sent, and the time that the other end was told to wait. An adapter's
link ends in the NIC on both sides: what it receives is told to its guest's frames, what it sends to their senders.
Priority 0 is what no other priority has: the owner's frames less those of the priorities 1 to 7.

`vnicctl counter show ADAPTER --set SET` shows a set, `--names winof2|mlx5|ethtool` all of a family; `vnicctl counter reset
ADAPTER` lets your view begin at zero and changes no counter. Prometheus has the NIC's own counters at `/metrics` and
node_exporter's names at `/metrics/node`.
";

/// Text of the document.
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    text += "\n## The NIC's own\n\n| counter | of | meaning |\n|---|---|---|\n";
    for def in counters::all() {
        let of = match def.scope {
            // Their rows are those of adapters.
            counters::Scope::PortPriority | counters::Scope::PortLink => continue,
            counters::Scope::AdapterQueue => "queue pair of an adapter",
            counters::Scope::AdapterDrop => "adapter, by reason",
            counters::Scope::Port => "uplink port",
            counters::Scope::PortDrop => "uplink port, by reason",
            counters::Scope::AdapterPriority => "priority of an adapter or uplink port",
            counters::Scope::AdapterLink => "link of an adapter or uplink port",
            counters::Scope::Mesh => "mesh of an uplink port",
            counters::Scope::Rdma => "RDMA function",
            counters::Scope::Core => "data core",
        };
        text += &format!("| `{}` | {of} | {} |\n", def.name, def.help);
    }
    text += "\n## By other names\n\n| set | id | names | with a value |\n|---|---|---|---|\n";
    for set in SETS {
        let values = set.names.iter().filter(|n| readable(n)).count();
        let (title, id, all) = (set.title, set.id(), set.names.len());
        text += &format!("| {title} | `{id}` | {all} | {values} |\n");
    }
    for set in SETS {
        text += &of(set);
    }
    text
}

fn of(set: &Set) -> String {
    let family = match set.family {
        Family::WinOf2 => "Windows",
        Family::Mlx5 => "Linux, RDMA",
        Family::Ethtool => "Linux, `ethtool -S`",
        Family::NodeExporter => "Prometheus, `/metrics/node`",
    };
    let about = match set.instance {
        Instance::Adapter => "an adapter; `[i]` is a queue pair",
        Instance::Queue => "a queue pair of an adapter",
        Instance::Priority => "a priority of an adapter or uplink port; `[p]` is its number",
        Instance::Port => "an uplink port",
    };
    let mut text = format!(
        "\n### {}\n\n{family}. About {about}.\n\n| name | unit | kind | where it comes from |\n|---|---|---|---|\n",
        set.title
    );
    for name in set.names {
        let kind = match (name.source, name.kind) {
            (Source::Rate(_), _) => "rate",
            (_, Kind::Counter) => "counter",
            (_, Kind::Gauge) => "gauge",
        };
        let how = match name.source {
            Source::Rate(_) => "rate of ",
            Source::NotModelled(_) => "not modelled: ",
            Source::NotYet(_) => "not yet: ",
            Source::Is(_) | Source::Mean(..) => "",
        };
        text += &format!(
            "| `{}` | {} | {kind} | {how}{} |\n",
            name.name, name.unit, name.text
        );
    }
    text
}
