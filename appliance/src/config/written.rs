//! The configuration file of a running daemon, written.

use std::fmt::Write as _;
use std::path::Path;

use toml::Value;

use super::keys::{Keys, list, number, path, text};
use super::objects::Object;
use super::settings::Settings;
use crate::access::TlsFiles;

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Keys of the daemon itself, which act from its start on.
pub fn daemon(settings: &Settings) -> Keys {
    let mut keys = Keys::default();
    let (nic, control) = (&settings.nic, &settings.control);
    let cores = nic.data_cores.iter().map(|core| number(*core));
    keys.must("nic.data_cores", list(cores));
    keys.must("nic.idle_spin_us", number(nic.idle_spin.as_micros()));
    keys.must("nic.mac_ageing_s", number(nic.switch.ageing.as_secs()));
    keys.must("nic.forward_lldp", Value::Boolean(nic.switch.forward_lldp));
    keys.must("nic.socket_dir", path(&settings.socket_dir));
    keys.must("nic.state_dir", path(&settings.state_dir));
    let unix = text(format!("unix:{}", control.unix.display()));
    let tcp = control.tcp.map(|address| text(format!("tcp:{address}")));
    keys.must("control.listen", list(std::iter::once(unix).chain(tcp)));
    keys.must("control.mode", text(format!("{:04o}", control.mode)));
    keys.optional("control.group", control.group.map(text));
    keys.optional("control.tls", control.tls.as_ref().map(tls));
    let metrics = settings.metrics.map_or_else(|| text("off"), text);
    keys.must("metrics.listen", metrics);
    keys.must("events.keep", number(settings.events.events));
    keys.must("events.days", number(settings.events.age.as_secs() / DAY));
    keys.optional("subnet.policy_file", settings.policy_file.as_deref().map(path));
    keys
}

fn tls(files: &TlsFiles) -> Value {
    let mut table = toml::Table::new();
    let mut put = |key: &str, file: &Path| table.insert(key.to_owned(), path(file));
    put("certificate", &files.certificate);
    put("key", &files.key);
    put("client_ca", &files.client_ca);
    if let Some(list) = &files.client_crl {
        put("client_crl", list);
    }
    Value::Table(table)
}

/// What the file cannot say.
const ABOUT: &str = "\
# State of a running vnicd, as a configuration file (vnicd --config) and for `vnicctl apply -f`. Keys with their default are left out.
# Not in it: settings of the registry and quality of service (`vnicctl registry export`), NV configuration, congestion control,
# GIDs of operators, affinities of teams, [access]. All that is stored is in `vnicctl backup`.

# Of this daemon, in comments: where it is on its machine. They act from a start with this file on.
";

/// File with these objects, for a daemon with these settings.
pub fn file(settings: &Settings, objects: &[Object]) -> String {
    let mut text = ABOUT.to_owned();
    // Where keys are is not for everybody who may read the state.
    let shown = daemon(settings).lines();
    for line in shown.lines().filter(|line| !line.starts_with("control.tls")) {
        let _ = writeln!(text, "#{line}");
    }
    for object in objects {
        let table = match object {
            Object::Team(team) if team.members.is_empty() => {
                let name = &team.name;
                format!(
                    "# Team {name:?} is left out: it has no port, and a team of a file has one at least.\n"
                )
            }
            object => object.table(&settings.socket_dir),
        };
        let _ = write!(text, "\n{table}");
    }
    text
}
