//! Networks that papers use. Hosts come first, in the order of their switches; each has one link, its first.

use super::scenario::{Link, Topology};

/// Gb/s, in bit/s.
pub const GBIT: u64 = 1_000_000_000;

/// One microsecond, the propagation of the papers' links, in ns.
pub const US: u64 = 1_000;

/// One millisecond, in ns.
pub const MS: u64 = 1_000 * US;

impl Topology {
    fn new(hosts: usize, switches: usize) -> Topology {
        Topology {
            hosts,
            switches,
            links: Vec::new(),
            names: Vec::new(),
        }
    }

    fn link(&mut self, a: usize, b: usize, rate: u64, delay: u64) {
        self.links.push(Link { a, b, rate, delay });
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }

    /// What a node is called: its name, or its number.
    pub fn name(&self, node: usize) -> String {
        match self.names.get(node) {
            Some(name) => name.clone(),
            None if node < self.hosts => format!("h{node}"),
            None => format!("s{}", node - self.hosts),
        }
    }

    /// The link of a host, and the switch (or host) at its other end.
    pub fn uplink(&self, host: usize) -> Option<(usize, usize)> {
        let ends = |l: &Link| (l.a == host).then_some(l.b).or((l.b == host).then_some(l.a));
        self.links
            .iter()
            .enumerate()
            .find_map(|(number, link)| Some((number, ends(link)?)))
    }

    /// The queue that a host receives from, as [`Record::queues`](super::scenario::Record::queues) wants it: the egress of its
    /// switch.
    pub fn queue_to(&self, host: usize) -> Option<(usize, usize)> {
        self.uplink(host).map(|(link, switch)| (switch, link))
    }

    /// Speed of a host's link, in bit/s.
    pub fn rate_of(&self, host: usize) -> u64 {
        self.uplink(host).map_or(0, |(link, _)| self.links[link].rate)
    }

    /// `hosts` at one switch.
    pub fn star(hosts: usize, rate: u64, delay: u64) -> Topology {
        let mut topology = Topology::new(hosts, 1);
        for host in 0..hosts {
            topology.link(host, hosts, rate, delay);
            topology.names.push(format!("h{host}"));
        }
        topology.names.push("switch".to_owned());
        topology
    }

    /// `left` hosts at one switch, `right` at another, and one link between the two.
    pub fn dumbbell(left: usize, right: usize, rate: u64, middle: u64, delay: u64) -> Topology {
        let hosts = left + right;
        let mut topology = Topology::new(hosts, 2);
        for host in 0..hosts {
            topology.link(host, hosts + usize::from(host >= left), rate, delay);
            topology.names.push(match host < left {
                true => format!("l{host}"),
                false => format!("r{}", host - left),
            });
        }
        topology.link(hosts, hosts + 1, middle, delay);
        topology.names.extend(["left".to_owned(), "right".to_owned()]);
        topology
    }

    /// DCQCN's testbed (SIGCOMM 2015, figure 2): four ToR switches T1 to T4, four leaves L1 to L4, two spines S1 and S2. T1 and
    /// T2 are connected to L1 and L2, T3 and T4 to L3 and L4, all leaves to both spines. Hosts of T1 are H11, H12 and so on.
    pub fn clos3(hosts_per_tor: usize, rate: u64, delay: u64) -> Topology {
        let hosts = 4 * hosts_per_tor;
        let mut topology = Topology::new(hosts, 10);
        let (tor, leaf, spine) = (hosts, hosts + 4, hosts + 8);
        for host in 0..hosts {
            let t = host / hosts_per_tor;
            topology.link(host, tor + t, rate, delay);
            topology
                .names
                .push(format!("H{}{}", t + 1, host % hosts_per_tor + 1));
        }
        for t in 0..4 {
            let pod = t / 2;
            for l in [2 * pod, 2 * pod + 1] {
                topology.link(tor + t, leaf + l, rate, delay);
            }
        }
        for l in 0..4 {
            for s in 0..2 {
                topology.link(leaf + l, spine + s, rate, delay);
            }
        }
        for (letter, count) in [('T', 4), ('L', 4), ('S', 2)] {
            topology.names.extend((1..=count).map(|n| format!("{letter}{n}")));
        }
        topology
    }

