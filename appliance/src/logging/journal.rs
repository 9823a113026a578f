//! Log lines as entries of the journal, with their fields (systemd, "Native Journal Protocol").
//!
//! An event of the event log has `VNIC_EVENT_KIND`, `VNIC_EVENT_ID` and `VNIC_OWNER`; any other field of a line is `VNIC_` and its name.

use std::fmt::{Debug, Write as _};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where the journal of a machine listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// Whether a stream is connected to the journal: `stream` is the value of `$JOURNAL_STREAM`, device and inode of the stream that
/// systemd made.
fn is_connected(stream: &str, to: impl AsFd) -> bool {
    let file = to.as_fd().try_clone_to_owned().map(File::from);
    let found = file.and_then(|file| file.metadata());
    found.is_ok_and(|found| stream == format!("{}:{}", found.dev(), found.ino()))
}

/// Layer that sends log lines to the journal.
pub struct Journal {
    socket: UnixDatagram,
    /// Writes the message of a line that the journal did not take.
    instead: fn(&str),
}

impl Journal {
    /// Layer for lines that would go to `to`, if that is connected to the journal by `$JOURNAL_STREAM` and the journal listens at
    /// a socket.
    pub fn of(stream: &str, to: impl AsFd, path: &Path, instead: fn(&str)) -> Option<Journal> {
        is_connected(stream, to).then(|| Journal::new(path, instead).ok())?
    }

    /// Connects to the journal at a socket.
    fn new(path: &Path, instead: fn(&str)) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Journal { socket, instead })
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut entry = Entry::default();
        let about = event.metadata();
        entry.add("PRIORITY", priority(*about.level()));
        entry.add("SYSLOG_IDENTIFIER", "vnicd");
        entry.add("VNIC_TARGET", about.target());
        event.record(&mut entry);
        let message = std::mem::take(&mut entry.message);
        entry.add("MESSAGE", &message);
        // (A line that is too long for a datagram comes here, too.)
        if self.socket.send(&entry.bytes).is_err() {
            (self.instead)(&message);
        }
    }
}

/// Priority of syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// Entry that is being made.
#[derive(Default)]
struct Entry {
    bytes: Vec<u8>,
    message: String,
}

impl Entry {
    /// Appends a field. A value of several lines has its length in front.
    fn add(&mut self, name: &str, value: &str) {
        self.bytes.extend(name.bytes());
        if value.contains('\n') {
            self.bytes.push(b'\n');
            self.bytes.extend((value.len() as u64).to_le_bytes());
        } else {
            self.bytes.push(b'=');
        }
        self.bytes.extend(value.bytes());
        self.bytes.push(b'\n');
    }
}

