//! The names under which users of other cards and tools look for counters: declared once, in
//! `counters.toml`; gRPC, command line, Prometheus and documentation read [`SETS`].
//!
//! A name says where its value comes from, or why there is none. There is no zero that was not counted.
//! Bytes are those of frames without the FCS: no frame of this NIC has one until an uplink's wire adds it.

mod document;

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::{AdapterValues, LinkCounter, LinkValues, PortCounter, PortValues, PriorityCounter, QueueCounter};

pub use document::markdown;

/// Whose names they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Windows: performance counters of WinOF-2, of WinOF, and of Windows itself.
    WinOf2,
    /// Linux: sysfs of an RDMA device, `rdma statistic`.
    Mlx5,
    /// Linux: `ethtool -S`.
    Ethtool,
    /// `node_exporter`.
    NodeExporter,
}

/// What a set of counters is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instance {
    /// An adapter. Names with `[i]` are there once for each queue pair.
    Adapter,
    /// A queue pair of an adapter.
    Queue,
    /// A priority of an adapter or of an uplink port.
    Priority,
    /// An uplink port.
    Port,
}

/// Does a value only grow?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It does.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// A counter of queue pairs: of one, or of all of an adapter.
    Queue(QueueCounter),
    /// A drop reason of the owner, by its name.
    Drop(&'static str),
    /// A counter of the RDMA function, by its place in [`RDMA_COUNTERS`](super::RDMA_COUNTERS).
    Rdma(usize),
    /// A counter of an uplink port.
    Port(PortCounter),
    /// A counter of priorities: of one, or of all of an adapter or uplink port.
    Priority(PriorityCounter),
    /// A counter of the link of an adapter or uplink port.
    Link(LinkCounter),
    /// The CPU whose poll loop serves the adapter.
    Cpu,
}

/// Terms added up, others taken off, the rest divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// Added.
    pub plus: &'static [Term],
    /// Taken off.
    pub minus: &'static [Term],
    /// The divisor.
    pub per: u64,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It is this.
    Is(Sum),
    /// It is what this grows by in a second; the reader makes it from two samples.
    Rate(Sum),
    /// It is the first divided by the second, rounded down; there is none while the second is 0.
    Mean(Sum, Sum),
    /// There is nothing in this NIC that it could count.
    NotModelled(&'static str),
    /// It is not counted in this version; the text says what it waits for.
    NotYet(&'static str),
}

/// One name.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    /// As its users write it; `[i]` stands for the number of a queue pair, `[p]` for a priority.
    pub name: &'static str,
    /// Unit of the value, or empty.
    pub unit: &'static str,
    /// Does it only grow?
    pub kind: Kind,
    /// Where it comes from.
    pub source: Source,
    /// The same for people; where there is no value: why.
    pub text: &'static str,
}

/// Names that users look at together.
#[derive(Debug, PartialEq, Eq)]
pub struct Set {
    /// As its users write it.
    pub title: &'static str,
    /// Whose names they are.
    pub family: Family,
    /// What it is about.
    pub instance: Instance,
    /// The names, in the order in which they are known.
    pub names: &'static [Name],
}

include!(concat!(env!("OUT_DIR"), "/sets.rs"));

/// The set with this title or [id](Set::id); capital and small letters are the same.
pub fn set(wanted: &str) -> Option<&'static Set> {
    let all = SETS.iter().copied();
    all.into_iter()
        .find(|s| s.title.eq_ignore_ascii_case(wanted) || s.id().eq_ignore_ascii_case(wanted))
}

impl Set {
    /// The title in letters, digits and hyphens.
    pub fn id(&self) -> String {
        let mut id = String::new();
        let title = self.title.split(" (/").next().unwrap_or_default();
        for c in title.chars().map(|c| c.to_ascii_lowercase()) {
            if c.is_ascii_alphanumeric() {
                id.push(c);
            } else if !id.ends_with('-') {
                id.push('-');
            }
        }
        id.truncate(id.trim_end_matches('-').len());
        id
    }
}

/// Is there a value, and what is it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// This is it.
    Value(u64),
    /// What a rate is made from, from two samples.
    Grown(u64),
    /// There is nothing that it could count; or for a mean: nothing was counted yet.
    NotModelled(&'static str),
    /// It is not counted in this version.
    NotYet(&'static str),
}

/// A name with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The row of the table.
    pub def: &'static Name,
    /// The queue pair it is about.
    pub queue: Option<u16>,
    /// The priority it is about.
    pub priority: Option<u8>,
    /// Its value.
    pub reading: Reading,
}

impl Named {
    /// The name, with the number of the queue pair or priority where it has a place for one.
    pub fn name(&self) -> String {
        match (self.queue, self.priority) {
            (Some(queue), _) => self.def.name.replace("[i]", &queue.to_string()),
            (None, Some(priority)) => self.def.name.replace("[p]", &priority.to_string()),
            (None, None) => self.def.name.into(),
        }
    }
}