    /// `leaves` with hosts, each connected to every one of `spines`.
    pub fn leaf_spine(
        leaves: usize,
        spines: usize,
        hosts_per_leaf: usize,
        host_rate: u64,
        spine_rate: u64,
        delay: u64,
    ) -> Topology {
        let hosts = leaves * hosts_per_leaf;
        let mut topology = Topology::new(hosts, leaves + spines);
        for host in 0..hosts {
            topology.link(host, hosts + host / hosts_per_leaf, host_rate, delay);
            topology.names.push(format!("h{host}"));
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                topology.link(hosts + leaf, hosts + leaves + spine, spine_rate, delay);
            }
        }
        topology
            .names
            .extend((0..leaves).map(|leaf| format!("leaf{leaf}")));
        topology
            .names
            .extend((0..spines).map(|spine| format!("spine{spine}")));
        topology
    }

    /// A three-tier tree: `pods`, each with `tors` and `aggs` that are all connected to each other; aggregation switch `a` of
    /// each pod is connected to cores `a cores/aggs` up to the next one's.
    pub fn three_tier(tree: &Tree, host_rate: u64, fabric_rate: u64, delay: u64) -> Topology {
        let tors = tree.pods * tree.tors;
        let aggs = tree.pods * tree.aggs;
        let hosts = tors * tree.hosts_per_tor;
        let mut topology = Topology::new(hosts, tors + aggs + tree.cores);
        let (tor, agg, core) = (hosts, hosts + tors, hosts + tors + aggs);
        for host in 0..hosts {
            topology.link(host, tor + host / tree.hosts_per_tor, host_rate, delay);
            topology.names.push(format!("h{host}"));
        }
        for pod in 0..tree.pods {
            for t in 0..tree.tors {
                for a in 0..tree.aggs {
                    topology.link(
                        tor + pod * tree.tors + t,
                        agg + pod * tree.aggs + a,
                        fabric_rate,
                        delay,
                    );
                }
            }
        }
        let group = tree.cores / tree.aggs.max(1);
        for a in 0..aggs {
            for c in 0..group {
                topology.link(agg + a, core + (a % tree.aggs) * group + c, fabric_rate, delay);
            }
        }
        for (name, count) in [("tor", tors), ("agg", aggs), ("core", tree.cores)] {
            topology.names.extend((0..count).map(|n| format!("{name}{n}")));
        }
        topology
    }

    /// HPCC's simulation (SIGCOMM 2019, section 5.1): 320 hosts at 20 ToR switches, 20 aggregation and 16 core switches; 100
    /// Gb/s to hosts, 400 Gb/s between switches, 1 us a link, so 12 us between hosts of two pods and back.
    pub fn fat_tree() -> Topology {
        let tree = Tree {
            pods: 5,
            tors: 4,
            aggs: 4,
            cores: 16,
            hosts_per_tor: 16,
        };
        Topology::three_tier(&tree, 100 * GBIT, 400 * GBIT, US)
    }

    /// The fat tree of switches with `k` ports of one speed: k^3 / 4 hosts (Al-Fares et al., SIGCOMM 2008). `k` is even.
    pub fn fat_tree_of(k: usize, rate: u64, delay: u64) -> Topology {
        let tree = Tree {
            pods: k,
            tors: k / 2,
            aggs: k / 2,
            cores: k * k / 4,
            hosts_per_tor: k / 2,
        };
        Topology::three_tier(&tree, rate, rate, delay)
    }
}

