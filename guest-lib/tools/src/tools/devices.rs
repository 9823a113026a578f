//! `devices`: the devices that this program can see.

use std::process::ExitCode;

use vnic_verbs::Device;

use crate::failure::Failure;
use crate::report::Report;
use crate::seat;

/// Lists the devices. They are not opened.
pub fn run(json: bool) -> ExitCode {
    let report = Device::list()
        .map_err(|e| Failure::from(e).on("devices"))
        .map(|devices| {
            let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
            let mut report = Report::new("devices");
            for name in &names {
                report.note(name.clone());
            }
            if names.is_empty() {
                report.note("none (`vnic-guest doctor` says why)");
            }
            report.word("devices", names);
            report
        });
    seat::finish("devices", json, report)
}
