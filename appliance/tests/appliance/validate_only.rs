//! `vnic-validate-only`: every method that changes something can be asked whether it would, and does nothing then.

mod rows;

use std::collections::BTreeSet;
use std::fs;

use prost::Message as _;
use prost_reflect::{DynamicMessage, MethodDescriptor, SerializeOptions};
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status};
use vnic_appliance::access::Role;
use vnic_appliance::access::methods::METHODS;

use crate::api::pool;
use crate::common;
use crate::common::lab::Lab;
use crate::mesh::keys::Authority;
use crate::request_id::reason;
use rows::{Files, Good, Row, rows};

/// Messages as bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        use bytes::Buf as _;
        let all = buffer.copy_to_bytes(buffer.remaining());
        Ok(Some(all.to_vec()))
    }
}

fn descriptor(path: &str) -> MethodDescriptor {
    let (service, method) = path.trim_start_matches('/').split_once('/').expect("a path");
    let service = pool().get_service_by_name(service);
    let mut methods: Vec<_> = service.expect("a service").methods().collect();
    methods.retain(|m| m.name() == method);
    methods.pop().expect("a method")
}

fn shown(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .skip_default_fields(false);
    let json = message.serialize_with_options(serde_json::value::Serializer, &options);
    json.expect("JSON")
}

