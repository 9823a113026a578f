//! Changes of the registry by operators; changes and refusals are events.

use super::Control;
use super::refused::Refused;
use crate::events::Owner;
use crate::registry::{Done, Import, ImportOptions, Operation, Refusal, RegistryError, Scope, Warning, Why};

/// Greatest size of a `.reg` file in bytes.
const FILE_MAX: usize = 512 << 10;

/// The registry.
pub struct Keys<'a>(pub &'a Control);

/// Result of an import of a `.reg` file.
pub struct Imported {
    /// Scope, key and error text of operations that were left out.
    pub left_out: Vec<(String, String, String)>,
    /// Values that are stored otherwise than the file has them.
    pub warnings: Vec<Warning>,
    /// Number of changed values.
    pub changed: usize,
    /// Revision of the registry after the import.
    pub revision: u64,
}

/// Owner of the settings of a scope.
fn owner(scope: &Scope) -> Owner {
    match scope {
        Scope::Driver => Owner::Nic,
        Scope::Adapter(name) => Owner::Adapter(name.clone()),
    }
}

impl Keys<'_> {
    /// Carries out operations, all or none. `field` gives the path of the field that asked for one. May block.
    pub fn transact(
        &self,
        by: &str,
        operations: &[Operation],
        field: impl Fn(&Refusal) -> String,
    ) -> Result<Done, Refused> {
        let done = self.0.registry.transact(operations);
        let done = done.map_err(|error| self.refused(by, error, field))?;
        self.changed(by, &done);
        Ok(done)
    }

    /// Checks operations as [`Keys::transact`] does, but changes nothing.
    pub fn validate(
        &self,
        by: &str,
        operations: &[Operation],
        field: impl Fn(&Refusal) -> String,
    ) -> Result<Vec<Warning>, Refused> {
        let found = self.0.registry.validate(operations);
        found.map_err(|error| self.refused(by, error, field))
    }

    /// Whether a scope can be read: its adapter exists, or has stored values.
    pub fn readable(&self, scope: &Scope) -> Result<(), Why> {
        match scope.adapter() {
            Some(name)
                if self.0.nic.adapter(name).is_err()
                    && !self.0.registry.committed().adapters().any(|a| a == name) =>
            {
                Err(Why::NoAdapter(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Writes a `.reg` file of the wanted scopes; returns it with the revision. May block.
    pub fn export(&self, wanted: impl Fn(&Scope) -> bool, utf8: bool) -> Result<(Vec<u8>, u64), Refused> {
        let file = self.0.registry.write_file(wanted, utf8);
        file.map_err(|error| self.refused("", error, |refusal| refusal.key.clone()))
    }

    /// Imports a `.reg` file, or only checks it. May block.
    pub fn import(
        &self,
        by: &str,
        content: &[u8],
        options: &ImportOptions,
        validate_only: bool,
    ) -> Result<Imported, Refused> {
        if content.len() > FILE_MAX {
            return Err(Refused::field(
                "content",
                format!("a file has at most {FILE_MAX} bytes"),
            ));
        }
        let line = |line: usize| format!("content: line {line}");
        let file = self.0.registry.read_file(content, options).map_err(|problems| {
            let mut wrong = crate::check::Violations::default();
            for p in problems {
                wrong.add(line(p.line), p.problem);
            }
            wrong
        })?;
        let Import {
            operations,
            lines,
            left_out,
            ..
        } = file;
        let mut imported = Imported {
            left_out,
            warnings: Vec::new(),
            changed: 0,
            revision: self.0.registry.committed().revision,
        };
        let field = |refusal: &Refusal| line(lines.get(refusal.operation).copied().unwrap_or(0));
        if operations.is_empty() {
            return Ok(imported);
        }
        if validate_only {
            imported.warnings = self.validate(by, &operations, field)?;
        } else {
            let done = self.transact(by, &operations, field)?;
            imported.changed = done.changes.len();
            (imported.revision, imported.warnings) = (done.revision, done.warnings);
        }
        Ok(imported)
    }

    /// Translates a refusal of a transaction, and records it as an event.
    pub(super) fn refused(
        &self,
        by: &str,
        error: RegistryError,
        field: impl Fn(&Refusal) -> String,
    ) -> Refused {
        let refusals = match &error {
            RegistryError::Refused(refusals) => refusals.as_slice(),
            RegistryError::Store(_) | RegistryError::Rehearsed => &[],
        };
        for refusal in refusals {
            let told = matches!(
                refusal.why,
                Why::NotAllowed(_) | Why::AboveLineRate { .. } | Why::Conflict(_) | Why::Nic(_)
            );
            if told {
                self.0.settings_refused(
                    owner(&refusal.scope),
                    "registry",
                    format!("{}: {}", refusal.key, refusal.why),
                    by,
                );
            }
        }
        Refused::registry(error, field)
    }

    /// Records a transaction as an event.
    pub(super) fn changed(&self, by: &str, done: &Done) {
        let Some(first) = done.changes.first() else { return };
        let words: Vec<String> = done
            .changes
            .iter()
            .take(8)
            .map(|c| match &c.value {
                Some(value) => format!("{} {} = {}", c.scope, c.key.name, c.key.format(value)),
                None => format!("{} {} forgotten", c.scope, c.key.name),
            })
            .collect();
        let more = match done.changes.len().saturating_sub(words.len()) {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        let one = done.changes.iter().all(|c| c.scope == first.scope);
        self.0.settings_changed(
            if one { owner(&first.scope) } else { Owner::Nic },
            "registry",
            words.join(", ") + &more,
            by,
        );
        for warning in &done.warnings {
            self.0
                .settings_refused(owner(&warning.scope), "registry", warning.message.clone(), by);
        }
    }
}
