//! Names of counters that users of other cards and tools know, declared in `counters.toml`; gRPC, command line, Prometheus
//! and documentation read [`SETS`].
//!
//! Each name has the source of its value, or why there is none. A zero is always a counted zero. Bytes are those of frames
//! without the FCS: no frame of this NIC has one until an uplink's wire adds it.

mod document;

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::{AdapterValues, LinkCounter, LinkValues, PortCounter, PortValues, PriorityCounter, QueueCounter};

pub use document::markdown;

/// Origin of names.
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

/// Kind of the owner of a set's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instance {
    /// An adapter. Names with `[i]` occur once for each queue pair.
    Adapter,
    /// A queue pair of an adapter.
    Queue,
    /// A priority of an adapter or of an uplink port.
    Priority,
    /// An uplink port.
    Port,
}

/// Whether a value can decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The value only grows.
    Counter,
    /// The value can decrease.
    Gauge,
}

/// Summand of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// A counter of queue pairs: of one, or summed over an adapter.
    Queue(QueueCounter),
    /// Drops of the owner by this reason.
    Drop(&'static str),
    /// A counter of the RDMA function, by its index in [`RDMA_COUNTERS`](super::RDMA_COUNTERS).
    Rdma(usize),
    /// A counter of an uplink port.
    Port(PortCounter),
    /// A counter of priorities: of one, or summed over an adapter or uplink port.
    Priority(PriorityCounter),
    /// A counter of the link of an adapter or uplink port.
    Link(LinkCounter),
    /// The CPU whose poll loop serves the adapter.
    Cpu,
}

/// Sum of terms, minus a sum of others, divided by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// Terms that are added.
    pub plus: &'static [Term],
    /// Terms that are subtracted.
    pub minus: &'static [Term],
    /// Divisor.
    pub per: u64,
}

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The value is this sum.
    Is(Sum),
    /// The value is the growth per second of this sum; the reader makes it from two samples.
    Rate(Sum),
    /// The value is the first sum divided by the second, rounded down; it is absent while the second is 0.
    Mean(Sum, Sum),
    /// This NIC has nothing that the name could count; the cause.
    NotModelled(&'static str),
    /// This version does not count it; the text has what it waits for.
    NotYet(&'static str),
}

/// Row of a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    /// Name as users write it; `[i]` is the number of a queue pair, `[p]` a priority.
    pub name: &'static str,
    /// Unit of the value; may be empty.
    pub unit: &'static str,
    /// Whether the value can decrease.
    pub kind: Kind,
    /// Source of the value.
    pub source: Source,
    /// Source in words; for a name without a value, the cause.
    pub text: &'static str,
}

/// Set of names that users look at together.
#[derive(Debug, PartialEq, Eq)]
pub struct Set {
    /// Title as users write it.
    pub title: &'static str,
    /// Origin of the names.
    pub family: Family,
    /// Kind of the owner.
    pub instance: Instance,
    /// Names, in the order of the original.
    pub names: &'static [Name],
}

include!(concat!(env!("OUT_DIR"), "/sets.rs"));

/// Set of a title or [id](Set::id); case does not matter.
pub fn set(wanted: &str) -> Option<&'static Set> {
    let all = SETS.iter().copied();
    all.into_iter()
        .find(|s| s.title.eq_ignore_ascii_case(wanted) || s.id().eq_ignore_ascii_case(wanted))
}

impl Set {
    /// Title in letters, digits and hyphens.
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

/// Value of a name, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The value.
    Value(u64),
    /// Present value of a sum whose growth is a rate.
    Grown(u64),
    /// There is nothing that it could count; or, for a mean, nothing was counted yet.
    NotModelled(&'static str),
    /// This version does not count it.
    NotYet(&'static str),
}

/// A name with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Row of the table.
    pub def: &'static Name,
    /// Queue pair of the value.
    pub queue: Option<u16>,
    /// Priority of the value.
    pub priority: Option<u8>,
    /// Value, or why there is none.
    pub reading: Reading,
}

impl Named {
    /// Name, with the number of the queue pair or priority in its place.
    pub fn name(&self) -> String {
        match (self.queue, self.priority) {
            (Some(queue), _) => self.def.name.replace("[i]", &queue.to_string()),
            (None, Some(priority)) => self.def.name.replace("[p]", &priority.to_string()),
            (None, None) => self.def.name.into(),
        }
    }
}

/// Owner of values.
#[derive(Clone, Copy)]
enum Owner<'a> {
    Adapter(&'a AdapterValues),
    Queue(&'a AdapterValues, &'a [u64; QueueCounter::COUNT]),
    Port(&'a PortValues),
    Priority(&'a [u64; PriorityCounter::COUNT]),
}

/// Causes of a missing value of a name that has a source.
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

    /// Value of a sum; `None` if the owner has none of the added terms. An adapter without an RDMA function adds no RDMA traffic.
    fn sum(self, sum: Sum) -> Option<u64> {
        let part = |terms: &[Term]| {
            let known = terms.iter().filter_map(|t| self.term(*t));
            known.fold(None, |sum: Option<u64>, n| {
                Some(sum.unwrap_or_default().wrapping_add(n))
            })
        };
        // Terms are read one after the other, so that a subtracted one may have grown a little more.
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

/// Values of a set for an adapter.
pub fn of_adapter(set: &'static Set, adapter: &AdapterValues) -> Vec<Named> {
    let mut out = Vec::new();
    let per_queue = |def: &Name| set.instance == Instance::Queue || def.name.contains("[i]");
    let own = |def: &Name| set.instance != Instance::Priority && !per_queue(def);
    // Names without a source occur once, not for each queue and priority.
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

/// Values of a set for an uplink port.
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

/// Values of a set about priorities: all priorities, used or not, as other cards show them.
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
