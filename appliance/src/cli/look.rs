//! A look at a daemon: adapters, ports and counters at one time, and what counters grew by between two looks. `vnicctl status`
//! and `vnicctl top` show rates that are made of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::counter::Scope;
use vnic_control::v1::counter_service_client::CounterServiceClient;
use vnic_control::v1::port_service_client::PortServiceClient;

use super::client::Client;
use super::rehearsal::Channel;
use super::{Failure, paging};

/// Connections of looks, kept from one to the next.
pub struct Looker {
    adapters: AdapterServiceClient<Channel>,
    ports: PortServiceClient<Channel>,
    counters: CounterServiceClient<Channel>,
}

/// What one look saw.
pub struct Look {
    /// When counters were read, on the clock of this process.
    at: Instant,
    /// Adapters, by name.
    pub adapters: Vec<v1::Adapter>,
    /// Uplink ports, by name.
    pub ports: Vec<v1::Port>,
    counters: BTreeMap<Key, u64>,
}

/// A counter: its scope, owner, name, and label besides the owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    scope: Scope,
    owner: String,
    name: String,
    label: String,
}

impl Looker {
    /// Connects.
    pub async fn new(client: &Client) -> Result<Looker, Failure> {
        Ok(Looker {
            adapters: client.adapters().await?,
            ports: client.ports().await?,
            counters: client.counters().await?,
        })
    }

    /// Reads adapters, ports and counters.
    pub async fn look(&mut self) -> Result<Look, Failure> {
        let adapters = paging::list(&mut self.adapters, v1::ListAdaptersRequest::default()).await?;
        let ports = paging::list(&mut self.ports, v1::ListPortsRequest::default()).await?;
        let request = v1::ListCountersRequest {
            nonzero: true,
            ..Default::default()
        };
        let counters = paging::list(&mut self.counters, request).await?;
        Ok(Look::new(
            Instant::now(),
            adapters.adapters,
            ports.ports,
            counters.counters,
        ))
    }
}

impl Look {
    /// Makes a look of what a daemon answered.
    pub fn new(
        at: Instant,
        adapters: Vec<v1::Adapter>,
        ports: Vec<v1::Port>,
        counters: Vec<v1::Counter>,
    ) -> Look {
        let counters = counters.into_iter().map(|c| {
            let mut label = ["reason", "queue", "priority"].into_iter();
            let label = label.find_map(|key| c.labels.get(key).cloned());
            let key = Key {
                scope: c.scope(),
                owner: c.owner,
                name: c.name,
                label: label.unwrap_or_default(),
            };
            (key, c.value)
        });
        Look {
            at,
            adapters,
            ports,
            counters: counters.collect(),
        }
    }
}

/// A counter of one owner, with what it grew by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grown<'a> {
    /// Resource name of its owner.
    pub owner: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Drop reason, queue or priority; empty if it has none.
    pub label: &'a str,
    /// Value since the owner was made.
    pub value: u64,
    /// What it grew by between the looks.
    pub grew: u64,
}

/// What counters grew by between two looks.
pub struct Growth<'a> {
    before: &'a Look,
    now: &'a Look,
}

impl<'a> Growth<'a> {
    /// Growth from one look to a later one.
    pub fn new(before: &'a Look, now: &'a Look) -> Growth<'a> {
        Growth { before, now }
    }

    /// Time between the looks.
    pub fn elapsed(&self) -> Duration {
        self.now.at.saturating_duration_since(self.before.at)
    }

    /// Counters of a scope that are not zero, with what each grew by.
    pub fn of(&self, scope: Scope) -> impl Iterator<Item = Grown<'a>> {
        let (before, now) = (self.before, self.now);
        let of_scope = now.counters.iter().filter(move |(key, _)| key.scope == scope);
        of_scope.map(move |(key, value)| Grown {
            owner: &key.owner,
            name: &key.name,
            label: &key.label,
            value: *value,
            grew: grew(&before.counters, key, *value),
        })
    }

    /// Growth of some counters of an owner, all labels together.
    pub fn sum(&self, scope: Scope, owner: &str, names: &[&str]) -> u64 {
        let (before, now) = (&self.before.counters, &self.now.counters);
        let first = |name: &str| Key {
            scope,
            owner: owner.to_owned(),
            name: name.to_owned(),
            label: String::new(),
        };
        let grown = names.iter().flat_map(|name| {
            let from = now.range(first(name)..);
            let all = from
                .take_while(move |(key, _)| key.scope == scope && key.owner == owner && key.name == *name);
            all.map(|(key, value)| grew(before, key, *value))
        });
        grown.fold(0, u64::saturating_add)
    }

    /// Growth in a second.
    pub fn rate(&self, grew: u64) -> u64 {
        per_second(grew, self.elapsed())
    }
}

