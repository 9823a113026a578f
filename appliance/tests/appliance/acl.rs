//! `vnicctl acl` and `AccessListService`: set, shown, stored, refused.

use serde_json::json;

use crate::common::lab::Lab;

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_added_removed_stored_and_traced() {
    let lab = Lab::start(2).await;
    let shown = lab.said(&["acl", "show", "vf0"]).await;
    assert!(
        shown.contains("no rules") && shown.contains("tx: others permit"),
        "{shown}"
    );
    lab.said(&[
        "acl",
        "add",
        "vf0",
        "tx",
        "deny",
        "--protocol",
        "tcp",
        "--to-port",
        "20-25",
    ])
    .await;
    lab.said(&[
        "acl",
        "add",
        "vf0",
        "rx",
        "permit",
        "--from",
        "10.0.0.0/24",
        "--ethertype",
        "0x0800",
    ])
    .await;
    let first = [
        "acl", "add", "vf0", "tx", "permit", "--to", "fd00::1", "--vlan", "7", "--at", "1",
    ];
    lab.said(&first).await;
    lab.said(&["acl", "set", "vf0", "--rx", "deny"]).await;
    let shown = lab.said(&["acl", "show", "vf0"]).await;
    for part in [
        "1  tx   permit  to fd00::1 vlan 7",
        "2  tx   deny    protocol 6 to-port 20-25",
        "3  rx   permit  from 10.0.0.0/24 ethertype 0x0800",
        "rx: others deny, 0 frames",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let lab = lab.restart(2).await;
    let list = lab.json(&["acl", "show", "vf0"]).await;
    assert_eq!(list["name"], json!("adapters/vf0/accessList"));
    assert_eq!(list["rules"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&list["deny_rx"], &list["deny_tx"]),
        (&json!(true), &json!(false))
    );
    let table = lab.said(&["acl", "list"]).await;
    assert!(table.contains("vf0          3  deny        permit"), "{table}");
    lab.said(&["acl", "remove", "vf0", "1", "3"]).await;
    let list = lab.json(&["acl", "show", "vf0"]).await;
    assert_eq!(list["rules"].as_array().map(Vec::len), Some(1));
    for (code, words, part) in [
        (2, &["acl", "remove", "vf0", "2"][..], "there is no rule 2"),
        (2, &["acl", "add", "vf0", "tx", "deny", "--at", "3"], "1 to 2"),
        (
            1,
            &["acl", "add", "vf0", "tx", "deny", "--from", "10.0.0.1/24"],
            "access_list.rules[1].source",
        ),
        (
            1,
            &["acl", "add", "vf0", "tx", "deny", "--to-port", "9-8"],
            "access_list.rules[1].destination_ports",
        ),
        (
            1,
            &["acl", "add", "vf0", "tx", "deny", "--protocol", "256"],
            "0 to 255",
        ),
        (1, &["acl", "show", "vf9"], "NOT_FOUND"),
    ] {
        let told = lab.refused(code, words).await;
        assert!(told.contains(part), "{part}: {told}");
    }
    lab.said(&["acl", "reset", "vf0"]).await;
    let shown = lab.said(&["acl", "show", "vf0"]).await;
    assert!(
        shown.contains("no rules") && shown.contains("rx: others permit"),
        "{shown}"
    );
    let events = lab.said(&["event", "list", "--kind", "settings_changed"]).await;
    assert!(events.contains("access list: 0 rules, set by"), "{events}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_has_changed_meanwhile_is_refused_and_goes_with_its_adapter() {
    use vnic_control::v1::access_list_service_client::AccessListServiceClient;
    use vnic_control::v1::{AccessList, SetAccessListRequest};

    let lab = Lab::start(1).await;
    let mut service = AccessListServiceClient::new(lab.channel.clone());
    let list = |etag: &str| SetAccessListRequest {
        access_list: Some(AccessList {
            name: "adapters/vf0/accessList".to_owned(),
            deny_tx: true,
            etag: etag.to_owned(),
            ..AccessList::default()
        }),
    };
    let set = service
        .set_access_list(list("0"))
        .await
        .expect("a list")
        .into_inner();
    let late = service.set_access_list(list("0")).await.expect_err("refused");
    assert_eq!(late.code(), tonic::Code::Aborted);
    service.set_access_list(list(&set.etag)).await.expect("a list");
    service.set_access_list(list("")).await.expect("a list");
    let wrong = service.set_access_list(list("x")).await.expect_err("refused");
    assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
    lab.said(&["adapter", "add", "blue"]).await;
    lab.said(&["acl", "set", "blue", "--tx", "deny"]).await;
    lab.said(&["adapter", "remove", "blue"]).await;
    lab.said(&["adapter", "add", "blue"]).await;
    let list = lab.json(&["acl", "show", "blue"]).await;
    assert_eq!(list["deny_tx"], json!(false));
    lab.end().await;
}
