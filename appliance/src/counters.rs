//! Counters of one owner, by the data path's names or those that users know: for gRPC.

pub mod baseline;

use std::collections::BTreeSet;

use vnic_backend::Sample;
use vnic_backend::counters::names::{self, Family, Instance, Kind, Reading, SETS, Set};
use vnic_backend::counters::{AdapterValues, CoreValues, PortValues, Values};

use crate::names as resources;

/// Name of the set with the data path's names.
pub const NATIVE: &str = "native";

/// Owner of counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// An adapter, by name.
    Adapter(String),
    /// An uplink port, by name.
    Port(String),
    /// A data core, by CPU.
    Core(usize),
}

impl Owner {
    /// Parses a resource name.
    pub fn parse(name: &str) -> Option<Owner> {
        if let Some(id) = resources::id(resources::ADAPTERS, name) {
            return Some(Owner::Adapter(id.to_owned()));
        }
        if let Some(id) = resources::id(resources::PORTS, name) {
            return Some(Owner::Port(id.to_owned()));
        }
        let cpu = resources::id(resources::CORES, name)?;
        Some(Owner::Core(cpu.parse().ok()?))
    }

    /// Counters of the owner, if it exists.
    pub fn find(&self, values: Values) -> Option<OwnerValues> {
        match self {
            Owner::Adapter(name) => {
                let found = values.adapters.into_iter().find(|a| a.name == *name);
                found.map(OwnerValues::Adapter)
            }
            Owner::Port(name) => {
                let found = values.ports.into_iter().find(|p| p.name == *name);
                found.map(OwnerValues::Port)
            }
            Owner::Core(cpu) => {
                let found = values.cores.into_iter().find(|c| c.cpu == *cpu);
                found.map(OwnerValues::Core)
            }
        }
    }

    /// Whether the owner has counters in this set.
    pub fn has(&self, set: &Set) -> bool {
        match self {
            Owner::Adapter(_) => set.instance != Instance::Port,
            Owner::Port(_) => matches!(set.instance, Instance::Port | Instance::Priority),
            Owner::Core(_) => false,
        }
    }
}

/// Counters of one owner, read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerValues {
    Adapter(AdapterValues),
    Port(PortValues),
    Core(CoreValues),
}

/// A set of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Names of the data path.
    Native,
    /// Names that users of other cards and tools know.
    Set(&'static Set),
}

impl Names {
    /// Finds a set by title, id or resource name.
    pub fn find(wanted: &str) -> Option<Names> {
        let wanted = resources::id(resources::COUNTER_SETS, wanted).unwrap_or(wanted);
        if wanted.eq_ignore_ascii_case(NATIVE) {
            return Some(Names::Native);
        }
        names::set(wanted).map(Names::Set)
    }

    /// Sets of a family that an owner has.
    pub fn of_family(family: Family, owner: &Owner) -> Vec<Names> {
        let sets = SETS.iter().copied();
        sets.filter(|s| s.family == family && owner.has(s))
            .map(Names::Set)
            .collect()
    }

    /// Id in the set's resource name.
    pub fn id(self) -> String {
        match self {
            Names::Native => NATIVE.to_owned(),
            Names::Set(set) => set.id(),
        }
    }

    /// Title as users write it.
    pub fn title(self) -> &'static str {
        match self {
            Names::Native => NATIVE,
            Names::Set(set) => set.title,
        }
    }

    /// Names in the set, with `[i]` for queue pairs and `[p]` for priorities.
    pub fn known(self) -> BTreeSet<&'static str> {
        match self {
            Names::Native => vnic_backend::counters::all().map(|def| def.name).collect(),
            Names::Set(set) => set.names.iter().map(|n| n.name).collect(),
        }
    }
}

/// A value with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    /// Name with `[i]` for a queue pair and `[p]` for a priority.
    pub pattern: &'static str,
    /// Queue pair of the value.
    pub queue: Option<u16>,
    /// Priority of the value.
    pub priority: Option<u8>,
    /// Drop reason of the value.
    pub reason: Option<&'static str>,
    /// Unit; may be empty.
    pub unit: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// Value, or why there is none.
    pub reading: Reading,
}

/// Key of a value within its set.
pub type Key = (&'static str, Option<u16>, Option<u8>, Option<&'static str>);

impl Item {
    /// Key of the value within its set.
    pub fn key(&self) -> Key {
        (self.pattern, self.queue, self.priority, self.reason)
    }
}

impl OwnerValues {
    /// Values of a set.
    pub fn items(&self, names: Names) -> Vec<Item> {
        let named = match (names, self) {
            (Names::Native, _) => return self.samples().iter().map(native).collect(),
            (Names::Set(set), OwnerValues::Adapter(a)) => names::of_adapter(set, a),
            (Names::Set(set), OwnerValues::Port(p)) => names::of_port(set, p),
            (Names::Set(_), OwnerValues::Core(_)) => Vec::new(),
        };
        let item = |n: &names::Named| Item {
            name: n.name(),
            pattern: n.def.name,
            queue: n.queue,
            priority: n.priority,
            reason: None,
            unit: n.def.unit,
            kind: n.def.kind,
            reading: n.reading,
        };
        named.iter().map(item).collect()
    }

    fn samples(&self) -> Vec<Sample> {
        let mut values = Values::default();
        match self.clone() {
            OwnerValues::Adapter(a) => values.adapters.push(a),
            OwnerValues::Port(p) => values.ports.push(p),
            OwnerValues::Core(c) => values.cores.push(c),
        }
        values.samples()
    }

    /// Whether both are of the same owner, not of another one of its name.
    pub fn same_life(&self, other: &OwnerValues) -> bool {
        match (self, other) {
            (OwnerValues::Adapter(a), OwnerValues::Adapter(b)) => a.life == b.life,
            (OwnerValues::Port(a), OwnerValues::Port(b)) => a.life == b.life,
            (OwnerValues::Core(a), OwnerValues::Core(b)) => a.cpu == b.cpu,
            _ => false,
        }
    }

    /// Growth since `base` was read; all of it if `base` is another owner's.
    pub fn since(self, base: &OwnerValues) -> OwnerValues {
        if !self.same_life(base) {
            return self;
        }
        match (self, base) {
            (OwnerValues::Adapter(a), OwnerValues::Adapter(base)) => OwnerValues::Adapter(a.since(base)),
            (OwnerValues::Port(p), OwnerValues::Port(base)) => OwnerValues::Port(p.since(base)),
            (OwnerValues::Core(c), OwnerValues::Core(base)) => OwnerValues::Core(c.since(base)),
            (values, _) => values,
        }
    }
}

fn native(sample: &Sample) -> Item {
    let name = sample.def.name;
    Item {
        name: name.to_owned(),
        pattern: name,
        queue: sample.queue,
        priority: sample.priority,
        reason: sample.reason,
        unit: sample.def.unit,
        kind: Kind::Counter,
        reading: Reading::Value(sample.value),
    }
}
