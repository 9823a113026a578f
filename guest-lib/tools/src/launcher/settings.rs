//! Settings of an adapter as files that take writes, as a card's driver has them: the traffic class of all RDMA packets
//! (`tc/1/traffic_class`) and the parameters of congestion control (debugfs, `cc_params`). What is written there goes to the daemon by
//! `vnicctl`, with the rights of whoever keeps the files; a file that was refused shows again what the daemon has.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::Value;
use vnic_verbs::sysfs::{self, Place};

/// Prefixes of parameters that the driver has as files.
const PARAMETERS: [&str; 2] = ["rp_", "np_"];

/// The files of an adapter's settings.
#[derive(Debug)]
pub struct Settings {
    daemon: Daemon,
    /// What is below the root: files, each with the words that set it.
    files: BTreeMap<PathBuf, Setting>,
    root: PathBuf,
    /// Tells that a file was written.
    writes: OwnedFd,
}

#[derive(Debug)]
struct Setting {
    /// Words of `vnicctl`; the value follows at the end of the last.
    words: Vec<String>,
    /// What the file has.
    text: String,
}

/// The daemon of an adapter.
#[derive(Debug)]
struct Daemon {
    vnicctl: PathBuf,
    endpoint: String,
    adapter: String,
}

impl Settings {
    /// Writes the files below `root` of the adapter with this socket. `None`: there is no `vnicctl`, or its daemon does not tell.
    pub fn new(root: &Path, place: &Place, socket: &Path) -> io::Result<Option<Settings>> {
        let Some(daemon) = Daemon::of(socket) else {
            return Ok(None);
        };
        let Some(all) = daemon.settings() else {
            return Ok(None);
        };
        let card = Path::new(sysfs::DEVICES).join(&place.name).join("tc/1");
        let parameters = Path::new(sysfs::DEBUG)
            .join(sysfs::address(place))
            .join("cc_params");
        let writes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut files = BTreeMap::new();
        for dir in [&card, &parameters] {
            std::fs::create_dir_all(root.join(dir))?;
            inotify::add_watch(&writes, root.join(dir), WatchFlags::CLOSE_WRITE)?;
        }
        for (name, (words, text)) in all {
            let dir = if name == TRAFFIC_CLASS { &card } else { &parameters };
            let file = dir.join(name);
            std::fs::write(root.join(&file), &text)?;
            files.insert(file, Setting { words, text });
        }
        let settings = Settings {
            daemon,
            files,
            root: root.to_owned(),
            writes,
        };
        // Of those above.
        settings.written();
        Ok(Some(settings))
    }

    /// Whether a file was written since the last time.
    fn written(&self) -> bool {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut told = inotify::Reader::new(&self.writes, &mut buffer);
        let mut written = false;
        while told.next().is_ok() {
            written = true;
        }
        written
    }

    /// Gives the daemon what was written since the last time, and shows what it has then.
    pub fn take(&mut self) -> io::Result<()> {
        if !self.written() {
            return Ok(());
        }
        let read = |file: &Path| std::fs::read_to_string(self.root.join(file)).unwrap_or_default();
        let seen: Vec<String> = self.files.keys().map(|file| read(file)).collect();
        for ((file, setting), text) in self.files.iter().zip(&seen) {
            let value = text.trim();
            if *text != setting.text && !value.is_empty() && !value.contains('\n') {
                let words = setting.words.join("\n") + value;
                if let Err(e) = self.daemon.ask(&words.split('\n').collect::<Vec<_>>()) {
                    eprintln!("vnic-verbs: {}: {value}: {e}", file.display());
                }
            }
        }
        let mut now = self.daemon.settings().unwrap_or_default();
        for ((file, setting), seen) in self.files.iter_mut().zip(seen) {
            let name = file
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            // What is written meanwhile is told again.
            if let Some((_, text)) = now.remove(name)
                && read(file) == seen
            {
                if seen != text {
                    sysfs::replace(&self.root, file, text.as_bytes())?;
                }
                setting.text = text;
            }
        }
        Ok(())
    }
}

impl AsFd for Settings {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.writes.as_fd()
    }
}

const TRAFFIC_CLASS: &str = "traffic_class";

impl Daemon {
    /// The daemon of the adapter with this socket, and the `vnicctl` beside this program or in `PATH`.
    fn of(socket: &Path) -> Option<Daemon> {
        let adapter = socket
            .file_name()?
            .to_str()?
            .strip_suffix("-rdma.sock")?
            .to_owned();
        let own = std::env::current_exe().ok()?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut dirs = own
            .parent()
            .map(Path::to_owned)
            .into_iter()
            .chain(std::env::split_paths(&path));
        Some(Daemon {
            vnicctl: dirs.find_map(|dir| Some(dir.join("vnicctl")).filter(|file| file.is_file()))?,
            endpoint: format!("unix:{}", socket.with_file_name("control.sock").display()),
            adapter,
        })
    }

    /// What `vnicctl` says; or why it refuses.
    fn ask(&self, words: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(&self.vnicctl);
        command
            .args(["--endpoint", &self.endpoint, "-o", "json"])
            .args(words);
        // (It is no program that uses verbs.)
        let output = command
            .env_remove("LD_PRELOAD")
            .output()
            .map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        serde_json::from_slice(&output.stdout).or(Ok(Value::Null))
    }

    /// Names of files, the words that set each, and what is in them now. `None`: the daemon does not say.
    fn settings(&self) -> Option<BTreeMap<String, (Vec<String>, String)>> {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut all = BTreeMap::new();
        let qos = self.ask(&["qos", "show", &self.adapter]).ok()?;
        let class = match qos.pointer("/forced_traffic_class").and_then(Value::as_u64) {
            Some(class) => format!("Global tclass={class}\n"),
            None => "\n".into(),
        };
        let set = words(&["qos", "set", &self.adapter, "--traffic-class="]);
        all.insert(TRAFFIC_CLASS.into(), (set, class));
        let congestion = self.ask(&["cc", "show", &self.adapter]).ok()?;
        for parameter in congestion.get("parameters").and_then(Value::as_array)? {
            let aliases = parameter
                .get("aliases")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let mut names = aliases.chain(parameter.get("name")).filter_map(Value::as_str);
            let name = names.find(|name| PARAMETERS.iter().any(|prefix| name.starts_with(prefix)));
            if let (Some(name), Some(value)) = (name, parameter.get("value").and_then(Value::as_str)) {
                let set = words(&["cc", "set", &self.adapter, &format!("{name}=")]);
                all.insert(name.to_owned(), (set, format!("{value}\n")));
            }
        }
        Some(all)
    }
}
