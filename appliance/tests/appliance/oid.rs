//! OIDs as people and programs see them: gRPC and the command line.

use crate::common::lab::{Lab, fields};
use tonic::Code;
use tonic::transport::Channel;
use vnic_control::v1;
use vnic_control::v1::oid_service_client::OidServiceClient;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const DROPLESS: u32 = 0xFFA0_C932;
const ON: [u8; 5] = [0xa2, 0x1e, 0x0c, 0x00, 1];
const OFF: [u8; 5] = [0xa2, 0x1e, 0x0c, 0x00, 2];

fn service(lab: &Lab) -> OidServiceClient<Channel> {
    OidServiceClient::new(lab.channel.clone())
}

async fn query(lab: &Lab, code: u32, room: Option<u32>) -> v1::QueryOidResponse {
    let request = v1::QueryOidRequest {
        adapter: "adapters/vf0".to_owned(),
        code,
        buffer_length: room,
    };
    service(lab)
        .query_oid(request)
        .await
        .expect("a status")
        .into_inner()
}

async fn set(lab: &Lab, code: u32, data: &[u8]) -> v1::SetOidResponse {
    let request = v1::SetOidRequest {
        adapter: "adapters/vf0".to_owned(),
        code,
        data: data.to_vec(),
    };
    service(lab)
        .set_oid(request)
        .await
        .expect("a status")
        .into_inner()
}

fn name(status: Option<v1::NdisStatus>) -> String {
    status.expect("a status").status_name
}

/// What the registry says of the timeout: stored, effective, pending.
async fn stored(lab: &Lab) -> (Option<String>, Option<String>, Option<String>) {
    let request = v1::GetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: "DelayDropTimeout".to_owned(),
    };
    let mut registry = RegistryServiceClient::new(lab.channel.clone());
    let entry = registry
        .get_entry(request.clone())
        .await
        .expect("an entry")
        .into_inner();
    let request = v1::ListEntriesRequest {
        scope: request.scope,
        key: request.key,
        ..v1::ListEntriesRequest::default()
    };
    let list = registry.list_entries(request).await.expect("a list").into_inner();
    assert_eq!(list.entries, std::slice::from_ref(&entry));
    (entry.stored, entry.effective, entry.pending)
}

/// Stores the timeout of dropless mode.
async fn store(lab: &Lab, value: &str) {
    let request = v1::SetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: "DelayDropTimeout".to_owned(),
        value: value.to_owned(),
        if_match: None,
    };
    let mut registry = RegistryServiceClient::new(lab.channel.clone());
    registry.set_entry(request).await.expect("stored");
}

