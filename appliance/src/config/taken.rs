//! Names and addresses that may occur once in a file, and limits of its tables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use vnic_backend::MacAddr;

use super::diagnostics::Sink;
use crate::check;

/// Names and addresses in use, with their lines.
#[derive(Default)]
pub(super) struct Taken {
    pub names: BTreeMap<String, usize>,
    pub macs: BTreeMap<MacAddr, (String, usize)>,
    pub sockets: BTreeMap<PathBuf, String>,
    /// Network devices, with the ports that have them.
    pub devices: BTreeMap<String, String>,
    /// Names of ports in `names`, also of ports that are wrong otherwise.
    pub ports: Vec<String>,
}

impl Taken {
    /// Reads the name of an adapter or port, which must be unique.
    pub fn name(
        &mut self,
        sink: &Sink<'_>,
        at: &Range<usize>,
        name: Option<Spanned<String>>,
    ) -> Option<String> {
        name_once(sink, at, name, &mut self.names, "adapters and ports")
    }

    /// Notes the network device of a port. An error: another port has it.
    pub fn device(&mut self, ifname: &str, port: &str) -> Result<(), String> {
        match self.devices.get(ifname) {
            Some(other) => Err(format!(
                "port {other} has the network device {ifname}: a device is one port"
            )),
            None => {
                self.devices.insert(ifname.to_owned(), port.to_owned());
                Ok(())
            }
        }
    }
}

/// Reads a name that must be unique in `names`.
pub(super) fn name_once(
    sink: &Sink<'_>,
    at: &Range<usize>,
    name: Option<Spanned<String>>,
    names: &mut BTreeMap<String, usize>,
    among: &str,
) -> Option<String> {
    let name = sink.required(at, "name", name)?;
    let line = sink.line(&name.span());
    let name = sink.text(Some(name), |text| {
        let name = check::name(text)?;
        match names.get(&name) {
            Some(first) => Err(format!(
                "the name {name} is taken by line {first}; names are unique among {among}"
            )),
            None => Ok(name),
        }
    })?;
    names.insert(name.clone(), line);
    Some(name)
}

/// Adds a problem if there are too many tables of a kind, and leaves out those.
pub(super) fn limit<T>(sink: &Sink<'_>, tables: &mut Vec<Spanned<T>>, most: usize, what: &str) {
    if let Some(first_too_many) = tables.get(most) {
        sink.wrong(
            &first_too_many.span(),
            format!("at most {most} {what} are allowed"),
        );
    }
    tables.truncate(most);
}
