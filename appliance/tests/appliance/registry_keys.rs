//! Every key of the WinOF-2 text, over gRPC against a daemon: what is declared of it is what it does.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::lab::{Lab, fields};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use vnic_backend::VlanMode;
use vnic_backend::settings::{Apply, Built, Illegal, KEYS, KeyDef, Kind, Rule, Scopes, Value, key, markdown};
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::registry_key as wire;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const VF0: &str = "adapters/vf0";
/// The catalog's rows of the WinOF-2 text: the first cell is its name there, the second the keys it stands for.
const CATALOG: &str = include_str!("../../../vnic-backend/engine/tests/data/seed_keys.csv");

fn service(lab: &Lab) -> RegistryServiceClient<Channel> {
    RegistryServiceClient::new(lab.channel.clone())
}

async fn get(lab: &Lab, key: &str) -> v1::RegistryEntry {
    let request = v1::GetEntryRequest {
        scope: VF0.to_owned(),
        key: key.to_owned(),
    };
    let entry = service(lab).get_entry(request).await;
    entry.unwrap_or_else(|e| panic!("{key}: {e}")).into_inner()
}

async fn set_in(lab: &Lab, scope: &str, key: &str, value: &str) -> Result<v1::SetEntryResponse, Status> {
    let request = v1::SetEntryRequest {
        scope: scope.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        if_match: None,
    };
    Ok(service(lab).set_entry(request).await?.into_inner())
}

async fn set(lab: &Lab, key: &str, value: &str) -> Result<v1::SetEntryResponse, Status> {
    set_in(lab, VF0, key, value).await
}

async fn forget(lab: &Lab, scope: &str, key: &str) {
    let request = v1::DeleteEntryRequest {
        scope: scope.to_owned(),
        key: key.to_owned(),
        if_match: None,
    };
    service(lab).delete_entry(request).await.expect("forgotten");
}

async fn restart(lab: &Lab) {
    let request = v1::RestartAdapterRequest { name: VF0.to_owned() };
    AdapterServiceClient::new(lab.channel.clone())
        .restart_adapter(request)
        .await
        .expect("restarted");
}

/// A daemon whose adapter may be in any VLAN.
async fn start(dir: tempfile::TempDir) -> Lab {
    Lab::with(dir, |dir| {
        let mut settings = crate::common::settings(dir, 1);
        settings.adapters[0].vlan = VlanMode::Trunk {
            native: 1,
            allowed: None,
        };
        settings
    })
    .await
}

/// The daemon ends and starts again with the same state.
async fn again(lab: Lab) -> Lab {
    let Lab { daemon, channel, dir } = lab;
    drop(channel);
    daemon.shutdown().await;
    start(dir).await
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|i| i.reason)
        .unwrap_or_default()
}

fn format(def: &KeyDef, number: u32) -> String {
    def.format(&Value::Dword(number))
}

/// The names of the catalog's keys, and of its rows that are no keys.
fn catalog() -> (BTreeSet<&'static str>, Vec<&'static str>) {
    let (mut keys, mut others) = (BTreeSet::new(), Vec::new());
    for line in CATALOG.lines().skip(1) {
        // Only names with blanks and commas are quoted, and no name of a key has them.
        let (name, rest) = match line.strip_prefix('"') {
            Some(quoted) => quoted.split_once("\",").expect("the end of the quotes"),
            None => line.split_once(',').expect("a second cell"),
        };
        match rest.split(',').next() {
            Some("") | None => others.push(name),
            Some(names) => keys.extend(names.split(' ')),
        }
    }
    (keys, others)
}

/// Values that a key allows, the last one other than what acts while nothing is stored.
fn legal(def: &KeyDef) -> Vec<String> {
    let mut values: Vec<u32> = match def.kind {
        Kind::Dword { min, max } => vec![min, min + (max - min) / 2, max],
        Kind::Rate { min } => vec![min, 1000, 100_000],
        Kind::Enum(values) => values.iter().map(|(n, _)| *n).collect(),
        Kind::Bool => vec![0, 1],
        Kind::MacList { .. } => {
            return ["", "02-00-00-00-AA-01", "02:00:00:00:aa:02 02-00-00-00-AA-01"]
                .map(str::to_owned)
                .to_vec();
        }
        Kind::Text { .. } => return vec![String::new(), "text".to_owned()],
    };
    // Also as REG_SZ would have it in hexadecimal.
    values.sort_by_key(|v| Some(*v) != def.unset);
    values
        .iter()
        .map(|v| format!("0x{v:x}"))
        .chain(values.iter().map(u32::to_string))
        .collect()
}