async fn kinds(lab: &Lab) -> Vec<String> {
    let list = lab.json(&["event", "list"]).await;
    let events = list["events"].as_array().expect("events").clone();
    events
        .iter()
        .map(|e| e["kind"].as_str().expect("a kind").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_oid_is_answered() {
    let lab = Lab::start(1).await;
    let list = service(&lab).list_oids(v1::ListOidsRequest {}).await;
    let oids = list.expect("a list").into_inner().oids;
    assert!(oids.len() > 20);
    let mut codes = Vec::new();
    for row in &oids {
        let answer = query(&lab, row.code, None).await;
        assert_eq!(name(answer.status), "NDIS_STATUS_SUCCESS", "{}", row.oid_name);
        assert_eq!(
            answer.bytes_needed as usize,
            answer.data.len(),
            "{}",
            row.oid_name
        );
        assert!(!answer.text.is_empty(), "{}", row.oid_name);
        codes.extend(row.code.to_le_bytes());
    }
    assert_eq!(query(&lab, 0x0001_0101, None).await.data, codes);
    // What the daemon says elsewhere, too.
    let adapter = lab.json(&["adapter", "show", "vf0"]).await;
    let current = query(&lab, 0x0101_0102, None).await;
    assert_eq!(adapter["macs"][0].as_str(), Some(current.text.as_str()));
    let mtu = query(&lab, 0x0001_0106, None).await.data;
    assert_eq!(
        adapter["mtu"].as_u64(),
        Some(u32::from_le_bytes(mtu.try_into().expect("4")).into())
    );
    // Nobody is attached.
    assert_eq!(query(&lab, 0x0001_0114, None).await.data, [1, 0, 0, 0]);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_say_what_is_counted() {
    let lab = Lab::start(1).await;
    let info = query(&lab, 0x0002_0106, None).await;
    assert_eq!(info.data.len(), 152);
    assert_eq!(info.data[..4], [0x80, 1, 152, 0]);
    let flags = u32::from_le_bytes(info.data[4..8].try_into().expect("4"));
    assert_eq!(flags, 0x003f_87ff, "all of them are counted: {}", info.text);
    assert!(info.text.contains("ifInDiscards: 0\n"), "{}", info.text);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropless_mode_by_its_oid() {
    let lab = Lab::start(1).await;
    let off = [0xa2, 0x1e, 0x0c, 0x00, 0];
    assert_eq!(query(&lab, DROPLESS, Some(5)).await.data, off);
    for (bytes, mode) in [
        (ON.to_vec(), 1),
        (ON.to_vec(), 1),
        ([&OFF[..], &[9; 3]].concat(), 0),
        ([&ON[..], &[0; 3]].concat(), 1),
        (OFF.to_vec(), 0),
    ] {
        let answer = set(&lab, DROPLESS, &bytes).await;
        assert_eq!(name(answer.status), "NDIS_STATUS_SUCCESS");
        assert_eq!(
            (answer.bytes_read as usize, answer.bytes_needed),
            (bytes.len(), 0)
        );
        assert_eq!(
            query(&lab, DROPLESS, Some(5)).await.data,
            [0xa2, 0x1e, 0x0c, 0x00, mode]
        );
        let padded = [0xa2, 0x1e, 0x0c, 0x00, mode, 0, 0, 0];
        assert_eq!(query(&lab, DROPLESS, None).await.data, padded);
    }
    lab.end().await;
}

/// The key and the OID are acts alike: the later one counts, and each is an event. What is stored stays, and a restart
/// reads it anew.
#[tokio::test(flavor = "multi_thread")]
async fn the_oid_and_the_key() {
    let lab = Lab::start(1).await;
    let mode = async || query(&lab, DROPLESS, Some(5)).await.data[4];
    let some = |text: &str| Some(text.to_owned());
    store(&lab, "20").await;
    assert_eq!(mode().await, 1);
    assert_eq!(stored(&lab).await, (some("20"), some("20"), None));
    set(&lab, DROPLESS, &OFF).await;
    assert_eq!(mode().await, 0);
    assert_eq!(stored(&lab).await, (some("20"), some("0"), some("20")));
    lab.said(&["adapter", "restart", "vf0"]).await;
    assert_eq!(mode().await, 1, "the key is read anew");
    assert_eq!(stored(&lab).await, (some("20"), some("20"), None));
    store(&lab, "0").await;
    assert_eq!(mode().await, 0);
    set(&lab, DROPLESS, &ON).await;
    assert_eq!(mode().await, 1);
    assert_eq!(stored(&lab).await, (some("0"), some("50"), some("0")));
    let told: Vec<_> = kinds(&lab)
        .await
        .into_iter()
        .filter(|k| k.starts_with("dropless"))
        .collect();
    let (on, off) = ("dropless_entered", "dropless_exited");
    assert_eq!(told, [on, off, on, off, on]);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_changes_nothing_and_is_logged() {
    let lab = Lab::start(1).await;
    set(&lab, DROPLESS, &ON).await;
    let mut refused = 0;
    for (code, bytes, status, needed) in [
        (DROPLESS, &[][..], "NDIS_STATUS_INVALID_LENGTH", 5),
        (DROPLESS, &OFF[..4], "NDIS_STATUS_INVALID_LENGTH", 5),
        (
            DROPLESS,
            &[0xa2, 0x1e, 0x0c, 0, 2, 0],
            "NDIS_STATUS_INVALID_LENGTH",
            5,
        ),
        (DROPLESS, &[0; 9], "NDIS_STATUS_INVALID_LENGTH", 5),
        (DROPLESS, &[0, 0x0c, 0x1e, 0xa2, 2], "NDIS_STATUS_INVALID_DATA", 0),
        (DROPLESS, &[0xa2, 0x1e, 0x0c, 0, 0], "NDIS_STATUS_INVALID_DATA", 0),
        (DROPLESS, &[0xa2, 0x1e, 0x0c, 0, 3], "NDIS_STATUS_INVALID_DATA", 0),
        (0x0001_0107, &[0; 4], "NDIS_STATUS_NOT_SUPPORTED", 0),
        (0x1234_5678, &[0; 4], "NDIS_STATUS_INVALID_OID", 0),
    ] {
        let answer = set(&lab, code, bytes).await;
        assert_eq!(name(answer.status), status, "{code:x} {bytes:x?}");
        assert_eq!((answer.bytes_read, answer.bytes_needed), (0, needed));
        refused += 1;
    }
    assert_eq!(query(&lab, DROPLESS, Some(5)).await.data, ON, "still on");
    let logged = kinds(&lab).await;
    assert_eq!(
        logged.iter().filter(|k| *k == "settings_refused").count(),
        refused,
        "{logged:?}"
    );

    let short = query(&lab, DROPLESS, Some(4)).await;
    assert_eq!(
        (name(short.status), short.bytes_needed),
        ("NDIS_STATUS_BUFFER_TOO_SHORT".to_owned(), 5)
    );
    assert!(short.data.is_empty() && short.text.is_empty());
    assert_eq!(
        name(query(&lab, 0x1234_5678, None).await.status),
        "NDIS_STATUS_INVALID_OID"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_driver_sees_is_an_error_of_the_call() {
    let lab = Lab::start(1).await;
    for (adapter, code) in [("vf0", Code::InvalidArgument), ("adapters/none", Code::NotFound)] {
        let request = v1::QueryOidRequest {
            adapter: adapter.to_owned(),
            code: DROPLESS,
            buffer_length: None,
        };
        let error = service(&lab).query_oid(request).await.expect_err("an error");
        assert_eq!(error.code(), code, "{error}");
        let request = v1::SetOidRequest {
            adapter: adapter.to_owned(),
            code: DROPLESS,
            data: ON.to_vec(),
        };
        let error = service(&lab).set_oid(request).await.expect_err("an error");
        assert_eq!(error.code(), code, "{error}");
        if code == Code::InvalidArgument {
            assert_eq!(fields(&error), ["adapter"]);
        }
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line() {
    let lab = Lab::start(1).await;
    let list = lab.said(&["oid", "list"]).await;
    assert!(list.contains("0xFFA0C932  DROPLESS_MODE"), "{list}");
    let speed = lab.said(&["oid", "query", "vf0", "oid_gen_link_speed"]).await;
    assert!(
        speed.contains("00 ca 9a 3b") && speed.contains("1000000000 x 100 bit/s"),
        "{speed}"
    );
    let done = lab
        .said(&["oid", "set", "vf0", "0xFFA0C932", "--hex", "a2 1e 0c 00 01"])
        .await;
    assert!(done.contains("NDIS_STATUS_SUCCESS"), "{done}");
    let on = lab
        .said(&["oid", "query", "vf0", "0xFFA0C932", "--length", "5"])
        .await;
    assert!(on.contains("a2 1e 0c 00 01\n") && on.ends_with("on\n"), "{on}");
    let json = lab
        .json(&["oid", "query", "vf0", "DROPLESS_MODE", "--length", "5"])
        .await;
    assert_eq!(json["data"], "oh4MAAE=");
    let wrong = lab
        .refused(1, &["oid", "set", "vf0", "0xFFA0C932", "--hex", "a21e0c0003"])
        .await;
    assert!(wrong.contains("NDIS_STATUS_INVALID_DATA"), "{wrong}");
    let unknown = lab.refused(1, &["oid", "query", "vf0", "7"]).await;
    assert!(unknown.contains("NDIS_STATUS_INVALID_OID"), "{unknown}");
    lab.refused(2, &["oid", "set", "vf0", "0xFFA0C932", "--hex", "a2 1"])
        .await;
    lab.refused(2, &["oid", "query", "vf0", "OID_NO_SUCH"]).await;
    lab.refused(1, &["oid", "query", "none", "OID_GEN_LINK_SPEED"])
        .await;
    lab.end().await;
}
