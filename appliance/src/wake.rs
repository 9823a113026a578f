//! Wake-on-LAN: what magic packets for guests that do not run cause.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use vnic_backend::{NicEvent, NicEventKind, WakeAction};

use crate::check;
use crate::control::Control;
use crate::events::ControlEvent;
use crate::http;

/// Time limit of an action.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of QEMU's answers that are read.
const ANSWERS_MAX: u64 = 1 << 20;

/// Does what adapters say of magic packets, one after the other, until the daemon ends.
pub async fn serve(control: Arc<Control>, mut packets: broadcast::Receiver<Arc<NicEvent>>) {
    loop {
        let event = match packets.recv().await {
            Ok(event) => event,
            // The packets that are left out are a second old: their stations ask again.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let (source, by, pattern) = match &event.kind {
            NicEventKind::MagicPacket { source, by } => (source, by, None),
            NicEventKind::WakePattern { source, by, pattern } => (source, by, Some(pattern)),
            _ => continue,
        };
        let adapter = event.owner.clone();
        let Ok(Some(action)) = control.nic.adapter(&adapter).map(|status| status.spec.wake) else {
            continue;
        };
        let mut told = json!({ "adapter": adapter, "source": source.to_string(), "by": by });
        if let Some(pattern) = pattern {
            told["pattern"] = json!(pattern);
        }
        let outcome = timeout(LIMIT, perform(&action, &told)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
        let action = action.to_string();
        control.hub.record(ControlEvent::Woken {
            adapter,
            action,
            outcome,
        });
    }
}

async fn perform(action: &WakeAction, told: &Value) -> Result<String, String> {
    match action {
        WakeAction::Qmp(path) => qmp(path).await,
        WakeAction::Unix(path) => {
            let mut stream = connect(path).await?;
            let sent = stream.write_all(format!("{told}\n").as_bytes()).await;
            sent.map_err(|e| format!("cannot write: {e}"))?;
            Ok("told".to_owned())
        }
        WakeAction::Http(url) => {
            let url = check::wake_url(url)?;
            let body = Bytes::from(told.to_string());
            http::post(&url, "application/json", body).await?;
            Ok("posted".to_owned())
        }
    }
}

async fn connect(path: &Path) -> Result<UnixStream, String> {
    let stream = UnixStream::connect(path).await;
    stream.map_err(|e| format!("cannot connect to {}: {e}", path.display()))
}

/// A line of QEMU's monitor: an answer, or an event.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    desc: String,
}

/// Wakes a machine by its monitor (QEMU, QMP reference).
async fn qmp(path: &Path) -> Result<String, String> {
    let mut stream = connect(path).await?;
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read.take(ANSWERS_MAX)).lines();
    let mut ask = async |command: &str| {
        let sent = write
            .write_all(format!("{}\n", json!({ "execute": command })).as_bytes())
            .await;
        sent.map_err(|e| format!("{command}: {e}"))?;
        loop {
            let line = lines.next_line().await.map_err(|e| format!("{command}: {e}"))?;
            let line = line.ok_or_else(|| format!("{command}: the monitor has closed the connection"))?;
            let line: Line =
                serde_json::from_str(&line).map_err(|e| format!("this is no QEMU monitor: {e}"))?;
            match line {
                Line {
                    error: Some(problem), ..
                } => return Err(format!("{command}: {}", problem.desc)),
                Line {
                    answer: Some(answer), ..
                } => return Ok(answer),
                // The greeting, and events.
                _ => {}
            }
        }
    };
    ask("qmp_capabilities").await?;
    let status = ask("query-status").await?;
    let status = status["status"].as_str().unwrap_or("unknown").to_owned();
    let command = match status.as_str() {
        "suspended" => "system_wakeup",
        "paused" | "prelaunch" => "cont",
        "shutdown" => {
            ask("system_reset").await?;
            "cont"
        }
        _ => return Ok(format!("nothing: the machine is {status}")),
    };
    ask(command).await?;
    Ok(format!("{command}: the machine was {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, UnixListener};

    /// A monitor of a machine with this status; returns the commands that it gets.
    async fn monitor(listener: UnixListener, status: &'static str) -> Vec<String> {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut commands = Vec::new();
        write.write_all(b"{\"QMP\": {}}\n").await.expect("greeted");
        while let Ok(Some(line)) = lines.next_line().await {
            let command: Value = serde_json::from_str(&line).expect("JSON");
            let command = command["execute"].as_str().expect("a command").to_owned();
            let answer = match command.as_str() {
                "query-status" => json!({ "return": { "status": status } }),
                _ => json!({ "return": {} }),
            };
            let event = json!({ "event": "WAKEUP" });
            let text = format!("{event}\n{answer}\n");
            if write.write_all(text.as_bytes()).await.is_err() {
                break;
            }
            commands.push(command);
        }
        commands
    }

    #[tokio::test]
    async fn a_machine_gets_what_its_status_asks_for() {
        let rows: [(&str, &[&str], &str); 4] = [
            (
                "suspended",
                &["system_wakeup"],
                "system_wakeup: the machine was suspended",
            ),
            ("paused", &["cont"], "cont: the machine was paused"),
            (
                "shutdown",
                &["system_reset", "cont"],
                "cont: the machine was shutdown",
            ),
            ("running", &[], "nothing: the machine is running"),
        ];
        for (status, commands, outcome) in rows {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("qmp");
            let listener = UnixListener::bind(&path).expect("a socket");
            let action = WakeAction::Qmp(path);
            let told = json!({});
            let (got, done) = tokio::join!(monitor(listener, status), async {
                let done = perform(&action, &told).await;
                // (The connection is closed with the future.)
                done
            });
            assert_eq!(done, Ok(outcome.to_owned()));
            assert_eq!(got[..2], ["qmp_capabilities", "query-status"]);
            assert_eq!(got[2..], *commands, "{status}");
        }
    }

    #[tokio::test]
    async fn others_are_told_in_json() {
        let told = json!({ "adapter": "vf0", "source": "02:00:00:00:00:09", "by": "p0" });
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        assert_eq!(
            perform(&WakeAction::Unix(path), &told).await,
            Ok("told".to_owned())
        );
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut line = String::new();
        stream.read_to_string(&mut line).await.expect("a line");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), told);

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let url = format!("http://{}/wake", listener.local_addr().expect("an address"));
        let action = WakeAction::Http(url);
        for (status, outcome) in [
            ("204 No Content", Ok("posted".to_owned())),
            ("404 Not Found", Err("HTTP status 404 Not Found".to_owned())),
        ] {
            let answers = async {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let (mut request, length) = (Vec::new(), told.to_string().len());
                let head = |bytes: &[u8]| bytes.windows(4).position(|w| w == b"\r\n\r\n");
                while head(&request).is_none_or(|at| request.len() < at + 4 + length) {
                    stream.read_buf(&mut request).await.expect("a request");
                }
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("an answer");
                String::from_utf8(request).expect("text")
            };
            let (request, done) = tokio::join!(answers, perform(&action, &told));
            assert_eq!(done, outcome);
            assert!(request.starts_with("POST /wake HTTP/1.1\r\n") && request.ends_with(&told.to_string()));
        }
    }

    #[tokio::test]
    async fn who_is_not_there_is_named() {
        let action = WakeAction::Qmp("/nowhere/qmp".into());
        let problem = perform(&action, &json!({})).await.expect_err("nobody is there");
        assert!(
            problem.starts_with("cannot connect to /nowhere/qmp: "),
            "{problem}"
        );
    }
}
