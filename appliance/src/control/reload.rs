//! The configuration file, certificates and roles, read again while the daemon runs.

use std::sync::Arc;

use vnic_backend::rehearsal::rehearses;

use super::Control;
use super::declared::{Applied, Declared, Whose};
use super::refused::Refused;
use crate::config::{self, Diagnostics, Difference, Object, Settings};
use crate::events::ControlEvent;

/// Reads the configuration file, certificates and roles again.
pub struct Reload<'a>(pub &'a Arc<Control>);

/// Result of a reading.
#[derive(Debug, Clone)]
pub struct Reloaded {
    /// Path of the file.
    pub file: String,
    pub applied: Applied,
    /// Keys of the daemon itself that act from its next start on: `before` acts now.
    pub waits: Vec<Difference>,
}

/// Problem in an event, which says itself that nothing is changed.
fn problem(refused: &Refused) -> String {
    match refused {
        Refused::File(all) => all.brief(),
        other => other.text(),
    }
}

impl Reload<'_> {
    /// Reads all of it again, and makes what the file says as far as that can be under traffic. A file that is wrong, or that does not
    /// go with what stays, changes nothing. What was done or refused is an event. May block.
    pub fn run(&self, by: &str) -> Result<Reloaded, Refused> {
        let control = self.0;
        let read = self.read();
        if rehearses() {
            let (settings, wanted) = read?;
            return self.apply(by, &settings, &wanted);
        }
        for (port, read) in control.meshes.reload_certificates() {
            let problem = read.err().map(|e| format!("port {port}: {e}"));
            control.hub.record(ControlEvent::CertificatesLoaded {
                problem: problem.unwrap_or_default(),
            });
        }
        let mut problems = Vec::new();
        let settings = match &read {
            Ok((settings, _)) => Some(settings),
            Err(Refused::NoFile) => None,
            Err(refused) => {
                problems.push(problem(refused));
                None
            }
        };
        problems.extend(control.doors.get().and_then(|doors| doors(settings).err()));
        control.hub.record(ControlEvent::CertificatesLoaded {
            problem: problems.join("; "),
        });
        let done = read.and_then(|(settings, wanted)| self.apply(by, &settings, &wanted));
        match &done {
            Ok(done) => Declared(control).tell(by, &done.file, &done.applied, &done.waits),
            Err(Refused::NoFile) => {}
            Err(refused) => control.hub.record(ControlEvent::ConfigApplied {
                file: self.file(),
                changes: 0,
                waits: String::new(),
                problem: problem(refused),
                by: by.to_owned(),
            }),
        }
        done
    }

    fn file(&self) -> String {
        let file = self.0.settings.config_file.as_ref();
        file.map_or_else(String::new, |file| file.display().to_string())
    }

    /// Settings of the file as the daemon's next start reads it, and its objects as the running daemon can have them.
    fn read(&self) -> Result<(Settings, Vec<Object>), Refused> {
        let (control, given) = (self.0, &self.0.settings.given);
        let path = control.settings.config_file.as_ref().ok_or(Refused::NoFile)?;
        let text = std::fs::read_to_string(path)
            .map_err(|e| Refused::File(Diagnostics::general(path, format!("cannot read the file: {e}"))))?;
        let settings = Settings::from_text(path, &text, &given.overrides, &given.environment);
        let settings = settings.map_err(Refused::File)?;
        let wanted = Declared(control).read(path, &text)?;
        Declared(control).plan(&wanted, Whose::Daemon)?;
        Ok((settings, wanted))
    }

    fn apply(&self, by: &str, settings: &Settings, wanted: &[Object]) -> Result<Reloaded, Refused> {
        let waits = config::daemon(&self.0.settings).differences(&config::daemon(settings));
        Ok(Reloaded {
            file: self.file(),
            applied: Declared(self.0).carry_out(by, wanted, Whose::Daemon)?,
            waits,
        })
    }
}
