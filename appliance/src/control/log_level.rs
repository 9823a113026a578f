//! Filter of the daemon's log, which operators change while it runs. It is not stored.

use super::Control;
use super::refused::{Refused, acts};
use crate::events::ControlEvent;
use crate::logging;

/// Filter of the daemon's log.
pub struct LogLevel<'a>(pub &'a Control);

impl LogLevel<'_> {
    /// Filter now.
    pub fn get(&self) -> String {
        logging::filter()
    }

    /// Replaces the filter until the daemon ends; returns what it is then.
    pub fn set(&self, by: &str, filter: &str) -> Result<String, Refused> {
        let wrong = |problem| Refused::field("filter", problem);
        logging::parse(filter).map_err(wrong)?;
        acts()?;
        logging::set_filter(filter).map_err(wrong)?;
        self.0.hub.record(ControlEvent::LogLevelChanged {
            filter: filter.to_owned(),
            by: by.to_owned(),
        });
        Ok(filter.to_owned())
    }
}
