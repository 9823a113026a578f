//! Pairs of network devices for ports.

use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;

use super::lab::Lab;

/// Runs `ip`.
pub fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .output()
        .is_ok_and(|o| o.status.success())
}

/// Veth pairs, deleted at the end.
pub struct Wires(Vec<[String; 2]>);

impl Wires {
    /// None where that is not allowed; `test` is the name of the test.
    pub fn new(test: &str, n: usize) -> Option<Wires> {
        static MADE: AtomicU8 = AtomicU8::new(b'a');
        let mark = char::from(MADE.fetch_add(1, Ordering::Relaxed));
        let mut wires = Wires(Vec::new());
        for i in 0..n {
            let pair = ["x", "y"].map(|end| format!("vt{}{mark}{i}{end}", std::process::id()));
            let [x, y] = &pair;
            if !ip(&["link", "add", x, "type", "veth", "peer", "name", y]) {
                eprintln!("SKIP {test}: no right to make a veth pair");
                return None;
            }
            assert!(ip(&["link", "set", x, "up"]) && ip(&["link", "set", y, "up"]));
            wires.0.push(pair);
        }
        Some(wires)
    }

    /// The end that is a port, and the other one.
    pub fn ends(&self, i: usize) -> (&str, &str) {
        (&self.0[i][0], &self.0[i][1])
    }

    /// Makes ports p0, p1, … of them.
    pub async fn ports(&self, lab: &Lab) {
        for i in 0..self.0.len() {
            let name = format!("p{i}");
            lab.said(&["port", "add", &name, "--packet", self.ends(i).0])
                .await;
        }
    }

    /// The address of the end that is a port.
    pub fn mac(&self, i: usize) -> String {
        let output = Command::new("ip")
            .args(["-j", "link", "show", self.ends(i).0])
            .output()
            .expect("ip");
        let links: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        links[0]["address"].as_str().expect("an address").to_owned()
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for [end, _] in &self.0 {
            ip(&["link", "delete", end]);
        }
    }
}
