//! `UpdateAdapter` and `vnicctl adapter set`: what acts at once, what waits, and what is kept.

use serde_json::{Value, json};
use tonic::Code;
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;

use crate::common::lab::Lab;

async fn shown(lab: &Lab, name: &str) -> Value {
    let text = lab.said(&["-o", "json", "adapter", "show", name]).await;
    serde_json::from_str(&text).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_change_at_once_or_by_a_restart_and_are_stored() {
    let mut lab = Lab::start(1).await;
    lab.said(&["adapter", "add", "blue", "--queue-pairs", "2"]).await;
    let before = shown(&lab, "blue").await;

    let text = lab
        .said(&[
            "adapter",
            "set",
            "blue",
            "--access-vlan",
            "20",
            "--anti-spoofing",
            "off",
        ])
        .await;
    assert!(
        text.contains("access 20") && !text.contains("after a restart"),
        "{text}"
    );
    let text = lab
        .said(&["adapter", "set", "blue", "--mtu", "9000", "--queue-pairs", "4"])
        .await;
    assert!(
        text.contains("after a restart") && text.contains("mtu 9000, queue_pairs 4"),
        "{text}"
    );
    let now = shown(&lab, "blue").await;
    assert_eq!(
        now["pending"],
        json!([{"field": "mtu", "value": "9000"}, {"field": "queue_pairs", "value": "4"}])
    );
    assert_eq!((&now["mtu"], &now["queue_pairs"]), (&json!(1500), &json!(2)));
    assert_ne!(now["etag"], before["etag"]);

    let status = lab.json(&["status", "--interval", "10ms"]).await;
    let waits = json!([
        {"adapter": "blue", "key": "mtu", "effective": "1500", "pending": "9000"},
        {"adapter": "blue", "key": "queue_pairs", "effective": "2", "pending": "4"},
    ]);
    assert_eq!(status["pending"], waits);

    // An etag that is not the present one changes nothing.
    let old = before["etag"].as_str().expect("an etag");
    let text = lab
        .refused(1, &["adapter", "set", "blue", "--mtu", "68", "--if-match", old])
        .await;
    assert!(text.contains("it has changed meanwhile"), "{text}");
    let text = lab
        .said(&[
            "adapter",
            "set",
            "blue",
            "--default",
            "vlan",
            "--default",
            "queue_pairs",
            "--restart",
        ])
        .await;
    assert!(text.contains("trunk all, native 1"), "{text}");
    let now = shown(&lab, "blue").await;
    assert_eq!(
        (&now["mtu"], &now["queue_pairs"], &now["pending"]),
        (&json!(9000), &json!(1), &json!([]))
    );

    // It comes back as it was changed; what the daemon chose stays the daemon's to choose.
    lab = lab.restart(1).await;
    let again = shown(&lab, "blue").await;
    for field in [
        "macs",
        "mtu",
        "queue_pairs",
        "vlan",
        "anti_spoofing",
        "eth_socket",
        "etag",
    ] {
        assert_eq!(again[field], now[field], "{field}");
    }
    // An adapter of the configuration has the configured values again.
    lab.said(&["adapter", "set", "vf0", "--access-vlan", "30"]).await;
    assert_eq!(shown(&lab, "vf0").await["vlan"], json!({"access": {"vlan": 30}}));
    lab = lab.restart(1).await;
    assert_ne!(shown(&lab, "vf0").await["vlan"], json!({"access": {"vlan": 30}}));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_changes_name_the_field_and_change_nothing() {
    let lab = Lab::start(1).await;
    let before = shown(&lab, "vf0").await;
    for (words, part) in [
        (&["--mtu", "20"][..], "mtu"),
        (&["--default", "vlam"], "did you mean \"vlan\"?"),
        (&["--socket", "relative"], "eth_socket"),
        (&["--rdma", "off", "--rdma-socket", "/run/x"], "rdma_socket"),
    ] {
        let mut all = vec!["adapter", "set", "vf0"];
        all.extend_from_slice(words);
        let text = lab.refused(1, &all).await;
        assert!(text.contains(part), "{text}");
    }
    for words in [
        &["adapter", "set", "vf0"][..],
        &["adapter", "set", "vf0", "--anti-spoofing", "maybe"],
        &["adapter", "set", "vf0", "--mtu", "9000", "--default", "mtu"],
    ] {
        lab.refused(2, words).await;
    }
    let mut service = AdapterServiceClient::new(lab.channel.clone());
    let mut update = async |name: &str, paths: &[&str]| {
        let request = v1::UpdateAdapterRequest {
            adapter: Some(v1::Adapter {
                name: name.to_owned(),
                mtu: 9000,
                ..v1::Adapter::default()
            }),
            update_mask: Some(prost_types::FieldMask {
                paths: paths.iter().map(ToString::to_string).collect(),
            }),
        };
        service.update_adapter(request).await
    };
    for (name, paths, code) in [
        ("adapters/nobody", &[][..], Code::NotFound),
        ("vf0", &[], Code::InvalidArgument),
        ("adapters/vf0", &["state"], Code::InvalidArgument),
        ("adapters/vf0", &["mtu", "nonsense"], Code::InvalidArgument),
    ] {
        let status = update(name, paths).await.expect_err("a wrong request");
        assert_eq!(status.code(), code, "{name} {paths:?}: {status}");
    }
    assert_eq!(shown(&lab, "vf0").await["etag"], before["etag"]);
    // Without a mask: the fields that are set.
    let changed = update("adapters/vf0", &[]).await.expect("a change").into_inner();
    let pending: Vec<_> = changed
        .pending
        .iter()
        .map(|p| (p.field.as_str(), p.value.as_str()))
        .collect();
    assert_eq!(pending, [("mtu", "9000")]);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_and_the_event_log_hear_of_a_change() {
    use v1::watch_adapters_response::Change;
    let lab = Lab::start(1).await;
    let name = "adapters/vf0".to_owned();
    let request = v1::WatchAdaptersRequest { name };
    let mut stream = AdapterServiceClient::new(lab.channel.clone())
        .watch_adapters(request)
        .await
        .expect("a stream")
        .into_inner();
    while stream.message().await.expect("a message").expect("more").change() != Change::Synced {}
    lab.said(&["adapter", "set", "vf0", "--mtu", "9000"]).await;
    let message = stream.message().await.expect("a message").expect("more");
    assert_eq!(message.change(), Change::Updated);
    assert_eq!(message.adapter.expect("an adapter").pending.len(), 1);
    let text = lab.said(&["event", "list", "--kind", "adapter_changed"]).await;
    assert!(
        text.contains("a part waits for `vnicctl adapter restart`"),
        "{text}"
    );
    lab.end().await;
}
