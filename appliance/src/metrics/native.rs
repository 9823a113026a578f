//! Every counter of the data path, from its table.

use std::fmt::Display;

use vnic_backend::counters::{
    ADAPTER_DROP, CORE_COUNTERS, CounterDef, PORT_COUNTERS, PORT_DROP, QUEUE_COUNTERS, RDMA_COUNTERS, Values,
};

use super::naming::{self, NANOSECONDS};
use super::page::Page;

/// A metric with a value for each of these labels.
fn metric<'a, L: AsRef<[(&'a str, &'a dyn Display)]>>(
    page: &mut Page,
    def: &CounterDef,
    values: impl Iterator<Item = (L, u64)>,
) {
    page.counter(&naming::metric(def), def.help);
    let seconds = def.name.ends_with(NANOSECONDS);
    for (labels, value) in values {
        if seconds {
            page.value(labels.as_ref(), naming::seconds(value));
        } else {
            page.value(labels.as_ref(), value);
        }
    }
}

/// All counters. What is not there has no line: an adapter without an RDMA function has no RDMA counters.
pub fn counters(page: &mut Page, all: &Values) {
    for (i, def) in QUEUE_COUNTERS.iter().enumerate() {
        let values = all.adapters.iter().flat_map(|a| {
            a.queues.iter().map(move |(queue, values)| {
                let labels: [(&str, &dyn Display); 2] = [("adapter", &a.name), ("queue", queue)];
                (labels, values[i])
            })
        });
        metric(page, def, values);
    }
    // The set of reasons is bounded: each shows from the start, so that rates and alerts have a zero to begin with.
    let adapters = all.adapters.iter().map(|a| (&a.name, &a.drops));
    let drops = adapters.flat_map(|(name, drops)| drops.iter().map(move |drop| (name, drop)));
    let drops = drops.map(|(name, (reason, n))| {
        let labels: [(&str, &dyn Display); 2] = [("adapter", name), ("reason", reason)];
        (labels, *n)
    });
    metric(page, &ADAPTER_DROP, drops);
    for (i, def) in PORT_COUNTERS.iter().enumerate() {
        let values = all.ports.iter().map(|p| {
            let labels: [(&str, &dyn Display); 1] = [("port", &p.name)];
            (labels, p.io[i])
        });
        metric(page, def, values);
    }
    let ports = all.ports.iter().map(|p| (&p.name, &p.drops));
    let drops = ports.flat_map(|(name, drops)| drops.iter().map(move |drop| (name, drop)));
    let drops = drops.map(|(name, (reason, n))| {
        let labels: [(&str, &dyn Display); 2] = [("port", name), ("reason", reason)];
        (labels, *n)
    });
    metric(page, &PORT_DROP, drops);
    for (i, def) in RDMA_COUNTERS.iter().enumerate() {
        let functions = all.adapters.iter().filter_map(|a| Some((a, a.rdma.as_ref()?)));
        let values = functions.map(|(a, values)| {
            let labels: [(&str, &dyn Display); 1] = [("adapter", &a.name)];
            (labels, values[i])
        });
        metric(page, def, values);
    }
    for (i, def) in CORE_COUNTERS.iter().enumerate() {
        let values = all.cores.iter().map(|c| {
            let labels: [(&str, &dyn Display); 1] = [("core", &c.cpu)];
            (labels, c.values[i])
        });
        metric(page, def, values);
    }
}
