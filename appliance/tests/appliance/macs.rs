//! Further addresses of adapters: the service, the registry key that it edits, and the command lines.

use crate::common::lab::{Lab, fields};
use tonic::{Code, Status};
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const A: &str = "02:00:5e:00:01:01";
const B: &str = "02:00:5e:00:01:02";
const C: &str = "02-00-5E-00-01-03";

async fn add(lab: &Lab, name: &str, macs: &[&str]) -> Result<Vec<String>, Status> {
    let request = v1::AddMacAddressesRequest {
        name: name.to_owned(),
        macs: macs.iter().map(|m| (*m).to_owned()).collect(),
    };
    let mut service = AdapterServiceClient::new(lab.channel.clone());
    let adapter = service.add_mac_addresses(request).await?.into_inner();
    Ok(adapter.additional_macs)
}

async fn remove(lab: &Lab, name: &str, macs: &[&str]) -> Result<Vec<String>, Status> {
    let request = v1::RemoveMacAddressesRequest {
        name: name.to_owned(),
        macs: macs.iter().map(|m| (*m).to_owned()).collect(),
    };
    let mut service = AdapterServiceClient::new(lab.channel.clone());
    let adapter = service.remove_mac_addresses(request).await?.into_inner();
    Ok(adapter.additional_macs)
}

async fn stored(lab: &Lab) -> Option<String> {
    let request = v1::GetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: "mac-address-list".to_owned(),
    };
    let mut registry = RegistryServiceClient::new(lab.channel.clone());
    let entry = registry.get_entry(request).await.expect("the key").into_inner();
    assert_eq!(entry.pending, None, "it acts at once");
    entry.stored
}

#[tokio::test]
async fn the_list_is_the_registrys() {
    let lab = Lab::start(2).await;
    assert_eq!(stored(&lab).await, None);
    assert_eq!(add(&lab, "adapters/vf0", &[A, B]).await.expect("added"), [A, B]);
    assert_eq!(add(&lab, "adapters/vf0", &[C]).await.expect("added").len(), 3);
    let text = stored(&lab).await.expect("stored");
    assert_eq!(text, "02-00-5E-00-01-01 02-00-5E-00-01-02 02-00-5E-00-01-03");

    // The other way: what is written into the registry is what the adapter has.
    let request = v1::SetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: "mac-address-list".to_owned(),
        value: B.to_owned(),
        if_match: None,
    };
    let mut registry = RegistryServiceClient::new(lab.channel.clone());
    registry.set_entry(request).await.expect("set");
    let said = lab.said(&["adapter", "mac", "list", "vf0"]).await;
    assert!(said.contains(B) && !said.contains(A), "{said}");
    assert!(
        remove(&lab, "adapters/vf0", &[B])
            .await
            .expect("removed")
            .is_empty()
    );
    assert_eq!(stored(&lab).await, None, "an empty list is not stored");
    lab.daemon.shutdown().await;
}

