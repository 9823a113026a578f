//! The registry over gRPC: what is stored, pending and effective; transactions, etags, watchers.

use crate::common::lab::{Lab, fields};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const TIMEOUT: &str = "DelayDropTimeout";

struct Registry(RegistryServiceClient<Channel>);

impl Registry {
    fn of(lab: &Lab) -> Registry {
        Registry(RegistryServiceClient::new(lab.channel.clone()))
    }

    async fn get(&mut self, scope: &str, key: &str) -> v1::RegistryEntry {
        let request = v1::GetEntryRequest {
            scope: scope.to_owned(),
            key: key.to_owned(),
        };
        self.0.get_entry(request).await.expect("an entry").into_inner()
    }

    async fn set(&mut self, scope: &str, key: &str, value: &str) -> Result<v1::SetEntryResponse, Status> {
        self.set_if(scope, key, value, None).await
    }

    async fn set_if(
        &mut self,
        scope: &str,
        key: &str,
        value: &str,
        etag: Option<&str>,
    ) -> Result<v1::SetEntryResponse, Status> {
        let request = v1::SetEntryRequest {
            scope: scope.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            if_match: etag.map(str::to_owned),
        };
        Ok(self.0.set_entry(request).await?.into_inner())
    }
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|i| i.reason)
        .unwrap_or_default()
}

#[tokio::test]
async fn dynamic_keys_act_at_once_and_others_at_a_restart() {
    let lab = Lab::start(1).await;
    let mut registry = Registry::of(&lab);
    let entry = registry.get("adapters/vf0", TIMEOUT).await;
    assert_eq!((entry.stored, entry.etag.as_str()), (None, "0"));
    assert_eq!(entry.effective.as_deref(), Some("0"), "unset is off");

    let set = registry
        .set("adapters/vf0", "delaydroptimeout", "20")
        .await
        .expect("set");
    let entry = set.entry.expect("the entry");
    assert_eq!(entry.key, TIMEOUT);
    assert_eq!(entry.stored.as_deref(), Some("20"));
    assert_eq!((entry.effective.as_deref(), entry.pending), (Some("20"), None));
    assert_eq!(entry.etag, set.revision.to_string());

    // An illegal value falls back to the default, as documented, and the answer says so.
    let set = registry.set("adapters/vf0", TIMEOUT, "101").await.expect("set");
    assert_eq!(set.entry.expect("the entry").stored.as_deref(), Some("50"));
    assert!(set.warnings[0].message.contains("101"), "{:?}", set.warnings);

    let set = registry.set("adapters/vf0", "roce_mode", "4").await.expect("set");
    let entry = set.entry.expect("the entry");
    assert_eq!(entry.pending.as_deref(), Some("4"));
    assert_eq!(entry.effective.as_deref(), Some("2"));
    let request = v1::RestartAdapterRequest {
        name: "adapters/vf0".to_owned(),
    };
    AdapterServiceClient::new(lab.channel.clone())
        .restart_adapter(request)
        .await
        .expect("restarted");
    let entry = registry.get("adapters/vf0", "roce_mode").await;
    assert_eq!((entry.effective.as_deref(), entry.pending), (Some("4"), None));
    lab.end().await;
}

