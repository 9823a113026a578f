//! Captures: their filters and limits.

use std::time::Duration;

use vnic_backend::{Capture, CaptureSpec};

use super::Control;
use super::refused::Refused;
use crate::capture::{CaptureError, Info, Limits, Session};
use crate::check::{Checked, Violations};

/// Greatest `snaplen`: a segmentation request of 64 KiB with its headers fits.
const SNAPLEN_MAX: u32 = 262_144;
/// Default limit of a file, in bytes.
const FILE_DEFAULT: u64 = 256 << 20;
/// Least limit of a file that can be asked for, in bytes.
const FILE_MIN: u64 = 4096;

pub struct Captures<'a>(pub &'a Control);

/// Request for a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Names of adapters and ports; empty: all.
    pub owners: Vec<String>,
    /// Bytes of a frame that are kept; 0: all.
    pub snaplen: u32,
    /// Whether only dropped frames are captured.
    pub drops_only: bool,
    /// Frames after which the capture ends; 0: any number.
    pub frames: u64,
    /// Time after which the capture ends.
    pub duration: Option<Duration>,
}

/// Path of a field of [`CaptureSpec`] in a request.
fn path(name: &str) -> String {
    format!("filter.{name}")
}

fn refused(error: CaptureError) -> Refused {
    match error {
        CaptureError::Nic(error) => Refused::nic(path)(error),
        other => Refused::Capture(other),
    }
}

fn checked(asked: Asked, wrong: &mut Violations) -> (CaptureSpec, Limits) {
    if asked.snaplen > SNAPLEN_MAX {
        wrong.add(
            "filter.snaplen",
            format!("{} is out of range: 0 to {SNAPLEN_MAX} bytes", asked.snaplen),
        );
    }
    if asked.duration == Some(Duration::ZERO) {
        wrong.add("filter.max_duration", "must be more than zero");
    }
    let spec = CaptureSpec {
        owners: asked.owners,
        snaplen: if asked.snaplen == 0 {
            SNAPLEN_MAX
        } else {
            asked.snaplen
        },
        drops_only: asked.drops_only,
    };
    let limits = Limits {
        frames: (asked.frames > 0).then_some(asked.frames),
        duration: asked.duration,
        bytes: None,
    };
    (spec, limits)
}

/// Checks the name of a capture; empty: the daemon chooses one.
fn name(text: &str) -> Checked<Option<String>> {
    let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest = |b: u8| first(b) || b == b'-' || b == b'_';
    match text.as_bytes() {
        [] => Ok(None),
        [head, tail @ ..] if tail.len() <= 62 && first(*head) && tail.iter().all(|b| rest(*b)) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is not a name: 1 to 63 of a-z, 0-9, '-' and '_', beginning with a letter or digit"
        )),
    }
}

impl Captures<'_> {
    /// Starts a capture for a reader. `found` has the violations that the caller has found already. May block.
    pub fn stream(&self, asked: Asked, mut found: Violations) -> Result<(Session, Capture), Refused> {
        let (spec, limits) = checked(asked, &mut found);
        found.finish(Some(()))?;
        let session = Session::new(self.0.nic.clone(), spec.owners.clone(), spec.snaplen, limits);
        let capture = self.0.nic.capture(spec).map_err(Refused::nic(path))?;
        Ok((session, capture))
    }

    /// Starts a capture to a file of at most `max_bytes`; 0: the default. `found` has the violations that the caller has
    /// found already. May block.
    pub fn create(&self, id: &str, asked: Asked, max_bytes: u64, found: Violations) -> Result<Info, Refused> {
        let mut wrong = Violations::default();
        let id = wrong.check("capture_id", name(id));
        if (1..FILE_MIN).contains(&max_bytes) {
            let problem = format!("{max_bytes} is out of range: 0, or {FILE_MIN} and more");
            wrong.add("max_bytes", problem);
        }
        wrong.extend(found);
        let (spec, limits) = checked(asked, &mut wrong);
        let id = wrong.finish(id)?;
        let limits = Limits {
            bytes: Some(if max_bytes == 0 { FILE_DEFAULT } else { max_bytes }),
            ..limits
        };
        let made = self.0.captures.create(&self.0.nic, id, spec, limits);
        made.map_err(refused)
    }

    /// Ends a capture to a file. May block.
    pub fn stop(&self, id: &str) -> Result<Info, Refused> {
        self.0.captures.stop(id).map_err(refused)
    }
}
