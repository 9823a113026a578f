//! The configuration file: its keys, with allowed values and defaults. The commented example is
//! `deploy/config/vnicd.toml`; a test compares it with this file.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::{ADAPTERS_MAX, MacAddr, NicConfig, PORTS_MAX, SwitchConfig};

use super::access::{AccessTable, TlsTable, access, tls};
use super::adapter::{AdapterTable, adapter};
use super::command_line::{self, IDLE_SPIN_DEFAULT};
use super::diagnostics::{Diagnostics, Sink};
use super::environment::Environment;
use super::faults::{FaultTable, faults};
use super::port::{PortTable, port};
use super::reader::{self, Numbers, Texts};
use super::settings::{CONTROL_MODE, Control, Given, Overrides, Settings, metrics_default};
use super::subnet_groups::{SubnetGroupTable, subnet_groups};
use super::taken::{Taken, limit};
use super::teams::{TeamTable, teams};
use super::verbs_faults::{VerbsFaultTable, verbs_faults};
use crate::access::group_id;
use crate::check::{self, Checked};
use crate::events::Keep;
use crate::macs::MacSource;
use crate::mesh::spec::file;

/// The whole file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct File {
    nic: NicTable,
    control: ControlTable,
    access: AccessTable,
    metrics: MetricsTable,
    tracing: TracingTable,
    events: EventsTable,
    subnet: SubnetTable,
    adapter: Vec<Spanned<AdapterTable>>,
    port: Vec<Spanned<PortTable>>,
    team: Vec<Spanned<TeamTable>>,
    fault: Vec<Spanned<FaultTable>>,
    verbs_fault: Vec<Spanned<VerbsFaultTable>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct NicTable {
    data_cores: Option<Spanned<Numbers>>,
    idle_spin_us: Option<Spanned<i64>>,
    mac_ageing_s: Option<Spanned<i64>>,
    forward_lldp: Option<Spanned<bool>>,
    socket_dir: Option<Spanned<String>>,
    state_dir: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ControlTable {
    listen: Option<Spanned<Texts>>,
    mode: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    tls: Option<Spanned<TlsTable>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct MetricsTable {
    listen: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct TracingTable {
    otlp: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct EventsTable {
    keep: Option<Spanned<i64>>,
    days: Option<Spanned<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct SubnetTable {
    policy_file: Option<Spanned<String>>,
    group: Vec<Spanned<SubnetGroupTable>>,
}

/// Parses and checks the text of a configuration file.
pub(super) fn parse(
    path: &Path,
    text: &str,
    overrides: &Overrides,
    environment: &Environment,
) -> Result<Settings, Diagnostics> {
    let (mut tables, sink) = reader::read::<File>(path, text)?;
    let (config, directories) = nic(&sink, tables.nic, overrides, environment);
    let (socket_dir, state_dir) = directories.unwrap_or_default();
    let control = control(&sink, tables.control, overrides, &socket_dir);
    let access = access(&sink, tables.access);
    let metrics = sink
        .text(tables.metrics.listen, check::metrics_listen)
        .unwrap_or(Some(metrics_default()));
    let traces = sink.text(tables.tracing.otlp, check::collector).flatten();
    let events = events(&sink, tables.events);
    let policy_file = sink.text(tables.subnet.policy_file, file);
    let subnet_groups = subnet_groups(&sink, tables.subnet.group);

    let mut taken = Taken::default();
    limit(&sink, &mut tables.adapter, ADAPTERS_MAX, "adapters");
    limit(&sink, &mut tables.port, PORTS_MAX, "ports");
    let cores = &config.data_cores;
    let adapters = tables.adapter.into_iter();
    let mut adapters: Vec<_> = adapters
        .map(|table| adapter(&sink, table, &socket_dir, cores, &mut taken))
        .collect();
    let ports: Vec<_> = tables
        .port
        .into_iter()
        .map(|table| port(&sink, table, cores, &mut taken))
        .collect();
    let teams = teams(&sink, tables.team, &taken.ports);
    let faults = faults(&sink, tables.fault, Some(&taken.names));
    let verbs_faults = verbs_faults(&sink, tables.verbs_fault, &adapters);
    let control = match control {
        Some(control) if !sink.failed() => control,
        _ => return Err(sink.into_diagnostics()),
    };

    let macs = MacSource::new(&environment.machine_id, &state_dir, &socket_dir);
    let mut used: BTreeSet<MacAddr> = taken.macs.into_keys().collect();
    for adapter in &mut adapters {
        if adapter.macs.is_empty() {
            let mac = macs.derive(&adapter.name, &used);
            used.insert(mac);
            adapter.macs.push(mac);
        }
    }
    let meshes = ports
        .iter()
        .filter_map(|(port, mesh)| Some((port.name.clone(), mesh.clone()?)));
    Ok(Settings {
        config_file: Some(path.to_owned()),
        nic: config,
        socket_dir,
        state_dir,
        control: Control {
            traces: overrides.traces.clone().unwrap_or(traces),
            ..control
        },
        access,
        metrics: overrides.metrics.unwrap_or(metrics),
        events,
        policy_file,
        subnet_groups,
        adapters,
        meshes: meshes.collect(),
        ports: ports.into_iter().map(|(port, _)| port).collect(),
        teams,
        faults,
        verbs_faults,
        macs,
        given: Given {
            overrides: overrides.clone(),
            environment: environment.clone(),
        },
    })
}

/// Reads a number as a duration in a unit.
fn duration(
    sink: &Sink<'_>,
    number: Option<Spanned<i64>>,
    range: RangeInclusive<i64>,
    unit: &str,
    make: fn(u64) -> Duration,
) -> Option<Duration> {
    sink.check(number, |v| {
        let within = u64::try_from(v).ok().filter(|_| range.contains(&v));
        within
            .map(make)
            .ok_or_else(|| format!("{v} is out of range: {} to {} {unit}", range.start(), range.end()))
    })
}

/// Reads `[nic]`; returns also the directories of sockets and of state.
fn nic(
    sink: &Sink<'_>,
    table: NicTable,
    overrides: &Overrides,
    environment: &Environment,
) -> (NicConfig, Option<(PathBuf, PathBuf)>) {
    let idle_spin = duration(
        sink,
        table.idle_spin_us,
        0..=1_000_000,
        "microseconds",
        Duration::from_micros,
    );
    let ageing = duration(
        sink,
        table.mac_ageing_s,
        10..=1_000_000,
        "seconds",
        Duration::from_secs,
    );
    let switch = SwitchConfig::default();
    let (socket_dir, state_dir) = (
        sink.text(table.socket_dir, file),
        sink.text(table.state_dir, file),
    );
    let directories = command_line::directories(
        overrides
            .socket_dir
            .as_ref()
            .or(socket_dir.as_ref())
            .map(PathBuf::as_path),
        overrides
            .state_dir
            .as_ref()
            .or(state_dir.as_ref())
            .map(PathBuf::as_path),
        environment,
    );
    let directories = directories.map_err(|message| sink.error(0..0, "nic.socket_dir", message));
    let config = NicConfig {
        data_cores: data_cores(sink, table.data_cores, overrides, environment),
        idle_spin: idle_spin.unwrap_or(IDLE_SPIN_DEFAULT),
        confine: true,
        switch: SwitchConfig {
            ageing: ageing.unwrap_or(switch.ageing),
            forward_lldp: table.forward_lldp.is_some_and(|yes| yes.into_inner()),
            ..switch
        },
    };
    (config, directories.ok())
}

fn data_cores(
    sink: &Sink<'_>,
    given: Option<Spanned<Numbers>>,
    overrides: &Overrides,
    environment: &Environment,
) -> Vec<usize> {
    let cpu = |v: i64| usize::try_from(v).map_err(|_| format!("{v} is not the number of a CPU"));
    let given = sink.check(given, |cores| {
        let cores = match cores {
            Numbers::Text(text) => check::cpu_list(&text)?,
            Numbers::List(list) => list.into_iter().map(cpu).collect::<Checked<_>>()?,
        };
        if overrides.data_cores.is_none() {
            check::data_cores(&cores, &environment.cpus)?;
        }
        Ok(cores)
    });
    if let Some(cores) = &overrides.data_cores
        && let Err(message) = check::data_cores(cores, &environment.cpus)
    {
        sink.error(0..0, "--data-cores", message);
    }
    let cores = overrides.data_cores.clone().or(given);
    cores.unwrap_or_else(|| environment.data_cores())
}

/// Reads `[control]`; `None`: it is wrong.
fn control(
    sink: &Sink<'_>,
    table: ControlTable,
    overrides: &Overrides,
    socket_dir: &Path,
) -> Option<Control> {
    let span = table.listen.as_ref().map_or(0..0, Spanned::span);
    let listen = sink.check(table.listen, |listen| {
        let texts = match listen {
            Texts::One(text) => vec![text],
            Texts::Several(texts) => texts,
        };
        texts
            .iter()
            .map(|text| check::control_listen(text))
            .collect::<Checked<Vec<_>>>()
    });
    let mode = sink.text(table.mode, check::socket_mode);
    let group = sink.text(table.group, group_id);
    let tls = table.tls.map(|table| tls(sink, table));
    let listen = match overrides.control.is_empty() {
        true => listen.unwrap_or_default(),
        false => overrides.control.clone(),
    };
    match command_line::control(&listen, tls, socket_dir) {
        Ok(control) => Some(Control {
            mode: mode.unwrap_or(CONTROL_MODE),
            group,
            ..control
        }),
        // Without a socket directory the path cannot be checked; the directory's problem was added already.
        Err(_) if socket_dir.as_os_str().is_empty() => None,
        Err(message) => {
            sink.error(span, "control.listen", message);
            None
        }
    }
}

fn events(sink: &Sink<'_>, table: EventsTable) -> Keep {
    let days = |days| Duration::from_secs(days * 86_400);
    let default = Keep::default();
    Keep {
        events: sink
            .check(table.keep, check::events_kept)
            .unwrap_or(default.events),
        age: duration(sink, table.days, 1..=3650, "days", days).unwrap_or(default.age),
    }
}