#[tokio::test]
async fn refusals_say_why_and_change_nothing() {
    let lab = Lab::start(1).await;
    let mut registry = Registry::of(&lab);
    for (scope, key, code, why) in [
        ("adapters/vf0", "NoSuchKey", Code::NotFound, "UNKNOWN_KEY"),
        ("adapters/vf9", TIMEOUT, Code::NotFound, "NOT_FOUND"),
        ("teams/t0", TIMEOUT, Code::Unimplemented, "SCOPE_NOT_BUILT"),
        ("ports/p0", TIMEOUT, Code::Unimplemented, "SCOPE_NOT_BUILT"),
        ("vf0", TIMEOUT, Code::InvalidArgument, "INVALID_FIELD"),
        ("driver", TIMEOUT, Code::InvalidArgument, "INVALID_FIELD"),
    ] {
        let status = registry.set(scope, key, "1").await.expect_err("refused");
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (code, why),
            "{status:?}"
        );
    }
    let status = registry
        .set("adapters/vf0", "roce_mode", "77")
        .await
        .expect_err("refused");
    assert_eq!(fields(&status), ["value"], "{status:?}");
    assert_eq!(registry.get("adapters/vf0", "roce_mode").await.stored, None);

    let set = registry.set("adapters/vf0", TIMEOUT, "1").await.expect("set");
    let etag = set.entry.expect("the entry").etag;
    let status = registry
        .set_if("adapters/vf0", TIMEOUT, "2", Some("0"))
        .await
        .expect_err("it is there");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Aborted, "ETAG_MISMATCH")
    );
    let info = status.get_details_error_info().expect("info");
    assert_eq!(info.metadata.get("etag"), Some(&etag));
    registry
        .set_if("adapters/vf0", TIMEOUT, "2", Some(&etag))
        .await
        .expect("it is that");
    lab.end().await;
}

fn operation(scope: &str, key: &str, value: Option<&str>) -> v1::RegistryOperation {
    use v1::registry_operation::Action;
    v1::RegistryOperation {
        scope: scope.to_owned(),
        key: key.to_owned(),
        action: Some(match value {
            Some(value) => Action::Set(value.to_owned()),
            None => Action::Delete(v1::RegistryDelete {}),
        }),
        if_match: None,
    }
}

impl Registry {
    async fn apply(
        &mut self,
        operations: &[v1::RegistryOperation],
    ) -> Result<v1::ApplyTransactionResponse, Status> {
        let request = v1::ApplyTransactionRequest {
            operations: operations.to_vec(),
            validate_only: false,
        };
        Ok(self.0.apply_transaction(request).await?.into_inner())
    }

    async fn stored(&mut self) -> Vec<(String, String, String)> {
        let request = v1::ListEntriesRequest {
            stored_only: true,
            ..v1::ListEntriesRequest::default()
        };
        let list = self.0.list_entries(request).await.expect("a list").into_inner();
        let row = |e: v1::RegistryEntry| (e.scope, e.key, e.stored.unwrap_or_default());
        list.entries.into_iter().map(row).collect()
    }
}

#[tokio::test]
async fn a_transaction_happens_as_a_whole_or_not_at_all() {
    let lab = Lab::start(2).await;
    let mut registry = Registry::of(&lab);
    let vf0 = "adapters/vf0";
    let done = registry
        .apply(&[
            operation(vf0, "VlanID", Some("55")),
            operation(vf0, "VlanPrio", Some("3")),
            operation("driver", "roce_mode", Some("0")),
        ])
        .await
        .expect("applied");
    assert_eq!(done.entries.len(), 3);
    let etags: Vec<_> = done.entries.iter().map(|e| e.etag.clone()).collect();
    assert_eq!(etags, vec![done.revision.to_string(); 3]);
    let before = registry.stored().await;
    // Each of these has something wrong; what is right in it does not happen either.
    let legal = operation(vf0, TIMEOUT, Some("9"));
    let mut late = operation(vf0, "VlanID", Some("56"));
    late.if_match = Some("0".to_owned());
    for (wrong, code, field) in [
        (
            operation(vf0, "roce_mode", Some("9")),
            Code::InvalidArgument,
            "operations[1].value",
        ),
        (operation("adapters/vf7", TIMEOUT, Some("9")), Code::NotFound, ""),
        (operation(vf0, "Nonsense", Some("9")), Code::NotFound, ""),
        (late, Code::Aborted, ""),
        // NDIS poll and burst handling exclude each other: together they are refused, whatever acts now.
        (operation(vf0, "RecvCompletionMethod", Some("4")), Code::Ok, ""),
    ] {
        let result = registry.apply(&[legal.clone(), wrong.clone()]).await;
        match code {
            Code::Ok => {
                result.expect("applied");
            }
            code => {
                let status = result.expect_err("refused");
                assert_eq!(status.code(), code, "{status:?}");
                if !field.is_empty() {
                    assert_eq!(fields(&status), [field]);
                }
                assert_eq!(registry.stored().await, before);
            }
        }
    }
    let status = registry
        .set(vf0, "AsyncReceiveIndicate", "1")
        .await
        .expect_err("excluded");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    // In one transaction the end counts.
    registry
        .apply(&[
            operation(vf0, "AsyncReceiveIndicate", Some("1")),
            operation(vf0, "RecvCompletionMethod", Some("1")),
        ])
        .await
        .expect("they do not exclude each other in the end");
    // The driver's value counts where the adapter has none.
    let entry = registry.get(vf0, "roce_mode").await;
    assert_eq!((entry.stored, entry.pending.as_deref()), (None, Some("0")));
    assert_eq!(entry.origin, i32::from(v1::registry_entry::Origin::Driver));
    registry.set(vf0, "roce_mode", "4").await.expect("set");
    assert_eq!(registry.get(vf0, "roce_mode").await.pending.as_deref(), Some("4"));
    assert_eq!(
        registry.get("adapters/vf1", "roce_mode").await.pending.as_deref(),
        Some("0")
    );
    lab.end().await;
}