/// What a counter grew by. One that is lower than before belongs to a new owner of the same name: all of it is growth.
fn grew(before: &BTreeMap<Key, u64>, key: &Key, value: u64) -> u64 {
    let was = before.get(key).copied().unwrap_or(0);
    value.checked_sub(was).unwrap_or(value)
}

/// What grows by so much in a time grows by in a second.
pub fn per_second(grew: u64, elapsed: Duration) -> u64 {
    let nanos = elapsed.as_nanos().max(1);
    u64::try_from(u128::from(grew) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A counter as a daemon tells it.
    pub fn counter(scope: Scope, owner: &str, name: &str, label: &str, value: u64) -> v1::Counter {
        let key = match scope {
            Scope::AdapterDrop | Scope::PortDrop => "reason",
            _ => "queue",
        };
        v1::Counter {
            scope: scope.into(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            labels: [(key.to_owned(), label.to_owned())].into(),
            value,
            ..v1::Counter::default()
        }
    }

    /// Two looks, two seconds apart, at these counters.
    pub fn looks(before: Vec<v1::Counter>, now: Vec<v1::Counter>) -> [Look; 2] {
        let at = Instant::now();
        let later = at + Duration::from_secs(2);
        [
            Look::new(at, Vec::new(), Vec::new(), before),
            Look::new(later, Vec::new(), Vec::new(), now),
        ]
    }

    #[test]
    fn growth_is_by_scope_owner_name_and_label() {
        let queue = Scope::AdapterQueue;
        let [before, now] = looks(
            vec![
                counter(queue, "adapters/a", "rx_frames", "0", 100),
                counter(Scope::PortPriority, "ports/p", "rx_frames", "0", 7),
                counter(queue, "adapters/c", "rx_frames", "0", 50),
            ],
            vec![
                counter(queue, "adapters/a", "rx_frames", "0", 110),
                counter(queue, "adapters/a", "rx_frames", "1", 5),
                counter(queue, "adapters/a", "tx_frames", "0", 1),
                counter(Scope::Port, "ports/p", "rx_frames", "", 9),
                counter(Scope::PortPriority, "ports/p", "rx_frames", "0", 9),
                counter(queue, "adapters/c", "rx_frames", "0", 20),
            ],
        );
        let growth = Growth::new(&before, &now);
        assert_eq!(growth.sum(queue, "adapters/a", &["rx_frames"]), 15);
        assert_eq!(growth.sum(queue, "adapters/a", &["rx_frames", "tx_frames"]), 16);
        assert_eq!(growth.sum(queue, "adapters/b", &["rx_frames"]), 0);
        assert_eq!(growth.sum(Scope::Port, "ports/p", &["rx_frames"]), 9);
        assert_eq!(growth.sum(Scope::PortPriority, "ports/p", &["rx_frames"]), 2);
        // A new adapter of the same name.
        assert_eq!(growth.sum(queue, "adapters/c", &["rx_frames"]), 20);
        assert_eq!(growth.rate(15), 7);
    }

    #[test]
    fn looks_at_one_time_have_a_rate_too() {
        assert_eq!(per_second(0, Duration::ZERO), 0);
        assert_eq!(per_second(3, Duration::ZERO), 3_000_000_000);
        assert_eq!(per_second(u64::MAX, Duration::from_nanos(1)), u64::MAX);
        assert_eq!(per_second(10, Duration::from_millis(500)), 20);
    }
}