#[tokio::test]
async fn what_is_wrong_is_named_and_changes_nothing() {
    let lab = Lab::start(2).await;
    add(&lab, "adapters/vf0", &[A]).await.expect("added");
    let own: serde_json::Value =
        serde_json::from_str(&lab.said(&["-o", "json", "adapter", "show", "vf0"]).await).expect("JSON");
    let own = own["macs"][0].as_str().expect("an address").to_owned();

    let refused = |result: Result<Vec<String>, Status>, code, field: &str, problem: &str| {
        let status = result.expect_err(problem);
        assert_eq!(status.code(), code, "{status:?}");
        if !field.is_empty() {
            assert_eq!(fields(&status), [field], "{status:?}");
        }
        assert!(status.message().contains(problem), "{status:?}");
    };
    use Code::{InvalidArgument, NotFound};
    let vf0 = "adapters/vf0";
    refused(add(&lab, vf0, &[]).await, InvalidArgument, "macs", "1 to 128");
    refused(
        add(&lab, vf0, &[B, "no"]).await,
        InvalidArgument,
        "macs[1]",
        "not a MAC address",
    );
    refused(
        add(&lab, vf0, &["01:00:5e:00:00:01"]).await,
        InvalidArgument,
        "macs[0]",
        "group address",
    );
    refused(add(&lab, vf0, &[B, B]).await, InvalidArgument, "macs[1]", "twice");
    refused(
        add(&lab, vf0, &[B, A]).await,
        InvalidArgument,
        "macs[1]",
        "in the list already",
    );
    refused(
        add(&lab, vf0, &[&own]).await,
        InvalidArgument,
        "macs",
        "own address",
    );
    refused(
        add(&lab, "adapters/vf1", &[A]).await,
        InvalidArgument,
        "macs",
        "belongs to adapter vf0",
    );
    refused(
        add(&lab, "adapters/vf1", &[&own]).await,
        InvalidArgument,
        "macs",
        "belongs to adapter vf0",
    );
    refused(add(&lab, "adapters/vf9", &[B]).await, NotFound, "", "vf9");
    refused(
        add(&lab, "vf0", &[B]).await,
        InvalidArgument,
        "name",
        "adapters/{adapter}",
    );
    refused(
        remove(&lab, vf0, &[A, B]).await,
        InvalidArgument,
        "macs[1]",
        "not in the list",
    );
    let many: Vec<String> = (0..128).map(|i| format!("02:00:5e:00:02:{i:02x}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    refused(add(&lab, vf0, &many).await, InvalidArgument, "macs", "128");
    assert_eq!(add(&lab, vf0, &many[1..]).await.expect("127 more").len(), 128);
    lab.daemon.shutdown().await;
}

#[tokio::test]
async fn the_verbs_of_the_windows_tool() {
    let lab = Lab::start(2).await;
    let list = ["mlx5cmd", "-MacAddressList", "-Name", "vf0"];
    let with = |more: &[&'static str]| [&list[..], more].concat();
    let said = lab.said(&with(&["-Query"])).await;
    assert!(said.contains("Number of entries: 0"), "{said}");
    let said = lab
        .said(&with(&[
            "-Add",
            "-Entries",
            "2",
            "AE-CD-EF-AB-CD-E0",
            "AE-CD-EF-AB-CD-E1",
        ]))
        .await;
    assert!(said.contains("executed successfully"), "{said}");
    let said = lab.said(&with(&["-Query"])).await;
    assert!(
        said.contains("\nAE-CD-EF-AB-CD-E0\nAE-CD-EF-AB-CD-E1\nNumber of entries: 2\n"),
        "{said}"
    );
    lab.said(&with(&["-Delete", "-Entries", "1", "AE-CD-EF-AB-CD-E0"]))
        .await;
    let said = lab.said(&["adapter", "mac", "list", "vf0"]).await;
    assert!(
        said.contains("ae:cd:ef:ab:cd:e1") && !said.contains("ae:cd:ef:ab:cd:e0"),
        "{said}"
    );
    // The documented example's addresses are group addresses: they cannot belong to an adapter.
    let error = lab
        .refused(1, &with(&["-Add", "-Entries", "1", "AB-CD-EF-AB-CD-E0"]))
        .await;
    assert!(error.contains("group address"), "{error}");
    let error = lab
        .refused(2, &with(&["-Add", "-Entries", "2", "AE-CD-EF-AB-CD-E0"]))
        .await;
    assert!(error.contains("2 announced, 1 given"), "{error}");
    let error = lab.refused(2, &["mlx5cmd", "-Sniffer", "-Name", "vf0"]).await;
    assert!(error.contains("not implemented"), "{error}");
    let said = lab.said(&["mlx5cmd", "-RegKeys", "-Name", "vf0"]).await;
    assert!(said.contains("\nVlanID: 0\n"), "{said}");
    let said = lab.said(&["mlx5cmd", "-Stat"]).await;
    assert!(said.contains("Adapter name: vf1\n"), "{said}");

    lab.said(&["adapter", "mac", "add", "vf1", A, C]).await;
    let said = lab.said(&["adapter", "mac", "delete", "vf1", A]).await;
    assert!(said.contains("02:00:5e:00:01:03") && !said.contains(A), "{said}");
    lab.daemon.shutdown().await;
}