/// Values that a key does not allow.
fn illegal(def: &KeyDef) -> Vec<String> {
    let mut values: Vec<String> = ["-1", "4294967296", "0x", "1.5", "nonsense"]
        .map(str::to_owned)
        .to_vec();
    match def.kind {
        Kind::Dword { min, max } => {
            values.push((u64::from(max) + 1).to_string());
            values.extend(min.checked_sub(1).map(|below| below.to_string()));
        }
        Kind::Rate { min } => values.extend(min.checked_sub(1).map(|below| below.to_string())),
        Kind::Enum(known) => {
            let unknown = (0..16).find(|n| known.iter().all(|(k, _)| k != n));
            values.extend(unknown.map(|n: u32| n.to_string()));
        }
        Kind::Bool => values.push("2".to_owned()),
        Kind::MacList { .. } => {
            values.extend(["01-00-5E-00-00-01", "00-00-00-00-00-00", "02-00-00-00-AA"].map(str::to_owned));
        }
        Kind::Text { max } => return vec!["x".repeat(max + 1)],
    }
    values
}

/// Takes a key that is built through everything, and leaves nothing behind.
async fn drive(lab: &Lab, def: &KeyDef) {
    let name = def.name;
    let unset = match def.kind {
        Kind::MacList { .. } => Some(String::new()),
        _ => def.unset.map(|n| format(def, n)),
    };
    let entry = get(lab, name).await;
    assert_eq!(
        (entry.stored, entry.pending, entry.etag.as_str()),
        (None, None, "0"),
        "{name}"
    );
    assert_eq!(
        entry.effective.unwrap_or_default(),
        unset.clone().unwrap_or_default(),
        "{name}"
    );
    assert!(entry.built);

    // What must be so before it may be changed.
    let before = def.rules.iter().filter_map(|rule| match rule {
        Rule::ChangeOnlyWhile { other, value } => Some((*other, value.to_string())),
        Rule::While { .. } => None,
    });
    let before: Vec<_> = before.collect();
    for (other, value) in &before {
        set(lab, name, &legal(def)[0]).await.expect_err("not yet");
        set(lab, other, value).await.expect(other);
    }

    let mut acting = unset.clone().unwrap_or_default();
    let mut last = String::new();
    for value in legal(def) {
        let plain = def.format(&def.parse(&value));
        let answer = set(lab, name, &value)
            .await
            .unwrap_or_else(|e| panic!("{name} = {value}: {e}"));
        assert!(
            answer.warnings.is_empty(),
            "{name} = {value}: {:?}",
            answer.warnings
        );
        let entry = answer.entry.expect("the entry");
        assert_eq!(entry, get(lab, name).await, "{name}");
        assert_eq!(entry.stored.as_deref(), Some(plain.as_str()), "{name} = {value}");
        assert_eq!(entry.origin(), v1::registry_entry::Origin::Adapter, "{name}");
        match def.apply {
            Apply::Dynamic => {
                acting.clone_from(&plain);
                assert_eq!(entry.pending, None, "{name} = {value}");
            }
            Apply::Restart => {
                let waits = (plain != acting).then(|| plain.clone());
                assert_eq!(entry.pending, waits, "{name} = {value}");
            }
        }
        assert_eq!(entry.effective.unwrap_or_default(), acting, "{name} = {value}");
        last = plain;
    }
    assert_ne!(Some(&last), unset.as_ref(), "{name}: nothing would be seen of it");

    for value in illegal(def) {
        match set(lab, name, &value).await {
            Ok(answer) => {
                assert_eq!(def.illegal, Illegal::Default, "{name} took {value}");
                let default = def.default.map(|n| format(def, n)).expect("a default");
                let said = &answer.warnings[0];
                assert_eq!(said.stored.as_ref(), Some(&default), "{name} = {value}");
                assert!(said.message.contains(&def.allowed()), "{}", said.message);
                assert_eq!(get(lab, name).await.stored, Some(default), "{name} = {value}");
                set(lab, name, &last).await.expect("the value before");
            }
            Err(status) => {
                assert_ne!(def.illegal, Illegal::Default, "{name} = {value}: {status}");
                assert_eq!(status.code(), Code::InvalidArgument, "{name} = {value}: {status}");
                assert_eq!(fields(&status), ["value"], "{name} = {value}");
                let text = status.message();
                assert!(text.contains(name) && text.contains(&def.allowed()), "{text}");
            }
        }
        assert_eq!(
            get(lab, name).await.stored.as_ref(),
            Some(&last),
            "{name} = {value}"
        );
    }

    restart(lab).await;
    let entry = get(lab, name).await;
    assert_eq!(
        (entry.effective.as_ref(), entry.pending),
        (Some(&last), None),
        "{name} after a restart"
    );
    forget(lab, VF0, name).await;
    for (other, _) in &before {
        forget(lab, VF0, other).await;
    }
    restart(lab).await;
    let entry = get(lab, name).await;
    assert_eq!((entry.stored, entry.pending), (None, None), "{name}");
    assert_eq!(
        entry.effective.unwrap_or_default(),
        unset.unwrap_or_default(),
        "{name}"
    );
}