#[tokio::test]
async fn every_revision_is_watched_and_old_ones_are_refused() {
    use v1::watch_entries_response::Kind;
    let lab = Lab::start(4).await;
    let mut registry = Registry::of(&lab);
    registry.set("adapters/vf0", TIMEOUT, "1").await.expect("set");
    let watch = |scope: &str, after_revision| v1::WatchEntriesRequest {
        scope: scope.to_owned(),
        key: String::new(),
        after_revision,
    };
    let mut all = registry
        .0
        .watch_entries(watch("", None))
        .await
        .expect("a stream")
        .into_inner();
    let mut one = registry
        .0
        .watch_entries(watch("adapters/vf3", None))
        .await
        .expect("a stream")
        .into_inner();
    let first = all.message().await.expect("a message").expect("the snapshot");
    assert_eq!((first.kind(), first.changes.len()), (Kind::Existing, 1));
    let synced = all.message().await.expect("a message").expect("the mark");
    assert_eq!(synced.kind(), Kind::Synced);
    let writers: Vec<_> = (0..4)
        .map(|adapter| {
            let mut registry = Registry::of(&lab);
            tokio::spawn(async move {
                for n in 1..=25 {
                    let scope = format!("adapters/vf{adapter}");
                    registry.set(&scope, TIMEOUT, &n.to_string()).await.expect("set");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    for n in 1..=100 {
        let message = all.message().await.expect("a message").expect("a transaction");
        assert_eq!(
            (message.kind(), message.revision),
            (Kind::Committed, synced.revision + n)
        );
    }
    assert_eq!(
        one.message().await.expect("a message").expect("the mark").kind(),
        Kind::Synced
    );
    for n in 1..=25 {
        let message = one.message().await.expect("a message").expect("a transaction");
        assert_eq!(message.changes[0].scope, "adapters/vf3");
        assert_eq!(message.changes[0].stored, Some(n.to_string()));
    }
    // From a revision on; one that is not kept, or not yet there, is refused.
    let mut later = registry
        .0
        .watch_entries(watch("", Some(synced.revision + 98)))
        .await
        .expect("a stream")
        .into_inner();
    for n in [99, 100] {
        let message = later.message().await.expect("a message").expect("a transaction");
        assert_eq!(message.revision, synced.revision + n);
    }
    for gone in [synced.revision + 1000, u64::MAX] {
        let status = registry
            .0
            .watch_entries(watch("", Some(gone)))
            .await
            .expect_err("gone");
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::OutOfRange, "REVISION_GONE")
        );
    }
    lab.end().await;
}

/// 100 clients change one entry with etags: their successes are one chain, and the last one is what is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_writes_of_100_clients_end_in_a_serial_history() {
    let lab = Lab::start(1).await;
    let clients: Vec<_> = (0..100_u32)
        .map(|client| {
            let mut registry = Registry::of(&lab);
            tokio::spawn(async move {
                let key = "RfdReservationFactor";
                let mut successes = Vec::new();
                for n in 0..3_u32 {
                    let value = (client * 10 + n + 1).to_string();
                    let mut etag = registry.get("adapters/vf0", key).await.etag;
                    loop {
                        match registry.set_if("adapters/vf0", key, &value, Some(&etag)).await {
                            Ok(done) => {
                                let new = done.entry.map(|_| done.revision).expect("an entry");
                                successes.push((etag.parse::<u64>().expect("a number"), new, value.clone()));
                                break;
                            }
                            Err(status) => {
                                assert_eq!(reason(&status), "ETAG_MISMATCH", "{status:?}");
                                let info = status.get_details_error_info().expect("info");
                                etag = info.metadata.get("etag").expect("the etag").clone();
                            }
                        }
                    }
                }
                successes
            })
        })
        .collect();
    let mut chain = Vec::new();
    for client in clients {
        chain.extend(client.await.expect("a client"));
    }
    chain.sort();
    assert_eq!(chain.len(), 300);
    let mut last = 0;
    for (before, after, _) in &chain {
        assert_eq!(*before, last, "two writes came after the same one");
        last = *after;
    }
    let entry = Registry::of(&lab)
        .get("adapters/vf0", "RfdReservationFactor")
        .await;
    assert_eq!(entry.stored.as_ref(), chain.last().map(|(_, _, value)| value));
    assert_eq!(entry.etag, last.to_string());
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_and_settings_come_back_and_removed_ones_do_not() {
    let lab = Lab::start(1).await;
    lab.said(&["adapter", "add", "blue", "--mtu", "9000"]).await;
    lab.said(&["adapter", "add", "red"]).await;
    lab.said(&["adapter", "add", "vf1"]).await;
    lab.said(&["registry", "set", "blue", TIMEOUT, "7", "VlanID", "12"])
        .await;
    lab.said(&["registry", "set", "red", TIMEOUT, "8"]).await;
    let mac = lab.json(&["adapter", "show", "blue"]).await["macs"].clone();
    lab.said(&["adapter", "remove", "red"]).await;

    // The configuration takes the name vf1 meanwhile.
    let lab = lab.restart(2).await;
    let blue = lab.json(&["adapter", "show", "blue"]).await;
    assert_eq!(
        (&blue["mtu"], &blue["lifetime"], &blue["macs"]),
        (&9000.into(), &"LIFETIME_STORED".into(), &mac)
    );
    let vf1 = lab.json(&["adapter", "show", "vf1"]).await;
    assert_eq!(vf1["lifetime"], "LIFETIME_CONFIGURED");
    let events = lab
        .json(&["event", "list", "--kind", "stored_adapter_shadowed"])
        .await;
    assert_eq!(events["events"][0]["adapter"], "adapters/vf1", "{events}");
    assert!(lab.refused(1, &["adapter", "show", "red"]).await.contains("red"));
    let mut registry = Registry::of(&lab);
    let entry = registry.get("adapters/blue", "VlanID").await;
    assert_eq!((entry.effective.as_deref(), entry.pending), (Some("12"), None));
    let settings = lab.daemon.control().nic.adapter("blue").expect("blue").settings;
    assert_eq!(settings.vlan_id, 12);
    assert!(lab.daemon.control().nic.dropless("blue").expect("blue").on);
    let rows = registry.stored().await;
    assert!(
        rows.iter().all(|(scope, ..)| scope == "adapters/blue"),
        "{rows:?}"
    );
    let list = lab.said(&["adapter", "list"]).await;
    assert!(list.contains("stored") && list.contains("configured"), "{list}");

    lab.said(&["adapter", "remove", "blue"]).await;
    let lab = lab.restart(1).await;
    lab.refused(1, &["adapter", "show", "blue"]).await;
    // It is free again.
    assert_eq!(
        lab.json(&["adapter", "show", "vf1"]).await["lifetime"],
        "LIFETIME_STORED"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reg_files_go_out_and_come_in() {
    let lab = Lab::start(2).await;
    lab.said(&["registry", "set", "vf0", TIMEOUT, "50", "VlanID", "55"])
        .await;
    lab.said(&["registry", "set", "vf1", "RfdReservationFactor", "10000"])
        .await;
    lab.said(&["registry", "set", "driver", "roce_mode", "0"]).await;
    lab.said(&[
        "registry",
        "set",
        "vf1",
        "mac-address-list",
        "02:00:00:00:01:01 02:00:00:00:01:02",
    ])
    .await;
    let stored = Registry::of(&lab).stored().await;
    let file = lab.dir.path().join("nic.reg");
    let path = file.to_str().expect("a path");
    lab.said(&["registry", "export", "--file", path]).await;
    let bytes = std::fs::read(&file).expect("the file");
    assert_eq!(bytes[..2], [0xff, 0xfe], "as Windows writes it");
    let text = lab.said(&["registry", "export", "--utf8"]).await;
    assert!(
        text.starts_with("Windows Registry Editor Version 5.00\r\n"),
        "{text}"
    );
    for wanted in [
        r"[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\mlx5\Parameters\Roce]",
        r"[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}\0000]",
        "\"NetCfgInstanceId\"=\"vf1\"",
        "\"mac-address-list\"=hex(7):",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }

    // Into another daemon, whose adapters have the same names.
    let other = Lab::start(2).await;
    other.said(&["registry", "import", path]).await;
    assert_eq!(Registry::of(&other).stored().await, stored);
    // Into the same, from UTF-8: nothing else than before.
    std::fs::write(&file, text).expect("written");
    lab.said(&["registry", "import", path]).await;
    assert_eq!(Registry::of(&lab).stored().await, stored);

    // Errors name line and key; nothing of the file happens.
    let class = r"HKLM\SYSTEM\CurrentControlSet\Control\Class\{4D36E972-E325-11CE-BFC1-08002BE10318}";
    let write = |body: &str| {
        let text = format!("Windows Registry Editor Version 5.00\n\n{body}\n");
        std::fs::write(&file, text).expect("written");
    };
    write(&format!(
        "[{class}\\0000]\n\"DriverDesc\"=\"x\"\n\"DelayDropTimeout\"=dword:1\n\"roce_mode\"=\"9\""
    ));
    let said = lab.refused(1, &["registry", "import", path]).await;
    assert!(said.contains("line 6") && said.contains("roce_mode"), "{said}");
    write(&format!(
        "[{class}\\0000]\n\"Nonsense\"=dword:1\n[{class}\\0042]\n\"VlanID\"=\"1\""
    ));
    let said = lab.refused(1, &["registry", "import", path]).await;
    assert!(
        said.contains("line 4") && said.contains("line 5") && said.contains("--map 0042"),
        "{said}"
    );
    assert_eq!(Registry::of(&lab).stored().await, stored);
    // Told which adapter is meant, and to leave out what is unknown.
    let arguments = ["registry", "import", path, "--map", "0042=vf1", "--skip-unknown"];
    let said = lab.said(&arguments).await;
    assert!(said.contains("Nonsense"), "{said}");
    let mut registry = Registry::of(&lab);
    assert_eq!(
        registry.get("adapters/vf1", "VlanID").await.stored.as_deref(),
        Some("1")
    );
    // Deletion of a value, and of a key.
    write(&format!("[{class}\\0000]\n\"VlanID\"=-\n[-{class}\\0001]"));
    lab.said(&["registry", "import", path, "--dry-run"]).await;
    assert_eq!(
        registry.get("adapters/vf0", "VlanID").await.stored.as_deref(),
        Some("55")
    );
    lab.said(&["registry", "import", path]).await;
    let rows = registry.stored().await;
    let keys: Vec<_> = rows
        .iter()
        .map(|(scope, key, _)| (scope.as_str(), key.as_str()))
        .collect();
    assert_eq!(keys, [("driver", "roce_mode"), ("adapters/vf0", TIMEOUT)]);
    lab.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_what_is_stored_pending_and_effective() {
    let lab = Lab::start(1).await;
    let said = lab.said(&["registry", "set", "vf0", TIMEOUT, "101"]).await;
    assert!(
        said.contains("warning:") && said.contains("stored     50"),
        "{said}"
    );
    let etag = lab.json(&["registry", "get", "vf0", TIMEOUT]).await["etag"].clone();
    let etag = etag.as_str().expect("text").to_owned();
    lab.said(&["registry", "set", "vf0", TIMEOUT, "51", "--etag", &etag])
        .await;
    let said = lab
        .refused(1, &["registry", "set", "vf0", TIMEOUT, "52", "--etag", &etag])
        .await;
    assert!(said.contains("ABORTED") && said.contains("its etag is"), "{said}");
    lab.refused(1, &["registry", "set", "vf0", TIMEOUT, "52", "--if-absent"])
        .await;
    lab.refused(2, &["registry", "set", "vf0", TIMEOUT, "52", "VlanID"])
        .await;
    lab.said(&["registry", "set", "vf0", "roce_mode", "4"]).await;
    let said = lab.said(&["registry", "list", "vf0", "--pending"]).await;
    assert!(said.contains("roce_mode") && !said.contains(TIMEOUT), "{said}");
    let said = lab.said(&["registry", "list", "vf0"]).await;
    assert!(said.contains("not implemented"), "{said}");
    let said = lab.said(&["registry", "describe", TIMEOUT]).await;
    assert!(said.contains("0..100") && said.contains("at once"), "{said}");
    lab.said(&["registry", "delete", "vf0", TIMEOUT, "roce_mode"])
        .await;
    assert!(
        lab.said(&["registry", "list", "--stored"])
            .await
            .contains("nothing is stored")
    );
    let events = lab.json(&["event", "list", "--kind", "settings_refused"]).await;
    assert!(events.to_string().contains("101"), "{events}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nv_configuration_waits_for_a_reset_of_the_device() {
    let lab = Lab::start(2).await;
    let direct = |lab: &Lab| {
        lab.daemon
            .control()
            .nic
            .adapter("vf1")
            .expect("vf1")
            .settings
            .network_direct
    };
    let row = |all: &serde_json::Value| {
        let p = &all["parameters"][0];
        ["default_value", "current_value", "next_value"].map(|f| p[f].as_u64().expect("a number"))
    };
    let query = ["nvconfig", "query", "ROCE_CONTROL"];
    assert_eq!(row(&lab.json(&query).await), [0, 0, 0]);
    lab.refused(2, &["nvconfig", "set", "ROCE_CONTROL=off"]).await;
    let said = lab.said(&["nvconfig", "set", "-y", "ROCE_CONTROL=off"]).await;
    assert!(said.contains("off(1) *"), "{said}");
    assert_eq!(row(&lab.json(&query).await), [0, 0, 1]);
    assert!(direct(&lab));
    let said = lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert!(said.contains("2 adapters restarted"), "{said}");
    assert_eq!(row(&lab.json(&query).await), [0, 1, 1]);
    assert!(!direct(&lab));
    // Nothing waits: a restart of the adapter brings no RDMA function.
    let entry = &lab.json(&["registry", "get", "vf0", "*NetworkDirect"]).await;
    assert!(entry.to_string().contains("\"effective\":\"0\""), "{entry}");
    assert!(!entry.to_string().contains("\"pending\":\"1\""), "{entry}");
    let said = lab
        .refused(1, &["nvconfig", "set", "-y", "ROCE_CONTROL=on", "SRIOV_EN=1"])
        .await;
    assert!(
        said.contains("UNIMPLEMENTED") && said.contains("SRIOV_EN"),
        "{said}"
    );
    lab.refused(1, &["nvconfig", "set", "-y", "ROCE_CONTROL=3"]).await;
    assert_eq!(row(&lab.json(&query).await), [0, 1, 1]);
    lab.said(&["nvconfig", "reset", "-y"]).await;
    assert_eq!(row(&lab.json(&query).await), [0, 1, 0]);
    // The start of the daemon is a reset, too.
    let lab = lab.restart(2).await;
    assert_eq!(row(&lab.json(&query).await), [0, 0, 0]);
    assert!(direct(&lab));
    lab.end().await;
}
