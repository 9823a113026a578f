//! Metrics of the data path's counters, from their table.

use std::fmt::Display;

use vnic_backend::counters::{
    ADAPTER_DROP, CORE_COUNTERS, CounterDef, HISTOGRAMS, HistogramSample, LINK_COUNTERS, LinkValues,
    MESH_COUNTERS, PORT_COUNTERS, PORT_DCBX_COUNTERS, PORT_DROP, PORT_LINK_COUNTERS, PORT_PRIORITY_COUNTERS,
    PRIORITY_COUNTERS, QUEUE_COUNTERS, RDMA_COUNTERS, Values,
};

use super::naming;
use super::page::Page;

/// Metric with a value for each set of labels.
fn metric<'a, L: AsRef<[(&'a str, &'a dyn Display)]>>(
    page: &mut Page,
    def: &CounterDef,
    values: impl Iterator<Item = (L, u64)>,
) {
    page.counter(&naming::metric(def), def.help);
    let time = naming::time(def.name);
    for (labels, value) in values {
        match time {
            Some((_, second)) => page.value(labels.as_ref(), naming::seconds(value, second)),
            None => page.value(labels.as_ref(), value),
        }
    }
}

/// Counters of the links of adapters, or of uplink ports. Priorities that were never used have no lines: there may be many
/// adapters, and most use one priority.
fn links<'a>(
    page: &mut Page,
    owner: &'static str,
    tables: (&'static [CounterDef], &'static [CounterDef]),
    links: impl Iterator<Item = (&'a String, &'a LinkValues)> + Clone,
) {
    for (i, def) in tables.0.iter().enumerate() {
        let used = links
            .clone()
            .flat_map(|(name, link)| link.used().map(move |used| (name, used)));
        let lines: Vec<_> = used.map(|(name, (p, values))| (name, p, values[i])).collect();
        let values = lines.iter().map(|(name, priority, value)| {
            let labels: [(&str, &dyn Display); 2] = [(owner, name), ("priority", priority)];
            (labels, *value)
        });
        metric(page, def, values);
    }
    for (i, def) in tables.1.iter().enumerate() {
        let links: Vec<_> = links.clone().collect();
        let values = links.iter().map(|(name, link)| {
            let labels: [(&str, &dyn Display); 1] = [(owner, name)];
            (labels, link.all[i])
        });
        metric(page, def, values);
    }
}

/// All counters. Missing counters have no line: an adapter without an RDMA function has no RDMA counters.
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
    // The set of reasons is bounded: each has a line from the start, so that rates and alerts begin at zero.
    let adapters = all.adapters.iter().map(|a| (&a.name, &a.drops));
    let drops = adapters.flat_map(|(name, drops)| drops.iter().map(move |drop| (name, drop)));
    let drops = drops.map(|(name, (reason, n))| {
        let labels: [(&str, &dyn Display); 2] = [("adapter", name), ("reason", reason)];
        (labels, *n)
    });
    metric(page, &ADAPTER_DROP, drops);
    let adapters = all.adapters.iter().map(|a| (&a.name, &*a.link));
    links(page, "adapter", (&PRIORITY_COUNTERS, &LINK_COUNTERS), adapters);
    for (i, def) in PORT_COUNTERS.iter().enumerate() {
        let values = all.ports.iter().map(|p| {
            let labels: [(&str, &dyn Display); 1] = [("port", &p.name)];
            (labels, p.io[i])
        });
        metric(page, def, values);
    }
    for (i, def) in PORT_DCBX_COUNTERS.iter().enumerate() {
        let values = all.ports.iter().map(|p| {
            let labels: [(&str, &dyn Display); 1] = [("port", &p.name)];
            (labels, p.dcbx[i])
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
    for (i, def) in MESH_COUNTERS.iter().enumerate() {
        let meshes = all.ports.iter().filter_map(|p| Some((p, p.mesh.as_ref()?)));
        let values = meshes.map(|(p, values)| {
            let labels: [(&str, &dyn Display); 1] = [("port", &p.name)];
            (labels, values[i])
        });
        metric(page, def, values);
    }
    let ports = all.ports.iter().map(|p| (&p.name, &*p.link));
    links(
        page,
        "port",
        (&PORT_PRIORITY_COUNTERS, &PORT_LINK_COUNTERS),
        ports,
    );
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

/// All histograms.
pub fn histograms(page: &mut Page, all: &[HistogramSample]) {
    for def in HISTOGRAMS {
        page.histogram(&naming::histogram(def), def.help);
        let time = naming::histogram_time(def);
        let text =
            |value: u64| time.map_or_else(|| value.to_string(), |second| naming::seconds(value, second));
        for sample in all.iter().filter(|sample| sample.def == def) {
            let counts = &sample.values.buckets;
            let labels: [(&str, &dyn Display); 1] = [(naming::owner(def.scope), &sample.owner)];
            page.buckets(
                &labels,
                def.bounds(counts.len()).map(text),
                counts,
                text(sample.values.sum),
            );
        }
    }
}