/// A key that is not built takes nothing and says what it waits for.
async fn refuse(lab: &Lab, def: &KeyDef, waits_for: &str) {
    let entry = get(lab, def.name).await;
    assert_eq!(
        (entry.stored, entry.pending, entry.effective),
        (None, None, None),
        "{}",
        def.name
    );
    assert!(!entry.built, "{}", def.name);
    for value in legal(def).iter().take(1).chain(illegal(def).iter().take(1)) {
        let status = set(lab, def.name, value).await.expect_err(def.name);
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::Unimplemented, "KEY_NOT_BUILT"),
            "{}: {status}",
            def.name
        );
        let info = status.get_details_error_info().expect("info");
        assert_eq!(
            info.metadata.get("waits_for").map(String::as_str),
            Some(waits_for)
        );
        assert!(
            status.message().contains("not implemented"),
            "{}",
            status.message()
        );
    }
    assert_eq!(get(lab, def.name).await.stored, None, "{}", def.name);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_does_what_is_declared_of_it() {
    let lab = start(tempfile::tempdir().expect("a directory")).await;
    let (names, _) = catalog();
    let mut driven = BTreeSet::new();
    for name in names {
        let def = key(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        // Another spelling means the same key.
        assert_eq!(get(&lab, name).await.key, def.name);
        assert_eq!(get(&lab, &name.to_uppercase()).await.key, def.name);
        if !driven.insert(def.name) {
            continue;
        }
        match def.built {
            Built::Yes => drive(&lab, def).await,
            Built::No(waits_for) => refuse(&lab, def, waits_for).await,
        }
    }
    assert_eq!(
        driven.len(),
        KEYS.len(),
        "every key of the table is in the catalog"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_what_clients_are_told() {
    let lab = start(tempfile::tempdir().expect("a directory")).await;
    let request = v1::ListKeysRequest::default();
    let told = service(&lab)
        .list_keys(request)
        .await
        .expect("keys")
        .into_inner()
        .keys;
    let told: BTreeMap<&str, &v1::RegistryKey> = told.iter().map(|k| (k.key.as_str(), k)).collect();
    assert_eq!(told.len(), KEYS.len());
    for def in KEYS {
        let row = told[def.name];
        let (min, max, kind) = match def.kind {
            Kind::Dword { min, max } => (Some(min), Some(max), wire::Type::Dword),
            Kind::Rate { min } => (Some(min), row.max, wire::Type::Rate),
            Kind::Enum(values) => {
                let said: Vec<_> = row.choices.iter().map(|c| (c.value, c.word.as_str())).collect();
                assert_eq!(said, values, "{}", def.name);
                (row.min, row.max, wire::Type::Enum)
            }
            Kind::Bool => (row.min, row.max, wire::Type::Bool),
            Kind::MacList { .. } => (None, None, wire::Type::MacList),
            Kind::Text { .. } => (None, None, wire::Type::Text),
        };
        assert_eq!((row.min, row.max, row.r#type()), (min, max, kind), "{}", def.name);
        assert_eq!(
            row.default_value,
            def.default.map(|n| format(def, n)),
            "{}",
            def.name
        );
        assert_eq!(row.built, def.built == Built::Yes, "{}", def.name);
        let dynamic = row.apply() == wire::Apply::Dynamic;
        assert_eq!(dynamic, def.apply == Apply::Dynamic, "{}", def.name);
        let illegal = match def.illegal {
            Illegal::Default => wire::Illegal::Default,
            Illegal::Reject => wire::Illegal::Reject,
            Illegal::LineRate => wire::Illegal::LineRate,
        };
        assert_eq!(row.illegal(), illegal, "{}", def.name);
        assert_eq!((row.help.as_str(), row.source.as_str()), (def.help, def.source));
        assert_eq!(
            (row.note.as_str(), row.aliases.len()),
            (def.note, def.aliases.len())
        );
        assert_eq!(row.rules.len(), def.rules.len(), "{}", def.name);
        let for_driver = row.scopes.iter().any(|s| s == "driver");
        assert_eq!(for_driver, def.scopes.contains(Scopes::DRIVER), "{}", def.name);
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_told_all_of_it() {
    let lab = start(tempfile::tempdir().expect("a directory")).await;
    // One row of each subject and of each sort of dependency.
    for name in [
        "DelayDropTimeout",
        "RecvCompletionMethod",
        "CongestionMode",
        "*UsoIPv4",
        "AdpRetrans",
        "RroceDscpMarkPriorityFlowControl[7]",
        "DcqcnRpgAiRate",
    ] {
        let def = key(name).expect("a key");
        let said = lab.said(&["registry", "describe", name]).await;
        assert!(said.contains(def.help) && said.contains(def.source), "{said}");
        assert!(said.contains(def.note), "{said}");
        for rule in def.rules {
            assert!(said.contains(&rule.to_string()), "{said}");
        }
        for alias in def.aliases {
            assert!(said.contains(alias), "{said}");
            assert_eq!(lab.said(&["registry", "describe", alias]).await, said);
        }
        if let Built::No(what) = def.built {
            assert!(said.contains("not implemented") && said.contains(what), "{said}");
            let refused = lab.refused(1, &["registry", "set", "vf0", name, "1"]).await;
            assert!(refused.contains("not implemented"), "{refused}");
        }
    }
    let all = lab.said(&["registry", "describe"]).await;
    for def in KEYS {
        assert!(all.contains(def.name), "{} is missing", def.name);
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_together_survive_the_daemon() {
    let mut lab = start(tempfile::tempdir().expect("a directory")).await;
    // Values that may be together, none of them what acts while nothing is stored.
    let wanted = [
        ("AsyncReceiveIndicate", "1"),
        ("RfdReservationFactor", "10000"),
        ("DelayDropTimeout", "20"),
        ("mac-address-list", "02-00-00-00-AA-01 02-00-00-00-AA-02"),
        ("RecvCompletionMethod", "0"),
        ("SendCompletionMethod", "0"),
        ("TxMaxPostSendsCoalescing", "8"),
        ("ThreadedDpcEnable", "1"),
        ("TxThreadedDpcEnable", "1"),
        ("*TCPChecksumOffloadIPv4", "1"),
        ("*TCPChecksumOffloadIPv6", "2"),
        ("*UDPChecksumOffloadIPv4", "0"),
        ("*UDPChecksumOffloadIPv6", "1"),
        ("*LsoV2IPv4", "0"),
        ("*LsoV2IPv6", "0"),
        ("*UsoIPv4", "0"),
        ("*UsoIPv6", "0"),
        ("*RscIPv4", "0"),
        ("*RscIPv6", "0"),
        ("*RSS", "0"),
        ("*NumRSSQueues", "3"),
        ("*WakeOnMagicPacket", "0"),
        ("*WakeOnPattern", "0"),
        ("*EncapsulatedPacketTaskOffload", "0"),
        ("*EncapsulatedPacketTaskOffloadVxlan", "0"),
        ("*EncapsulatedPacketTaskOffloadNvgre", "0"),
        ("*VxlanUDPPortNumber", "8472"),
        ("*PtpHardwareTimestamp", "1"),
        ("VlanID", "7"),
        ("VlanPrio", "5"),
        ("TxUntagPriorityTag", "1"),
        ("roce_mode", "4"),
        ("*NetworkDirect", "0"),
        ("EceSupportEnabled", "0"),
        ("EnableGpuDirect", "1"),
        ("*FlowControl", "1"),
        ("DefaultUntaggedPriority", "4"),
        ("DcbxMode", "2"),
        ("*QoSOffload", "0"),
        ("*QosOffloadSupportedTCs", "15"),
        ("SendQueuePerPrio", "1"),
        ("RxUntaggedMapToLossless", "1"),
        ("DscpBasedEtsEnabled", "1"),
        ("DscpBasedpfcEnabled", "1"),
        ("DscpForGlobalFlowControl", "46"),
        ("RxTrustedState", "3"),
        ("CongestionMonitoringEnable", "1"),
        ("CongestionAction", "1"),
        ("CongestionMode", "0"),
        ("TCHeadOfQueueLifeTimeLimit", "10"),
        ("TCStallCount", "3"),
        ("TCHeadOfQueueLifeTimeLimitEnable", "255"),
        ("DeviceRxStallTimeout", "1000"),
        ("DeviceRxStallWatermark", "500"),
        ("DcqcnClampTgtRate", "1"),
        ("DcqcnClampTgtRateAfterTimeInc", "0"),
        ("DcqcnCnpDscp", "48"),
        ("DcqcnCnp802pPrio", "5"),
        ("DcqcnCnpPrioMode", "0"),
        ("DcqcnRpgTimeReset", "300"),
        ("DcqcnRpgByteReset", "32767"),
        ("DcqcnRpgThreshold", "1"),
        ("DcqcnRpgAiRate", "5"),
        ("DcqcnRpgHaiRate", "50"),
        ("DcqcnAlphaToRateShift", "10"),
        ("DcqcnRpgMinDecFac", "25"),
        ("DcqcnRpgMinRate", "2"),
        ("DcqcnRateToSetOnFirstCnp", "0"),
        ("DcqcnDceTcpG", "5"),
        ("DcqcnDceTcpRtt", "1"),
        ("DcqcnRateReduceMonitorPeriod", "4"),
        ("DcqcnInitialAlphaValue", "1023"),
        ("AdpRetrans", "0"),
        ("TxWindow", "0"),
        ("SlowStart", "0"),
    ];
    let tables = [
        ("DscpToPriorityMappingTable_", 64, ""),
        ("PriorityToDscpMappingTable_", 8, ""),
        ("RroceDscpMarkPriorityFlowControl[", 8, "]"),
    ];
    let enables = (0..8).map(|n| (format!("DcqcnEnablePrio{n}"), "1".to_owned()));
    let tables = tables.iter().flat_map(|(first, count, last)| {
        (0..*count).map(move |n| (format!("{first}{n}{last}"), ((n + 3) % 7).to_string()))
    });
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let wanted: Vec<(String, String)> = wanted.into_iter().chain(tables).chain(enables).collect();
    let built: BTreeSet<_> = KEYS
        .iter()
        .filter(|k| k.built == Built::Yes)
        .map(|k| k.name)
        .collect();
    assert_eq!(
        wanted
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<BTreeSet<_>>(),
        built
    );
    let operations = wanted.iter().map(|(name, value)| v1::RegistryOperation {
        scope: VF0.to_owned(),
        key: name.clone(),
        action: Some(v1::registry_operation::Action::Set(value.clone())),
        if_match: None,
    });
    let request = v1::ApplyTransactionRequest {
        operations: operations.collect(),
        validate_only: false,
    };
    let done = service(&lab)
        .apply_transaction(request)
        .await
        .expect("all")
        .into_inner();
    assert!(done.warnings.is_empty(), "{:?}", done.warnings);
    lab = again(lab).await;
    for (name, value) in &wanted {
        let (entry, value) = (get(&lab, name).await, value.as_str());
        assert_eq!(entry.stored.as_deref(), Some(value), "{name}");
        // A start of the daemon is a restart of its adapters.
        assert_eq!(
            (entry.effective.as_deref(), entry.pending),
            (Some(value), None),
            "{name}"
        );
        assert_eq!(entry.etag, done.revision.to_string(), "{name}");
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_exclude_each_other() {
    let lab = start(tempfile::tempdir().expect("a directory")).await;
    let operation = |(name, value): (&str, &str)| v1::RegistryOperation {
        scope: VF0.to_owned(),
        key: name.to_owned(),
        action: Some(v1::registry_operation::Action::Set(value.to_owned())),
        if_match: None,
    };
    let apply = async |operations: &[(&str, &str)]| {
        let request = v1::ApplyTransactionRequest {
            operations: operations.iter().copied().map(operation).collect(),
            validate_only: false,
        };
        service(&lab).apply_transaction(request).await.map(|_| ())
    };
    for (first, second) in [
        (("AsyncReceiveIndicate", "1"), ("RecvCompletionMethod", "4")),
        (("RecvCompletionMethod", "4"), ("AsyncReceiveIndicate", "2")),
        (("TxMaxPostSendsCoalescing", "33"), ("SendCompletionMethod", "2")),
        (("SendCompletionMethod", "2"), ("TxMaxPostSendsCoalescing", "33")),
    ] {
        set(&lab, first.0, first.1).await.expect("alone");
        let status = set(&lab, second.0, second.1).await.expect_err("not together");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(
            status.message().contains(first.0) && status.message().contains(second.0),
            "{status}"
        );
        assert_eq!(get(&lab, second.0).await.stored, None);
        // Both at once do not get through either, in any order; a way out does.
        forget(&lab, VF0, first.0).await;
        apply(&[first, second]).await.expect_err("not together");
        apply(&[second, first]).await.expect_err("not together");
        assert_eq!(
            (get(&lab, first.0).await.stored, get(&lab, second.0).await.stored),
            (None, None)
        );
        set(&lab, first.0, first.1).await.expect("alone");
        let unset = key(first.0)
            .and_then(|def| def.unset)
            .expect("a number")
            .to_string();
        apply(&[(first.0, &unset), second])
            .await
            .expect("one leaves, the other comes");
        forget(&lab, VF0, second.0).await;
        forget(&lab, VF0, first.0).await;
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_for_the_driver() {
    let lab = start(tempfile::tempdir().expect("a directory")).await;
    for def in KEYS
        .iter()
        .filter(|k| !k.scopes.contains(Scopes::DRIVER) && k.built == Built::Yes)
    {
        let status = set_in(&lab, "driver", def.name, "0").await.expect_err(def.name);
        assert_eq!(status.code(), Code::InvalidArgument, "{}: {status}", def.name);
        assert_eq!(fields(&status), ["scope"], "{}", def.name);
    }
    let origin = async || {
        let entry = get(&lab, "roce_mode").await;
        (entry.effective.clone().unwrap_or_default(), entry.origin())
    };
    use v1::registry_entry::Origin;
    assert_eq!(origin().await, ("2".to_owned(), Origin::Default));
    set_in(&lab, "driver", "roce_mode", "4")
        .await
        .expect("for the driver");
    restart(&lab).await;
    assert_eq!(origin().await, ("4".to_owned(), Origin::Driver));
    set(&lab, "roce_mode", "0").await.expect("for the adapter");
    restart(&lab).await;
    assert_eq!(origin().await, ("0".to_owned(), Origin::Adapter));
    forget(&lab, VF0, "roce_mode").await;
    restart(&lab).await;
    assert_eq!(origin().await, ("4".to_owned(), Origin::Driver));
    forget(&lab, "driver", "roce_mode").await;
    restart(&lab).await;
    assert_eq!(origin().await, ("2".to_owned(), Origin::Default));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_is_unknown() {
    let lab = start(tempfile::tempdir().expect("a directory")).await;
    let (_, others) = catalog();
    assert!(others.len() > 10);
    for name in others {
        let status = set(&lab, name, "1").await.expect_err(name);
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::NotFound, "UNKNOWN_KEY"),
            "{name}: {status}"
        );
    }
    lab.end().await;
}

#[test]
fn the_document_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/registry.md");
    let made = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("docs/registry.md");
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == made,
        "docs/registry.md is not what the table says: UPDATE_DOCS=1 cargo test writes it"
    );
}