/// How many of what a three-tier tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Pods.
    pub pods: usize,
    /// ToR switches of a pod.
    pub tors: usize,
    /// Aggregation switches of a pod.
    pub aggs: usize,
    /// Core switches; a multiple of `aggs`.
    pub cores: usize,
    /// Hosts of a ToR switch.
    pub hosts_per_tor: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links of each node, and how far apart the two farthest hosts are, in links.
    fn shape(topology: &Topology) -> (Vec<usize>, usize) {
        let nodes = topology.hosts + topology.switches;
        let mut neighbours = vec![Vec::new(); nodes];
        for link in &topology.links {
            neighbours[link.a].push(link.b);
            neighbours[link.b].push(link.a);
        }
        let mut distance = vec![usize::MAX; nodes];
        distance[0] = 0;
        let mut next = vec![0];
        let mut farthest = 0;
        for n in 0.. {
            let Some(&node) = next.get(n) else { break };
            for &other in &neighbours[node] {
                if distance[other] == usize::MAX {
                    distance[other] = distance[node] + 1;
                    farthest = farthest.max(distance[other] * usize::from(other < topology.hosts));
                    next.push(other);
                }
            }
        }
        assert_eq!(next.len(), nodes, "everybody can be reached");
        assert_eq!(topology.names.len(), nodes);
        (neighbours.iter().map(Vec::len).collect(), farthest)
    }

    #[test]
    fn a_star_has_one_switch() {
        let star = Topology::star(9, 40 * GBIT, US);
        let (degrees, farthest) = shape(&star);
        assert_eq!(degrees, [[1; 9].as_slice(), &[9]].concat());
        assert_eq!(farthest, 2);
        assert_eq!(star.queue_to(8), Some((9, 8)));
        assert_eq!(star.rate_of(3), 40 * GBIT);
        assert_eq!(star.name(9), "switch");
    }

    #[test]
    fn a_dumbbell_has_one_link_in_the_middle() {
        let (degrees, farthest) = shape(&Topology::dumbbell(3, 2, 40 * GBIT, 10 * GBIT, US));
        assert_eq!(degrees, [1, 1, 1, 1, 1, 4, 3]);
        assert_eq!(farthest, 3);
    }

    #[test]
    fn the_testbed_is_that_of_the_figure() {
        let clos = Topology::clos3(5, 40 * GBIT, US);
        let (degrees, farthest) = shape(&clos);
        assert_eq!((clos.hosts, clos.switches), (20, 10));
        let (tors, rest) = degrees[20..].split_at(4);
        assert_eq!(tors, [7; 4]);
        assert_eq!(rest, [4; 6]);
        assert_eq!(farthest, 6);
        assert_eq!(clos.node("H45"), Some(19));
        assert_eq!(clos.node("S2"), Some(29));
    }

    #[test]
    fn hpccs_tree_does_not_block() {
        let tree = Topology::fat_tree();
        let (degrees, farthest) = shape(&tree);
        assert_eq!((tree.hosts, tree.switches), (320, 56));
        let switches = &degrees[320..];
        assert!(switches[..20].iter().all(|n| *n == 16 + 4));
        assert!(switches[20..40].iter().all(|n| *n == 4 + 4));
        assert!(switches[40..].iter().all(|n| *n == 5));
        // 12 us there and back.
        assert_eq!(farthest, 6);
    }

    #[test]
    fn a_fat_tree_of_six_ports_has_54_hosts() {
        let tree = Topology::fat_tree_of(6, 40 * GBIT, US);
        let (degrees, farthest) = shape(&tree);
        assert_eq!(tree.hosts, 54);
        assert!(degrees[54..].iter().all(|n| *n == 6));
        assert_eq!(farthest, 6);
    }

    #[test]
    fn leaves_see_all_spines() {
        let (degrees, farthest) = shape(&Topology::leaf_spine(3, 2, 4, 25 * GBIT, 100 * GBIT, US));
        assert_eq!(degrees[12..], [6, 6, 6, 3, 3]);
        assert_eq!(farthest, 4);
    }
}
