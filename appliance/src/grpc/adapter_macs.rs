//! The list of further addresses of an adapter: an edit of its registry key, so that there is one list and not two.

use tonic::Status;
use vnic_backend::settings::Value;
use vnic_backend::{MORE_MACS_MAX, MacAddr};

use super::errors::Violations;
use super::registry;
use crate::check;
use crate::daemon::Context;
use crate::registry::{RegistryError, Scope};

/// The key of the list.
const KEY: &str = "mac-address-list";

/// What becomes of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Addresses are added.
    Add,
    /// Addresses are removed.
    Remove,
}

/// Why there was no edit.
enum Refused {
    /// The list and the request do not fit together.
    Request(Box<Status>),
    Registry(RegistryError),
}

impl From<RegistryError> for Refused {
    fn from(error: RegistryError) -> Refused {
        Refused::Registry(error)
    }
}

/// The addresses of a request, each one that can belong to an adapter, none twice.
pub fn parse(texts: &[String]) -> Result<Vec<MacAddr>, Status> {
    let mut wrong = Violations::default();
    if texts.is_empty() || texts.len() > MORE_MACS_MAX {
        let n = texts.len();
        wrong.add("macs", format!("{n} addresses; allowed are 1 to {MORE_MACS_MAX}"));
    }
    let mut macs = Vec::new();
    // (A request that is too long is refused as such: its addresses are not looked at one by one.)
    for (i, text) in texts.iter().enumerate().take(MORE_MACS_MAX) {
        let field = format!("macs[{i}]");
        match wrong.check(field.clone(), check::mac(text)) {
            Some(mac) if macs.contains(&mac) => wrong.add(field, format!("{mac} is named twice")),
            Some(mac) => macs.push(mac),
            None => {}
        }
    }
    wrong.finish(Some(macs))
}

/// Adds addresses to an adapter's list, or removes them; all of them or none. May block.
pub fn edit(context: &Context, adapter: &str, macs: &[MacAddr], edit: Edit, by: &str) -> Result<(), Status> {
    let scope = Scope::Adapter(adapter.to_owned());
    let done = context.registry.edit(&scope, KEY, |stored| {
        let mut list = match stored {
            Some(Value::Macs(list)) => list.clone(),
            _ => Vec::new(),
        };
        let mut wrong = Violations::default();
        for (i, mac) in macs.iter().enumerate() {
            match (edit, list.contains(mac)) {
                (Edit::Add, true) => wrong.add(format!("macs[{i}]"), format!("{mac} is in the list already")),
                (Edit::Remove, false) => wrong.add(format!("macs[{i}]"), format!("{mac} is not in the list")),
                _ => {}
            }
        }
        wrong
            .finish(Some(()))
            .map_err(|s| Refused::Request(Box::new(s)))?;
        match edit {
            Edit::Add => list.extend_from_slice(macs),
            Edit::Remove => list.retain(|m| !macs.contains(m)),
        }
        Ok((!list.is_empty()).then_some(Value::Macs(list)))
    });
    match done {
        Ok(done) => {
            registry::changed(context, by, &done);
            Ok(())
        }
        Err(Refused::Request(status)) => Err(*status),
        Err(Refused::Registry(error)) => Err(registry::refused(context, by, error, |_| "macs".to_owned())),
    }
}