/// Whose values.
#[derive(Clone, Copy)]
enum Owner<'a> {
    Adapter(&'a AdapterValues),
    Queue(&'a AdapterValues, &'a [u64; QueueCounter::COUNT]),
    Port(&'a PortValues),
    Priority(&'a [u64; PriorityCounter::COUNT]),
}

/// Why there is no value although the name has one.
const NO_RDMA: &str = "the adapter has no RDMA function";
const NONE_YET: &str = "nothing was counted yet that it could be the mean of";
const OTHER_OWNER: &str = "it belongs to adapters, or to uplink ports, and this is of the other kind";

impl Owner<'_> {
    fn term(self, term: Term) -> Option<u64> {
        let drop = |drops: &super::Drops, reason| drops.iter().find(|(r, _)| *r == reason).map(|(_, n)| *n);
        match (self, term) {
            (Owner::Queue(_, values), Term::Queue(q)) => Some(values[q as usize]),
            (Owner::Adapter(a), Term::Queue(q)) => {
                let values = a.queues.iter().map(|(_, values)| values[q as usize]);
                Some(values.fold(0, u64::wrapping_add))
            }
            (Owner::Adapter(a) | Owner::Queue(a, _), Term::Cpu) => Some(u64::from(a.core)),
            (Owner::Adapter(a), Term::Drop(reason)) => drop(&a.drops, reason),
            (Owner::Priority(values), Term::Priority(c)) => Some(values[c as usize]),
            (Owner::Adapter(a), Term::Rdma(i)) => a.rdma.as_ref().map(|values| values[i]),
            (Owner::Port(p), Term::Port(i)) => Some(p.io[i as usize]),
            (Owner::Port(p), Term::Drop(reason)) => drop(&p.drops, reason),
            (Owner::Adapter(AdapterValues { link, .. }) | Owner::Port(PortValues { link, .. }), term) => {
                match term {
                    Term::Priority(c) => {
                        let values = link.priorities.iter().map(|values| values[c as usize]);
                        Some(values.fold(0, u64::wrapping_add))
                    }
                    Term::Link(c) => Some(link.all[c as usize]),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// An adapter without an RDMA function has no RDMA traffic to add; what is about RDMA alone, it has not.
    fn sum(self, sum: Sum) -> Option<u64> {
        let part = |terms: &[Term]| {
            let known = terms.iter().filter_map(|t| self.term(*t));
            known.fold(None, |sum: Option<u64>, n| {
                Some(sum.unwrap_or_default().wrapping_add(n))
            })
        };
        // Terms are read one after the other: what is taken off may have grown a little more.
        let rest = part(sum.plus)?.saturating_sub(part(sum.minus).unwrap_or_default());
        Some(rest / sum.per)
    }

    fn reading(self, source: Source) -> Reading {
        let missing = Reading::NotModelled(match self {
            Owner::Adapter(a) if a.rdma.is_none() => NO_RDMA,
            _ => OTHER_OWNER,
        });
        match source {
            Source::Is(sum) => self.sum(sum).map_or(missing, Reading::Value),
            Source::Rate(sum) => self.sum(sum).map_or(missing, Reading::Grown),
            Source::Mean(sum, count) => match (self.sum(sum), self.sum(count)) {
                (Some(_), Some(0)) => Reading::NotModelled(NONE_YET),
                (Some(sum), Some(count)) => Reading::Value(sum / count),
                _ => missing,
            },
            Source::NotModelled(why) => Reading::NotModelled(why),
            Source::NotYet(why) => Reading::NotYet(why),
        }
    }
}

fn readable(def: &Name) -> bool {
    !matches!(def.source, Source::NotModelled(_) | Source::NotYet(_))
}

/// The values of a set for an adapter.
pub fn of_adapter(set: &'static Set, adapter: &AdapterValues) -> Vec<Named> {
    let mut out = Vec::new();
    let per_queue = |def: &Name| set.instance == Instance::Queue || def.name.contains("[i]");
    let own = |def: &Name| set.instance != Instance::Priority && !per_queue(def);
    // What there is not, there is not once for all queues and priorities.
    let once = set.names.iter().filter(|d| own(d) || !readable(d));
    out.extend(once.map(|def| Named {
        def,
        queue: None,
        priority: None,
        reading: Owner::Adapter(adapter).reading(def.source),
    }));
    for (queue, values) in &adapter.queues {
        for def in set.names.iter().filter(|d| per_queue(d) && readable(d)) {
            out.push(Named {
                def,
                queue: Some(*queue),
                priority: None,
                reading: Owner::Queue(adapter, values).reading(def.source),
            });
        }
    }
    priorities(set, &adapter.link, &mut out);
    out
}

/// The values of a set for an uplink port.
pub fn of_port(set: &'static Set, port: &PortValues) -> Vec<Named> {
    let own = |def: &Name| set.instance != Instance::Priority || !readable(def);
    let read = |def: &'static Name| Named {
        def,
        queue: None,
        priority: None,
        reading: Owner::Port(port).reading(def.source),
    };
    let mut out: Vec<_> = set.names.iter().filter(|d| own(d)).map(read).collect();
    priorities(set, &port.link, &mut out);
    out
}

/// The values of a set about priorities: each of them, used or not, as users of other cards know it.
fn priorities(set: &'static Set, link: &LinkValues, out: &mut Vec<Named>) {
    if set.instance != Instance::Priority {
        return;
    }
    for (priority, values) in (0..).zip(&link.priorities) {
        out.extend(set.names.iter().filter(|d| readable(d)).map(|def| Named {
            def,
            queue: None,
            priority: Some(priority),
            reading: Owner::Priority(values).reading(def.source),
        }));
    }
}
