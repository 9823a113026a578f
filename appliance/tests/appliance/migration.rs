//! `vnicctl adapter prepare-migration`, `export-migration`, `cancel-migration`, `hand-over` without a guest: what is refused, what the
//! target gets, and that everything is as before after a migration that was given up. With guests: `tests/tests/device/moving_hosts.rs`.

use serde_json::{Value, json};

use crate::common::lab::Lab;
use crate::congestion_guide::{blocks, run};

async fn shown(lab: &Lab, name: &str) -> Value {
    lab.json(&["adapter", "show", name]).await
}

/// What goes with a guest, as operators see it.
async fn identity(lab: &Lab, name: &str) -> Value {
    let adapter = shown(lab, name).await;
    let fields = [
        "macs",
        "additional_macs",
        "mtu",
        "queue_pairs",
        "vlan",
        "anti_spoofing",
        "allowed_addresses",
        "pkeys",
    ];
    let own: Vec<_> = fields.iter().map(|field| adapter[field].clone()).collect();
    let registry = lab.json(&["registry", "list", name, "--stored"]).await;
    let keys = registry["entries"].as_array().cloned().unwrap_or_default();
    let keys: Vec<_> = keys.iter().map(|e| json!([e["key"], e["stored"]])).collect();
    let mut qos = lab.json(&["qos", "show", name]).await;
    for own in ["name", "state", "etag"] {
        qos.as_object_mut().expect("an object").remove(own);
    }
    let gids = adapter["rdma"]["gids"].as_array().cloned().unwrap_or_default();
    let gids: Vec<_> = gids
        .iter()
        .filter(|g| g["source"] == "SOURCE_OPERATOR")
        .map(|g| g["gid"].clone())
        .collect();
    let list = lab.json(&["acl", "show", name]).await;
    let list = ["rules", "deny_rx", "deny_tx"].map(|field| list[field].clone());
    json!({"own": own, "keys": keys, "qos": qos, "gids": gids, "list": list})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_gets_everything_and_gives_it_back() {
    let mut lab = Lab::start(2).await;
    lab.said(&[
        "adapter",
        "add",
        "blue",
        "--mac",
        "02:00:5e:00:00:07",
        "--mtu",
        "9000",
        "--access-vlan",
        "20",
    ])
    .await;
    lab.said(&["registry", "set", "blue", "VlanPrio", "5"]).await;
    lab.said(&["adapter", "mac", "add", "blue", "02:00:5e:00:00:08"])
        .await;
    lab.said(&["qos", "set", "blue", "--rate", "1G"]).await;
    lab.said(&["acl", "add", "blue", "tx", "deny", "--to", "10.0.0.0/8"])
        .await;
    lab.said(&["gid", "set", "blue", "--gid", "2001:db8::9"]).await;
    lab.said(&["registry", "set", "vf0", "TxMaxPostSendsCoalescing", "8"])
        .await;
    let (blue, vf0) = (identity(&lab, "blue").await, identity(&lab, "vf0").await);

    let text = lab
        .said(&["adapter", "prepare-migration", "blue", "--to", "vf0"])
        .await;
    assert!(
        text.contains("from blue; the addresses are not here now"),
        "{text}"
    );
    let text = lab.said(&["adapter", "show", "blue"]).await;
    assert!(text.contains("to vf0"), "{text}");
    assert_eq!(identity(&lab, "vf0").await, blue);
    let refused = [
        (
            vec!["prepare-migration", "blue", "--to", "vf1"],
            "takes part in a migration already",
        ),
        (
            vec!["prepare-migration", "vf1", "--to", "vf0"],
            "takes part in a migration already",
        ),
        (
            vec!["export-migration", "vf0"],
            "takes part in a migration already",
        ),
        (vec!["set", "blue", "--mtu", "1500"], "takes part in a migration"),
        (vec!["remove", "vf0"], "takes part in a migration"),
        (vec!["hand-over", "blue"], "the guest has not begun to run on vf0"),
        (vec!["hand-over", "vf1"], "takes part in no migration"),
        (
            vec!["prepare-migration", "vf1", "--to", "vf1"],
            "the same adapter",
        ),
        (vec!["prepare-migration", "vf1", "--to", "none"], "none"),
    ];
    for (words, why) in refused {
        let text = lab.refused(1, &[vec!["adapter"], words].concat()).await;
        assert!(text.contains(why), "{why}: {text}");
    }

    let events = lab.json(&["event", "list"]).await.to_string();
    assert!(events.contains("migration_prepared"), "{events}");
    // It holds over a restart of the daemon. (GIDs of operators do not.)
    lab = lab.restart(2).await;
    let adapter = shown(&lab, "vf0").await;
    let part = json!({"part": "PART_TARGET", "peer": "adapters/blue", "has_addresses": false});
    assert_eq!(
        (&adapter["macs"], &adapter["migration"]),
        (&json!(["02:00:5e:00:00:07"]), &part)
    );
    let text = lab.said(&["adapter", "cancel-migration", "blue"]).await;
    assert!(!text.contains("migration"), "{text}");
    assert_eq!(identity(&lab, "vf0").await, vf0);
    lab.said(&["gid", "set", "blue", "--gid", "2001:db8::9"]).await;
    assert_eq!(identity(&lab, "blue").await, blue);
    let events = lab.json(&["event", "list"]).await.to_string();
    assert!(events.contains("migration_cancelled"), "{events}");
    lab = lab.restart(2).await;
    assert_eq!(identity(&lab, "vf0").await, vf0);

    // A document of another daemon; one that cannot act changes nothing.
    let document = lab.said(&["adapter", "export-migration", "blue"]).await;
    let file = lab.dir.path().join("blue.json");
    let path = file.display().to_string();
    let mut wrong: Value = serde_json::from_str(&document).expect("JSON");
    wrong["keys"] = json!([{"key": "VlanPrio", "value": "99"}]);
    std::fs::write(&file, wrong.to_string()).expect("written");
    lab.said(&["adapter", "cancel-migration", "blue"]).await;
    lab.said(&["adapter", "remove", "blue"]).await;
    lab.refused(1, &["adapter", "prepare-migration", "vf0", "--file", &path])
        .await;
    assert_eq!(identity(&lab, "vf0").await, vf0);
    assert_eq!(shown(&lab, "vf0").await["migration"], Value::Null);
    std::fs::write(&file, &document).expect("written");
    lab.said(&["adapter", "prepare-migration", "vf0", "-f", &path])
        .await;
    let adapter = shown(&lab, "vf0").await;
    assert_eq!(
        (&adapter["macs"], &adapter["mtu"]),
        (&json!(["02:00:5e:00:00:07"]), &json!(9000))
    );
    lab.said(&["adapter", "cancel-migration", "vf0"]).await;
    assert_eq!(identity(&lab, "vf0").await, vf0);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_work() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/migration.md");
    let page = std::fs::read_to_string(path).expect("docs/migration.md");
    let lab = Lab::start(2).await;
    let mut said = String::new();
    for block in blocks(&page).iter().filter(|b| b.kind == "sh") {
        said += &run(&lab, block.text).await;
    }
    assert!(
        said.contains("from vf0; the addresses are not here now"),
        "{said}"
    );
    assert_eq!(shown(&lab, "vf0").await["migration"], Value::Null);
    lab.end().await;
}
