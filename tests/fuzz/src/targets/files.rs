//! Files that people write: the daemon's configuration, fault rules, `.reg` files. What is wrong is told with the file's name.

use std::path::Path;

use vnic_appliance::config::{Environment, Overrides, Settings, faults_from_text};
use vnic_appliance::registry::reg_file;

/// `vnicd.toml`.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let environment = Environment {
        runtime_directory: Some("/run/vnic".into()),
        state_directory: Some("/var/lib/vnic".into()),
        xdg_runtime_dir: None,
        root: true,
        cpus: vec![0, 1],
        machine_id: "fuzz".into(),
    };
    let read = Settings::from_text(Path::new("vnicd.toml"), text, &Overrides::default(), &environment);
    if let Err(wrong) = read {
        assert!(wrong.to_string().contains("vnicd.toml"), "{wrong}");
    }
}

/// A file of fault rules.
pub fn faults(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(wrong) = faults_from_text(Path::new("rules.toml"), text) {
        assert!(wrong.to_string().contains("rules.toml"), "{wrong}");
    }
}

/// A `.reg` file, as `vnicctl` sends it.
pub fn reg(bytes: &[u8]) {
    if let Err(wrong) = reg_file::parse(bytes) {
        assert!(!wrong.is_empty(), "an error that names nothing");
    }
}