/// Name of a field in the journal: upper case, digits and `_`, 64 bytes at most.
fn name_of(field: &str) -> String {
    match field {
        "kind" => "VNIC_EVENT_KIND".to_owned(),
        "id" => "VNIC_EVENT_ID".to_owned(),
        _ => {
            let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let name = field.chars().map(allowed).take(59);
            "VNIC_"
                .chars()
                .chain(name)
                .collect::<String>()
                .to_ascii_uppercase()
        }
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.add(&name_of(name), value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// A journal that is none, and its path.
    fn journal(dir: &Path) -> (UnixDatagram, std::path::PathBuf) {
        let path = dir.join("journal");
        (UnixDatagram::bind(&path).expect("a socket"), path)
    }

    /// Fields of the next entry.
    fn entry(journal: &UnixDatagram) -> BTreeMap<String, String> {
        let mut buffer = vec![0; 1 << 16];
        let length = journal.recv(&mut buffer).expect("an entry");
        let mut rest = &buffer[..length];
        let mut fields = BTreeMap::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        while !rest.is_empty() {
            let end = rest.iter().position(|b| b"=\n".contains(b)).expect("a name");
            let (name, sign) = (text(&rest[..end]), rest[end]);
            rest = &rest[end + 1..];
            let length = match sign {
                b'=' => rest.iter().position(|b| *b == b'\n').expect("a line"),
                _ => {
                    let (length, behind) = rest.split_first_chunk().expect("a length");
                    rest = behind;
                    usize::try_from(u64::from_le_bytes(*length)).expect("a length")
                }
            };
            assert_eq!(rest[length], b'\n');
            fields.insert(name, text(&rest[..length]));
            rest = &rest[length + 1..];
        }
        fields
    }

    #[test]
    fn an_event_has_its_fields() {
        let dir = tempfile::tempdir().expect("a directory");
        let (theirs, path) = journal(dir.path());
        let ours = Journal::new(&path, |_| panic!("the journal takes it")).expect("a connection");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(ours), || {
            let (owner, none) = (Some("vf0"), None::<&str>);
            let message = "dropless mode ended";
            tracing::warn!(owner, kind = "dropless_ended", id = 75_u32, "{message}");
            tracing::error!(owner = none, kind = "panic", id = 9_u32, "two\nlines=2\n");
            tracing::info!(path = %"/a b", odd.name = 7, "plain");
        });
        let of = |pairs: &[(&str, &str)]| {
            let common = [("SYSLOG_IDENTIFIER", "vnicd"), ("VNIC_TARGET", module_path!())];
            let all = common.iter().chain(pairs);
            all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let wanted = of(&[
            ("MESSAGE", "dropless mode ended"),
            ("PRIORITY", "4"),
            ("VNIC_EVENT_ID", "75"),
            ("VNIC_EVENT_KIND", "dropless_ended"),
            ("VNIC_OWNER", "vf0"),
        ]);
        assert_eq!(entry(&theirs), wanted);
        // A line break makes no field of what follows.
        let wanted = of(&[
            ("MESSAGE", "two\nlines=2\n"),
            ("PRIORITY", "3"),
            ("VNIC_EVENT_ID", "9"),
            ("VNIC_EVENT_KIND", "panic"),
        ]);
        assert_eq!(entry(&theirs), wanted);
        let wanted = of(&[
            ("MESSAGE", "plain"),
            ("PRIORITY", "6"),
            ("VNIC_ODD_NAME", "7"),
            ("VNIC_PATH", "/a b"),
        ]);
        assert_eq!(entry(&theirs), wanted);
    }

    #[test]
    fn a_line_that_the_journal_does_not_take_is_written_instead() {
        use std::sync::Mutex;
        static INSTEAD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let dir = tempfile::tempdir().expect("a directory");
        let (theirs, path) = journal(dir.path());
        let instead = |line: &str| INSTEAD.lock().expect("lines").push(line.to_owned());
        let ours = Journal::new(&path, instead).expect("a connection");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(ours), || {
            tracing::info!("here");
            assert_eq!(entry(&theirs)["MESSAGE"], "here");
            drop(theirs);
            tracing::info!("gone");
        });
        assert_eq!(*INSTEAD.lock().expect("lines"), ["gone"]);
        assert!(Journal::new(&dir.path().join("none"), |_| {}).is_err());
    }

    #[test]
    fn a_stream_is_the_journal_if_it_is_the_one_that_systemd_made() {
        let (one, other) = io::pipe().expect("a pipe");
        let file = File::from(std::os::fd::OwnedFd::from(other));
        let found = file.metadata().expect("a pipe");
        let stream = format!("{}:{}", found.dev(), found.ino());
        let dir = tempfile::tempdir().expect("a directory");
        let (_theirs, path) = journal(dir.path());
        let of = |stream: &str| Journal::of(stream, &file, &path, |_| {}).is_some();
        assert!(of(&stream));
        for wrong in ["", ":", "0:0", "1"] {
            assert!(!of(wrong), "{wrong}");
        }
        // Standard error of a program whose parent has the journal is a file.
        let elsewhere = UnixDatagram::unbound().expect("a socket");
        assert!(Journal::of(&stream, &elsewhere, &path, |_| {}).is_none());
        // Nobody listens.
        assert!(Journal::of(&stream, &file, &dir.path().join("none"), |_| {}).is_none());
        drop(one);
    }
}
