//! Ways through the network: shortest paths, and which of several a flow takes.

use std::collections::VecDeque;

use anyhow::{Result, ensure};

use super::scenario::Topology;

/// A direction of a link, as the node at its beginning sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Where it begins.
    pub node: usize,
    /// Where it ends.
    pub to: usize,
    /// The other direction.
    pub back: usize,
    /// Number among those of its node.
    pub number: usize,
    /// bit/s.
    pub rate: u64,
    /// ns.
    pub delay: u64,
}

/// All directions of all links, and distances to hosts as they are asked for.
#[derive(Debug)]
pub struct Routes {
    /// Link `i` from its `a` is `2 i`, from its `b` `2 i + 1`.
    pub ways: Vec<Way>,
    /// By node.
    pub of_node: Vec<Vec<usize>>,
    hosts: usize,
    /// Hops to a host by node; empty: not looked at yet.
    distances: Vec<Vec<u16>>,
    seed: u64,
}

/// Not to be reached.
const FAR: u16 = u16::MAX;

/// Spreads bits (the finalizer of SplitMix64).
pub fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Routes {
    /// Of a topology. Refused where a host has not one link, or a link has no ends or no rate.
    pub fn new(topology: &Topology, seed: u64) -> Result<Routes> {
        let nodes = topology.hosts + topology.switches;
        let mut routes = Routes {
            ways: Vec::with_capacity(2 * topology.links.len()),
            of_node: vec![Vec::new(); nodes],
            hosts: topology.hosts,
            distances: vec![Vec::new(); topology.hosts],
            seed,
        };
        for (i, link) in topology.links.iter().enumerate() {
            ensure!(
                link.a < nodes && link.b < nodes && link.a != link.b,
                "link {i} is between {} and {}, of {nodes} nodes",
                link.a,
                link.b
            );
            ensure!(link.rate > 0, "link {i} has no rate");
            for (node, to, back) in [(link.a, link.b, 2 * i + 1), (link.b, link.a, 2 * i)] {
                routes.ways.push(Way {
                    node,
                    to,
                    back,
                    number: routes.of_node[node].len(),
                    rate: link.rate,
                    delay: link.delay,
                });
                routes.of_node[node].push(routes.ways.len() - 1);
            }
        }
        for host in 0..topology.hosts {
            let links = routes.of_node[host].len();
            ensure!(links == 1, "host {host} has {links} links instead of one");
        }
        Ok(routes)
    }

    /// Hops to a host, by node.
    fn distances(&mut self, host: usize) -> &[u16] {
        if self.distances[host].is_empty() {
            let mut found = vec![FAR; self.of_node.len()];
            found[host] = 0;
            let mut next = VecDeque::from([host]);
            while let Some(node) = next.pop_front() {
                // Hosts forward nothing.
                if node < self.hosts && node != host {
                    continue;
                }
                for way in &self.of_node[node] {
                    let to = self.ways[*way].to;
                    if found[to] == FAR {
                        found[to] = found[node] + 1;
                        next.push_back(to);
                    }
                }
            }
            self.distances[host] = found;
        }
        &self.distances[host]
    }

    /// The ways of a flow from host to host, the sender's link first. Where several are as short, the flow's UDP source port
    /// decides, at each switch anew (equal-cost multipath by hash).
    pub fn find(&mut self, from: usize, to: usize, port: u16) -> Result<Vec<u32>> {
        ensure!(
            from < self.hosts && to < self.hosts && from != to,
            "a flow from host {from} to host {to}, of {} hosts",
            self.hosts
        );
        let seed = self.seed;
        self.distances(to);
        let distances = &self.distances[to];
        ensure!(distances[from] != FAR, "no way from host {from} to host {to}");
        let flow = mix(mix(mix(seed ^ from as u64) ^ to as u64) ^ u64::from(port));
        let mut found = Vec::with_capacity(distances[from].into());
        let mut node = from;
        while node != to {
            let nearer = |way: &&usize| distances[self.ways[**way].to] < distances[node];
            let choices = self.of_node[node].iter().filter(nearer).count() as u64;
            let hash = mix(flow ^ mix(node as u64));
            let chosen = ((u128::from(hash) * u128::from(choices)) >> 64) as usize;
            let way = self.of_node[node].iter().filter(nearer).nth(chosen);
            let way = *way.expect("one is nearer where the distance is known");
            found.push(way as u32);
            node = self.ways[way].to;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Link;
    use super::*;

    /// Two switches above two below, one host at each of these.
    fn diamond() -> Topology {
        let link = |a, b| Link {
            a,
            b,
            rate: 1_000_000_000,
            delay: 1,
        };
        Topology {
            hosts: 2,
            switches: 4,
            links: vec![
                link(0, 2),
                link(1, 3),
                link(2, 4),
                link(2, 5),
                link(4, 3),
                link(3, 5),
            ],
            names: Vec::new(),
        }
    }

    #[test]
    fn flows_spread_over_equal_ways() -> Result<()> {
        let mut routes = Routes::new(&diamond(), 7)?;
        let mut by = [0; 6];
        for port in 0..1000 {
            let route = routes.find(0, 1, 0xc000 + port)?;
            assert_eq!((route.len(), route[0]), (4, 0));
            by[routes.ways[route[1] as usize].to] += 1;
            assert_eq!(route, routes.find(0, 1, 0xc000 + port)?);
        }
        // A fair coin: 500, and a standard deviation of 16.
        assert!((420..580).contains(&by[4]) && by[4] + by[5] == 1000, "{by:?}");
        Ok(())
    }

    #[test]
    fn what_cannot_be_is_refused() -> Result<()> {
        let mut lonely = diamond();
        lonely.links.retain(|l| l.a != 1);
        assert!(Routes::new(&lonely, 0).is_err());
        let mut parted = diamond();
        parted.links.truncate(4);
        assert!(Routes::new(&parted, 0)?.find(0, 1, 1).is_err());
        let mut routes = Routes::new(&diamond(), 0)?;
        assert!(routes.find(0, 0, 1).is_err() && routes.find(0, 2, 1).is_err());
        Ok(())
    }
}