/// Calls a method with a message as JSON; the answer as JSON, and its metadata.
async fn call(
    lab: &Lab,
    path: &str,
    message: &Value,
    metadata: &[(&'static str, &str)],
) -> Result<(Value, MetadataMap), Status> {
    let method = descriptor(path);
    let asked = DynamicMessage::deserialize(method.input(), message.clone());
    let asked = asked.unwrap_or_else(|e| panic!("{path} {message}: {e}"));
    let mut request = Request::new(asked.encode_to_vec());
    for (key, value) in metadata {
        request
            .metadata_mut()
            .insert(*key, value.parse().expect("metadata"));
    }
    let mut client = Grpc::new(lab.channel.clone()).max_decoding_message_size(16 << 20);
    client.ready().await.expect("a connection");
    let answer = client
        .unary(request, path.parse().expect("a path"), Bytes)
        .await?;
    let metadata = answer.metadata().clone();
    let answer = DynamicMessage::decode(method.output(), answer.into_inner().as_slice());
    Ok((shown(&answer.expect("a message")), metadata))
}

const ON: &[(&str, &str)] = &[("vnic-validate-only", "true")];

/// Asks whether a change would be made.
async fn validate(lab: &Lab, path: &str, message: &Value) -> Result<Value, Status> {
    let (answer, metadata) = call(lab, path, message, ON).await?;
    assert_eq!(
        metadata.get("vnic-validated").expect("metadata"),
        "true",
        "{path}"
    );
    Ok(answer)
}

/// Everything that a change could show in: lists, settings, events, and the number of the store's last commit.
async fn all_of(lab: &Lab) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    // Numbers that go on by themselves, and lists about one adapter.
    let not = [
        "ListCounters",
        "ListCounterSets",
        "ListHistograms",
        "ListQueuePairRates",
        "ListFlows",
    ];
    let more = ["ExportConfig", "ExportRegistry", "GetLogLevel"];
    for method in METHODS
        .iter()
        .filter(|m| m.path.starts_with("/vnic.") && !m.stream)
    {
        let (_, name) = method.path.rsplit_once('/').expect("a path");
        if more.contains(&name) || (name.starts_with("List") && !not.contains(&name)) {
            let listed = call(lab, method.path, &json!({}), &[]).await;
            let (listed, _) = listed.unwrap_or_else(|status| panic!("{name}: {status}"));
            all.push((name.to_owned(), listed));
        }
    }
    let mark = fs::read(lab.dir.path().join("state/state.redb.mark")).expect("the store's mark");
    all.push(("store".to_owned(), json!(mark)));
    let captures = fs::read_dir(lab.dir.path().join("state/captures")).expect("captures");
    let captures: BTreeSet<_> = captures
        .map(|e| format!("{:?}", e.expect("a file").file_name()))
        .collect();
    all.push(("files".to_owned(), json!(captures)));
    all
}

/// A daemon with something of each kind.
async fn furnished(files: &Files) -> Lab {
    let dir = tempfile::tempdir().expect("a directory");
    let lab = Lab::with(dir, |dir| {
        let mut settings = common::settings(dir, 4);
        let file = dir.join("vnicd.toml");
        let adapters = ["vf0", "vf1", "vf2", "vf3", "new"];
        let text = adapters.map(|name| format!("[[adapter]]\nname = \"{name}\"\nqueue_pairs = 1\n"));
        fs::write(&file, text.concat()).expect("a file");
        settings.config_file = Some(file);
        settings
    })
    .await;
    let scenario = lab.dir.path().join("old.toml");
    let once = "name = \"old\"\n[[step]]\nat = \"0ms\"\naction = \"fault\"\nfault = { name = \"once\", action = \"drop\", roce = true }\n";
    fs::write(&scenario, once).expect("a file");
    let scenario = scenario.display().to_string();
    let port = |name: &'static str| {
        vec![
            "port",
            "add",
            name,
            "--mesh",
            "127.0.0.1:0",
            "--cert",
            &files.certificate,
            "--key",
            &files.key,
            "--ca",
            &files.ca,
            "--peer-name",
            "*",
        ]
    };
    for command in [
        port("p0"),
        port("p1"),
        vec!["fault", "play", &scenario, "--watch"],
        vec!["adapter", "add", "blue"],
        vec!["adapter", "add", "gone"],
        vec!["adapter", "add", "spare"],
        vec!["adapter", "mac", "add", "blue", "02:00:5e:00:00:08"],
        vec!["adapter", "export-migration", "vf2"],
        vec!["adapter", "export-migration", "vf3"],
        vec!["capture", "start", "vf0", "--name", "running"],
        vec!["fault", "add", "lossy", "--to", "vf0", "--drop"],
        vec!["fault", "verbs", "add", "old", "--adapter", "vf1", "--lose"],
        vec![
            "mirror",
            "create",
            "old",
            "--source",
            "vf0",
            "--destination",
            "vf1",
        ],
        vec!["subnet", "group", "create", "old", "--partition", "0xffff"],
        vec!["gid", "set", "vf0", "--index", "100", "--gid", "2001:db8::9"],
        vec!["registry", "set", "vf0", "DelayDropTimeout", "50"],
        vec!["qos", "set", "vf0", "--rate", "1G"],
        vec!["acl", "add", "vf0", "tx", "deny", "--to", "10.0.0.0/8"],
        vec!["team", "create", "aggregate", "t0"],
        vec!["team", "create", "aggregate", "empty"],
        vec!["team", "attach", "t0", "p0"],
    ] {
        lab.said(&command).await;
    }
    let affinity = json!({"name": "teams/t0", "affinity": {"udp_source_port": 7, "port": "ports/p0"}});
    let set = call(&lab, "/vnic.v1.TeamService/SetTeamAffinity", &affinity, &[]).await;
    set.expect("an affinity");
    lab
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_can_be_validated_and_nothing_happens() {
    let ca = Authority::new("ours");
    let keys = ca.keys("a.example.com");
    let files = Files {
        certificate: keys.certificate,
        key: keys.key,
        ca: keys.ca,
    };
    let lab = furnished(&files).await;
    let exported = call(&lab, "/vnic.v1.RegistryService/ExportRegistry", &json!({}), &[]).await;
    let registry = exported.expect("a file").0["content"].clone();
    let rows = rows(&files, &registry);

    let changes = METHODS
        .iter()
        .filter(|m| m.path.starts_with("/vnic.") && m.role > Role::Viewer && !m.stream);
    let changes: BTreeSet<&str> = changes.map(|m| m.path).collect();
    let driven: BTreeSet<&str> = rows.iter().map(|row| row.path).collect();
    assert_eq!(driven, changes, "each method that changes something has a row");

    let before = all_of(&lab).await;
    let mut refusals = Vec::new();
    for Row {
        path,
        good,
        bad,
        answers,
    } in &rows
    {
        if let Good::Does(message) | Good::Only(message) = good {
            let answer = validate(&lab, path, message).await;
            let answer = answer.unwrap_or_else(|status| panic!("{path} {message}: {status}"));
            let empty = shown(&DynamicMessage::new(descriptor(path).output()));
            assert_eq!(answer != empty, *answers, "{path}: {answer} {empty}");
        }
        if let Some((code, bad)) = bad {
            let refused = validate(&lab, path, bad).await.expect_err(path);
            assert_eq!(refused.code(), *code, "{path} {bad}: {refused}");
            refusals.push((path, bad, refused));
        }
    }
    for ((name, before), (_, after)) in before.iter().zip(&all_of(&lab).await) {
        assert_eq!(before, after, "{name}: something has changed");
    }

    // Refusals are those of the change itself.
    for (path, bad, before) in refusals {
        let refused = call(&lab, path, bad, &[]).await.expect_err(path);
        assert_eq!(
            (refused.code(), refused.message(), reason(&refused)),
            (before.code(), before.message(), reason(&before)),
            "{path}"
        );
    }
    // What was in order is done.
    for Row { path, good, .. } in &rows {
        if let Good::Does(message) = good {
            let done = call(&lab, path, message, &[]).await;
            done.unwrap_or_else(|status| panic!("{path} {message}: {status}"));
        }
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_with_it() {
    let lab = Lab::start(1).await;
    let create = "/vnic.v1.AdapterService/CreateAdapter";
    let blue = json!({"adapter_id": "blue"});
    // An id of a request stays free for the change.
    let both = [("vnic-validate-only", "true"), ("vnic-request-id", "1")];
    for _ in 0..2 {
        let (answer, metadata) = call(&lab, create, &blue, &both).await.expect("in order");
        assert_eq!(answer["name"], "");
        assert!(!metadata.contains_key("vnic-repeated"));
    }
    let off = [("vnic-validate-only", "false"), ("vnic-request-id", "1")];
    let (answer, metadata) = call(&lab, create, &blue, &off).await.expect("made");
    assert_eq!(answer["name"], "adapters/blue");
    assert!(!metadata.contains_key("vnic-validated"));
    let there = validate(&lab, create, &blue).await.expect_err("it is there");
    assert_eq!(
        (there.code(), reason(&there).as_str()),
        (Code::AlreadyExists, "NAME_TAKEN")
    );
    let wrong = call(&lab, create, &json!({}), &[("vnic-validate-only", "1")]).await;
    assert_eq!(reason(&wrong.expect_err("a word")), "BAD_VALIDATE_ONLY");

    // What only reads is done, and streams of administrators are not begun.
    let get = "/vnic.v1.AdapterService/GetAdapter";
    let (answer, metadata) = call(&lab, get, &json!({"name": "adapters/vf0"}), ON)
        .await
        .expect("read");
    assert_eq!(answer["name"], "adapters/vf0");
    assert!(!metadata.contains_key("vnic-validated"));
    let capture = call(&lab, "/vnic.v1.CaptureService/StreamCapture", &json!({}), ON).await;
    let capture = capture.expect_err("a stream");
    assert_eq!(
        (capture.code(), reason(&capture).as_str()),
        (Code::Unimplemented, "CANNOT_VALIDATE")
    );

    // Rates above the line rate are refused, as without it.
    let qos =
        json!({"qos": {"name": "adapters/vf0/qos", "rate_bps": "1000000000"}, "update_mask": "rateBps"});
    call(&lab, "/vnic.v1.QosService/UpdateQos", &qos, &[])
        .await
        .expect("a rate");
    let above = json!({"name": "adapters/vf0/congestion", "parameters": {"rpg_max_rate": "4000"}});
    let before = all_of_registry(&lab).await;
    let refused = validate(&lab, "/vnic.v1.CongestionService/SetCongestion", &above).await;
    let refused = refused.expect_err("above the line rate");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::OutOfRange, "ABOVE_LINE_RATE")
    );
    assert_eq!(all_of_registry(&lab).await, before);
    lab.end().await;
}

async fn all_of_registry(lab: &Lab) -> Value {
    let listed = call(lab, "/vnic.v1.RegistryService/ExportRegistry", &json!({}), &[]).await;
    listed.expect("a file").0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_only_checks_its_first_change() {
    let lab = Lab::start(1).await;
    let only = |words: &[&'static str]| [&["--validate-only"], words].concat();
    let said = lab
        .refused(0, &only(&["adapter", "add", "blue", "--mtu", "9000"]))
        .await;
    assert_eq!(said, "vnicctl: CreateAdapter is in order; nothing was changed\n");
    let said = lab
        .refused(1, &only(&["adapter", "add", "blue", "--mtu", "1"]))
        .await;
    assert!(said.contains("adapter.mtu: 1 is out of range"), "{said}");
    let said = lab
        .refused(0, &only(&["qos", "set", "vf0", "--rate", "1G"]))
        .await;
    assert!(said.contains("UpdateQos is in order"), "{said}");
    // What says more about a check says it.
    let reg = lab.dir.path().join("nic.reg");
    let reg = reg.to_str().expect("a path");
    lab.said(&["registry", "set", "vf0", "DelayDropTimeout", "50"])
        .await;
    lab.said(&["registry", "export", "--file", reg]).await;
    lab.said(&["registry", "set", "vf0", "DelayDropTimeout", "60"])
        .await;
    lab.said(&["--validate-only", "registry", "import", reg]).await;
    let said = lab
        .refused(
            1,
            &only(&["oid", "set", "vf0", "0xFFA0C932", "--hex", "a21e0c0003"]),
        )
        .await;
    assert!(!said.contains("in order"), "{said}");
    // What only reads is done.
    let adapters = lab.json(&["--validate-only", "adapter", "list"]).await;
    assert_eq!(adapters["adapters"].as_array().map(Vec::len), Some(1));
    let entry = lab.json(&["registry", "get", "vf0", "DelayDropTimeout"]).await;
    assert_eq!(entry["stored"], "60");
    lab.end().await;
}
