//! Owner, group and mode of adapters' sockets: by the configuration and by `vnicctl`, and again after each start of the daemon.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::Signal;

use crate::common::process::start;

/// Owner, group and mode of a file.
fn of(path: &Path) -> (u32, u32, u32) {
    let has = std::fs::metadata(path).expect("a socket");
    (has.uid(), has.gid(), has.mode() & 0o7777)
}

#[test]
fn sockets_are_given_away_at_each_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let me = std::fs::metadata(dir.path()).expect("a directory");
    // (Only root may give something away.)
    let (owner, group) = match me.uid() {
        0 => (64055, 64056),
        uid => (uid, me.gid()),
    };
    let config = format!("[[adapter]]\nname = \"vf0\"\nsocket_group = \"{group}\"\nsocket_mode = \"0666\"\n");
    let given = |daemon: &crate::common::process::Process| {
        for socket in ["vf0-eth.sock", "vf0-rdma.sock"] {
            assert_eq!(of(&dir.path().join(socket)), (me.uid(), group, 0o666));
        }
        for socket in ["vm-eth.sock", "vm-rdma.sock"] {
            assert_eq!(of(&dir.path().join(socket)), (owner, group, 0o600));
        }
        assert_eq!(
            of(&dir.path().join("plain-eth.sock")),
            (me.uid(), me.gid(), 0o660)
        );
        let shown = daemon.said(&["adapter", "show", "vm"]);
        let line = format!("mode 0600, owner {owner}, group {group}; VMMs of users 7 only");
        assert!(shown.contains(&line), "{shown}");
        let shown = daemon.said(&["adapter", "show", "plain"]);
        let line = "mode 0660, owner the daemon's, group the daemon's\n";
        assert!(shown.contains(line), "{shown}");
    };
    let daemon = start(dir.path(), &config);
    let (owner_word, group_word) = (owner.to_string(), group.to_string());
    let wish = [
        "--socket-owner",
        &owner_word,
        "--socket-group",
        &group_word,
        "--socket-mode",
        "0600",
    ];
    daemon.said(&[&["adapter", "add", "vm", "--socket-user", "7"][..], &wish].concat());
    daemon.said(&["adapter", "add", "plain"]);
    let refused = daemon.refused(&["adapter", "add", "x", "--socket-mode", "0888"]);
    assert!(
        refused.contains("adapter.socket_mode: \"0888\" is not a mode"),
        "{refused}"
    );
    given(&daemon);
    daemon.end(Signal::KILL);
    given(&start(dir.path(), &config));
}
