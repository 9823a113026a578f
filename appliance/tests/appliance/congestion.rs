//! Congestion control over gRPC: what is set is read back, by the service and by the registry, also after the daemon
//! started again; what is refused is named and changes nothing.

use std::collections::{BTreeMap, HashMap};

use crate::common::lab::{Lab, fields};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use vnic_backend::settings::{KEYS, Kind, PARAMETERS, Preset};
use vnic_control::v1;
use vnic_control::v1::congestion_parameter::Point;
use vnic_control::v1::congestion_service_client::CongestionServiceClient;
use vnic_control::v1::qos_service_client::QosServiceClient;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const VF0: &str = "adapters/vf0/congestion";

fn service(lab: &Lab) -> CongestionServiceClient<Channel> {
    CongestionServiceClient::new(lab.channel.clone())
}

async fn get(lab: &Lab) -> v1::Congestion {
    let request = v1::GetCongestionRequest { name: VF0.to_owned() };
    let now = service(lab).get_congestion(request).await;
    now.expect("congestion control").into_inner()
}

async fn set(lab: &Lab, request: v1::SetCongestionRequest) -> Result<v1::Congestion, Status> {
    let request = v1::SetCongestionRequest {
        name: VF0.to_owned(),
        ..request
    };
    Ok(service(lab).set_congestion(request).await?.into_inner())
}

fn parameters(values: &[(&str, &str)]) -> v1::SetCongestionRequest {
    v1::SetCongestionRequest {
        parameters: values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..v1::SetCongestionRequest::default()
    }
}

fn preset(name: &str) -> v1::SetCongestionRequest {
    v1::SetCongestionRequest {
        preset: Some(name.to_owned()),
        ..v1::SetCongestionRequest::default()
    }
}

async fn reset(lab: &Lab) -> v1::Congestion {
    let request = v1::ResetCongestionRequest { name: VF0.to_owned() };
    let done = service(lab).reset_congestion(request).await;
    done.expect("as new").into_inner()
}

async fn entry(lab: &Lab, key: &str) -> v1::RegistryEntry {
    let request = v1::GetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: key.to_owned(),
    };
    let entry = RegistryServiceClient::new(lab.channel.clone())
        .get_entry(request)
        .await;
    entry.expect(key).into_inner()
}

async fn set_key(lab: &Lab, key: &str, value: &str) -> Result<(), Status> {
    let request = v1::SetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        if_match: None,
    };
    let mut registry = RegistryServiceClient::new(lab.channel.clone());
    registry.set_entry(request).await.map(drop)
}

/// Parameters that are of no one algorithm.
fn values(congestion: &v1::Congestion) -> BTreeMap<String, String> {
    let of = |p: &v1::CongestionParameter| (p.name.clone(), p.value.clone());
    let common = congestion
        .parameters
        .iter()
        .filter(|p| p.point() != Point::Algorithm);
    common.map(of).collect()
}

fn on(mask: u8) -> Vec<bool> {
    (0..8).map(|bit| mask & 1 << bit != 0).collect()
}

fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.map(|i| i.reason).unwrap_or_default()
}

fn stored(status: &Status) -> Option<String> {
    status
        .get_details_error_info()
        .and_then(|i| i.metadata.get("stored").cloned())
}

/// For every parameter a value that it may have and that the preset has not.
fn others() -> BTreeMap<String, String> {
    let preset = Preset::Winof2Doc.points();
    let other = |p: &'static vnic_backend::settings::Parameter| {
        let candidates = match p.def.kind {
            Kind::Dword { min, max } => vec![min + 1, max - 1],
            Kind::Rate { .. } => vec![77, 78],
            _ => vec![0, 1],
        };
        let other = candidates.into_iter().find(|v| *v != p.get(&preset));
        (p.def.name.to_owned(), other.expect(p.def.name).to_string())
    };
    PARAMETERS.iter().map(other).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn service_and_registry_are_two_doors_to_one_setting() {
    let mut lab = Lab::start(1).await;
    let plain = get(&lab).await;
    assert_eq!(
        (
            plain.algorithm.as_str(),
            plain.preset.as_str(),
            plain.line_rate_bps
        ),
        ("dcqcn", "winof2-doc", 100_000_000_000)
    );
    assert_eq!((&plain.reaction, &plain.notification), (&on(0), &on(0)));
    assert!(
        plain
            .parameters
            .iter()
            .all(|p| !p.set && p.value == p.preset_value)
    );
    // While nothing is stored, what acts is what the rows of the keys say.
    for def in KEYS.iter().filter(|k| k.name.starts_with("Dcqcn")) {
        assert_eq!(
            entry(&lab, def.name).await.effective,
            def.unset.map(|n| n.to_string())
        );
    }

    let wanted = others();
    for p in &PARAMETERS {
        let (name, value) = (p.def.name, wanted[p.def.name].as_str());
        // One by one through the service: this one changes, and nothing else.
        let now = set(&lab, parameters(&[(name, value)])).await.expect(name);
        let mut expected = values(&plain);
        expected.insert(name.to_owned(), value.to_owned());
        assert_eq!(values(&now), expected, "{name}");
        let of = now.parameters.iter().find(|m| m.name == name).expect(name);
        assert!(of.set && of.keyed == p.keyed && of.allowed == p.def.allowed());
        assert_ne!(now.etag, plain.etag);
        if p.keyed {
            let entry = entry(&lab, name).await;
            assert_eq!(entry.stored.as_deref(), Some(value), "{name}");
            assert_eq!(entry.effective.as_deref(), Some(value), "{name}");
        }
        let back = set(&lab, parameters(&[(name, "")])).await.expect(name);
        assert_eq!(back, plain, "{name}");
        // And through the registry.
        let done = set_key(&lab, name, value).await;
        if p.keyed {
            done.expect(name);
            assert_eq!(get(&lab).await, now, "{name}");
            set(&lab, parameters(&[(name, "")])).await.expect(name);
        } else {
            assert_eq!(reason(&done.expect_err(name)), "UNKNOWN_KEY", "{name}");
        }
        // Every other spelling is the same parameter.
        for alias in p.def.aliases {
            let by_alias = set(&lab, parameters(&[(alias, value)])).await.expect(alias);
            assert_eq!(by_alias, now, "{alias}");
        }
        set(&lab, parameters(&[(name, "")])).await.expect(name);
        reset(&lab).await;
    }

    // All together, over the daemon's end.
    let all: HashMap<String, String> = wanted.clone().into_iter().collect();
    let request = v1::SetCongestionRequest {
        parameters: all,
        algorithm: Some("swift".to_owned()),
        enable_reaction: 0x88,
        enable_notification: 0x18,
        ..v1::SetCongestionRequest::default()
    };
    let now = set(&lab, request).await.expect("all of it");
    assert_eq!(values(&now), wanted);
    assert_eq!(
        (now.algorithm.as_str(), &now.reaction, &now.notification),
        ("swift", &on(0x88), &on(0x18))
    );
    lab = lab.restart(1).await;
    assert_eq!(get(&lab).await, now);
    let listed = service(&lab)
        .list_congestion(v1::ListCongestionRequest::default())
        .await;
    assert_eq!(listed.expect("a list").into_inner().congestion, [now]);

    // Zero touch RoCE is set by itself: neither a preset nor a reset changes it.
    let own = |all: &BTreeMap<String, String>| {
        let zero_touch = PARAMETERS.iter().filter(|p| p.is_zero_touch());
        zero_touch.map(|p| all[p.def.name].clone()).collect::<Vec<_>>()
    };
    let done = set(&lab, preset("mlx-fw")).await.expect("a preset");
    assert_eq!(own(&values(&done)), own(&wanted));
    let done = reset(&lab).await;
    assert_eq!(own(&values(&done)), own(&wanted));
    assert!(done.parameters.iter().filter(|p| p.set).count() == own(&wanted).len());
    for p in PARAMETERS.iter().filter(|p| p.is_zero_touch()) {
        set(&lab, parameters(&[(p.def.name, "")]))
            .await
            .expect(p.def.name);
    }
    assert_eq!(get(&lab).await, plain);
    for def in KEYS.iter().filter(|k| k.name.starts_with("Dcqcn")) {
        assert_eq!(entry(&lab, def.name).await.stored, None, "{}", def.name);
    }
    lab = lab.restart(1).await;
    assert_eq!(get(&lab).await, plain);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn presets_are_what_nobody_has_set() {
    let mut lab = Lab::start(1).await;
    set(
        &lab,
        parameters(&[("DcqcnRpgAiRate", "77"), ("np_cnp_scope", "port")]),
    )
    .await
    .expect("parameters");
    for wanted in Preset::ALL {
        // A preset forgets what was set before.
        let name = wanted.name();
        let now = set(&lab, preset(name)).await.expect(name);
        let points = wanted.points();
        for (p, of) in PARAMETERS.iter().zip(&now.parameters) {
            assert_eq!(
                of.value,
                p.get(&points).to_string(),
                "{} {}",
                wanted.name(),
                p.def.name
            );
            assert!(!of.set, "{}", p.def.name);
            if p.keyed {
                // The registry shows what acts, though nothing is stored there.
                let entry = entry(&lab, p.def.name).await;
                assert_eq!((entry.stored, entry.pending), (None, None));
                assert_eq!(entry.effective, Some(of.value.clone()), "{}", p.def.name);
            }
        }
        // What is set with it counts, and stays when the daemon starts again.
        let request = v1::SetCongestionRequest {
            preset: Some(wanted.name().to_uppercase()),
            ..parameters(&[("rp_ai_rate", "7")])
        };
        let now = set(&lab, request).await.expect("a preset and a parameter");
        assert_eq!(values(&now)["DcqcnRpgAiRate"], "7");
        lab = lab.restart(1).await;
        assert_eq!(get(&lab).await, now);
    }
    // A key of the registry counts before the preset.
    set_key(&lab, "DcqcnRpgTimeReset", "11").await.expect("a key");
    assert_eq!(values(&get(&lab).await)["DcqcnRpgTimeReset"], "11");

    let all = service(&lab)
        .list_congestion_presets(v1::ListCongestionPresetsRequest {})
        .await
        .expect("presets")
        .into_inner();
    let names: Vec<&str> = all.presets.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["winof2-doc", "mlx-fw", "paper", "ns3-rdma"]);
    assert_eq!(all.presets[1].parameters.len(), PARAMETERS.len());
    assert_eq!(all.algorithms[0].name, "dcqcn");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_of_a_priority_have_a_switch() {
    let mut lab = Lab::start(1).await;
    let switch = |enable_reaction, disable_reaction, enable_notification, disable_notification| {
        v1::SetCongestionRequest {
            enable_reaction,
            disable_reaction,
            enable_notification,
            disable_notification,
            ..v1::SetCongestionRequest::default()
        }
    };
    let masks = async |lab: &Lab| {
        let now = get(lab).await;
        let mask = |flags: &[bool]| flags.iter().rev().fold(0, |m, f| m << 1 | u8::from(*f));
        (mask(&now.reaction), mask(&now.notification))
    };
    // The key of a priority is either end.
    set(&lab, switch(0x08, 0, 0x08, 0)).await.expect("both");
    assert_eq!(masks(&lab).await, (8, 8));
    assert_eq!(
        entry(&lab, "DcqcnEnablePrio3").await.effective.as_deref(),
        Some("1")
    );
    set(&lab, switch(0, 0x08, 0, 0)).await.expect("one off");
    assert_eq!(masks(&lab).await, (0, 8));
    assert_eq!(entry(&lab, "DcqcnEnablePrio3").await.stored.as_deref(), Some("1"));
    lab = lab.restart(1).await;
    assert_eq!(masks(&lab).await, (0, 8));
    set(&lab, switch(0, 0, 0, 0x08)).await.expect("the other off");
    assert_eq!(masks(&lab).await, (0, 0));
    assert_eq!(entry(&lab, "DcqcnEnablePrio3").await.stored.as_deref(), Some("0"));
    // A write to the registry switches both.
    set_key(&lab, "DcqcnEnablePrio3", "1").await.expect("a key");
    assert_eq!(masks(&lab).await, (8, 8));
    set(&lab, switch(0xff, 0, 0xff, 0)).await.expect("all");
    assert_eq!(masks(&lab).await, (0xff, 0xff));
    set_key(&lab, "DcqcnEnablePrio0", "0").await.expect("a key");
    assert_eq!(masks(&lab).await, (0xfe, 0xfe));
    set(&lab, switch(0, 0xff, 0, 0xff)).await.expect("none");
    assert_eq!(masks(&lab).await, (0, 0));
    for (request, field) in [
        (switch(1, 1, 0, 0), "disable_reaction"),
        (switch(0, 0, 2, 2), "disable_notification"),
        (switch(256, 0, 0, 0), "enable_reaction"),
        (switch(0, 0, 0, 256), "disable_notification"),
    ] {
        let refused = set(&lab, request).await.expect_err(field);
        assert!(fields(&refused).contains(&field.to_owned()), "{field}: {refused}");
        assert_eq!(masks(&lab).await, (0, 0));
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rate_is_above_that_of_the_line() {
    let lab = Lab::start(1).await;
    let limit = async |rate_bps| {
        let request = v1::UpdateQosRequest {
            qos: Some(v1::Qos {
                name: "adapters/vf0/qos".to_owned(),
                rate_bps,
                ..v1::Qos::default()
            }),
            update_mask: Some(prost_types::FieldMask {
                paths: vec!["rate_bps".to_owned()],
            }),
        };
        let mut qos = QosServiceClient::new(lab.channel.clone());
        qos.update_qos(request).await.expect("a rate");
    };
    let rates: Vec<_> = PARAMETERS
        .iter()
        .filter(|p| matches!(p.def.kind, Kind::Rate { .. }))
        .collect();
    assert_eq!(rates.len(), 5);
    for (line, mbps) in [(0, "100000"), (10_000_000_000, "10000")] {
        limit(line).await;
        for p in &rates {
            // As documented: it fails, and the line rate is stored.
            let refused = set(&lab, parameters(&[(p.def.name, "100001")])).await;
            let refused = refused.expect_err(p.def.name);
            assert_eq!(
                (refused.code(), reason(&refused), stored(&refused)),
                (
                    Code::OutOfRange,
                    "ABOVE_LINE_RATE".to_owned(),
                    Some(mbps.to_owned())
                ),
                "{}",
                p.def.name
            );
            assert_eq!(values(&get(&lab).await)[p.def.name], mbps);
            reset(&lab).await;
            if p.keyed {
                let refused = set_key(&lab, p.def.name, "100001").await.expect_err(p.def.name);
                assert_eq!(stored(&refused).as_deref(), Some(mbps), "{}", p.def.name);
                assert_eq!(values(&get(&lab).await)[p.def.name], mbps);
                reset(&lab).await;
            }
            // Others that are given with it are stored.
            let refused = set(&lab, parameters(&[(p.def.name, "100001"), ("np_cnp_ecn", "1")])).await;
            assert_eq!(stored(&refused.expect_err(p.def.name)).as_deref(), Some(mbps));
            let now = values(&get(&lab).await);
            assert_eq!((&*now[p.def.name], &*now["np_cnp_ecn"]), (mbps, "1"));
            reset(&lab).await;
            // Unless one of them is not allowed, or a preset is chosen.
            let wrong = parameters(&[(p.def.name, "100001"), ("np_cnp_ecn", "4")]);
            let preset = v1::SetCongestionRequest {
                preset: Some("paper".to_owned()),
                ..parameters(&[(p.def.name, "100001")])
            };
            for (wanted, field) in [(wrong, "np_cnp_ecn"), (preset, p.def.name)] {
                let refused = set(&lab, wanted).await.expect_err(p.def.name);
                assert_eq!(fields(&refused), [format!("parameters[{field}]")]);
                assert!(get(&lab).await.parameters.iter().all(|p| !p.set));
            }
        }
    }
    // Several of them at once.
    let refused = set(
        &lab,
        parameters(&[
            ("DcqcnRpgAiRate", "100001"),
            ("DcqcnRpgHaiRate", "4000000000"),
            ("DcqcnCnpDscp", "7"),
        ]),
    );
    let refused = refused.await.expect_err("above the line rate");
    for word in ["DcqcnRpgAiRate", "DcqcnRpgHaiRate"] {
        assert!(refused.message().contains(word), "{refused}");
    }
    let now = values(&get(&lab).await);
    assert_eq!(
        ["DcqcnRpgAiRate", "DcqcnRpgHaiRate", "DcqcnCnpDscp"].map(|name| &*now[name]),
        ["10000", "10000", "7"]
    );
    reset(&lab).await;
    // The line becomes slower under what was set, and faster again.
    limit(0).await;
    set(&lab, parameters(&[("DcqcnRpgAiRate", "50000")]))
        .await
        .expect("a rate");
    limit(10_000_000_000).await;
    let now = get(&lab).await;
    assert_eq!(
        (now.line_rate_bps, values(&now)["DcqcnRpgAiRate"].as_str()),
        (10_000_000_000, "10000")
    );
    assert_eq!(
        entry(&lab, "DcqcnRpgAiRate").await.stored.as_deref(),
        Some("50000")
    );
    limit(0).await;
    assert_eq!(values(&get(&lab).await)["DcqcnRpgAiRate"], "50000");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_named_and_changes_nothing() {
    let lab = Lab::start(1).await;
    let before = get(&lab).await;
    for (name, value, problem) in [
        ("DcqcnRpgTimeReset", "131072", "0 to 131071 (us)"),
        ("DcqcnRpgByteReset", "32768", "0 to 32767 (units of 64 bytes)"),
        ("DcqcnRpgThreshold", "0", "1 to 31"),
        ("DcqcnRpgThreshold", "32", "1 to 31"),
        ("DcqcnAlphaToRateShift", "12", "0 to 11"),
        ("DcqcnRpgMinDecFac", "101", "0 to 100 (percent)"),
        ("DcqcnRpgAiRate", "0", "1 to the line rate"),
        ("DcqcnDceTcpG", "1024", "0 to 1023"),
        ("DcqcnRateReduceMonitorPeriod", "4294967295", "0 to 4294967294"),
        ("DcqcnCnpDscp", "64", "0 to 63"),
        ("DcqcnCnp802pPrio", "8", "0 to 7"),
        ("DcqcnClampTgtRate", "yes", "0 and 1"),
        ("np_cnp_scope", "rack", "destination-ip"),
        ("np_cnp_ecn", "4", "0 to 3"),
        ("np_min_time_between_cnps", "-1", "0 to 131071 (us)"),
        ("rp_dce_tcp_g", "0", "1 to 1024"),
        ("rp_dce_tcp_g", "1025", "1 to 1024"),
        ("DcqcnRpgAiRat", "1", "did you mean DcqcnRpgAiRate?"),
        ("VlanID", "1", "no parameter \"VlanID\""),
    ] {
        // Beside one that is allowed.
        let refused = set(&lab, parameters(&[(name, value), ("np_cnp_trailing", "0")]))
            .await
            .expect_err(name);
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}: {refused}");
        assert_eq!(fields(&refused), [format!("parameters[{name}]")]);
        assert!(refused.message().contains(problem), "{name}: {refused}");
        assert_eq!(get(&lab).await, before, "{name}");
    }
    let several = parameters(&[("DcqcnCnpDscp", "64"), ("np_cnp_ecn", "4"), ("nonsense", "1")]);
    let refused = set(&lab, several).await.expect_err("three");
    assert_eq!(fields(&refused).len(), 3);
    let with = |change: fn(&mut v1::SetCongestionRequest)| {
        let mut request = v1::SetCongestionRequest::default();
        change(&mut request);
        request
    };
    for (request, field, problem) in [
        (
            with(|r| r.algorithm = Some("bbr".to_owned())),
            "algorithm",
            "dcqcn+",
        ),
        (
            with(|r| r.preset = Some("fast".to_owned())),
            "preset",
            "winof2-doc",
        ),
        (with(|_| {}), "parameters", "nothing"),
    ] {
        let refused = set(&lab, request).await.expect_err(field);
        assert_eq!(fields(&refused), [field]);
        assert!(refused.message().contains(problem), "{refused}");
    }
    let refused = set(
        &lab,
        v1::SetCongestionRequest {
            etag: "0".to_owned(),
            ..preset("paper")
        },
    )
    .await
    .expect_err("another etag");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::Aborted, "ETAG_MISMATCH")
    );
    let etag = before.etag.clone();
    set(
        &lab,
        v1::SetCongestionRequest {
            etag,
            ..preset("paper")
        },
    )
    .await
    .expect("what was seen");
    reset(&lab).await;
    for (name, code) in [
        ("adapters/vf9/congestion", Code::NotFound),
        ("ports/p0/congestion", Code::InvalidArgument),
        ("adapters/vf0", Code::InvalidArgument),
    ] {
        let request = v1::GetCongestionRequest {
            name: name.to_owned(),
        };
        let refused = service(&lab).get_congestion(request).await.expect_err(name);
        assert_eq!(refused.code(), code, "{name}");
    }
    for (adapter, code) in [("adapters/vf9", Code::NotFound), ("vf0", Code::InvalidArgument)] {
        let request = v1::ListFlowsRequest {
            adapter: adapter.to_owned(),
            ..Default::default()
        };
        let refused = service(&lab).list_flows(request).await.expect_err(adapter);
        assert_eq!(refused.code(), code, "{adapter}");
    }
    for adapter in ["", "adapters/vf0"] {
        let request = v1::ListFlowsRequest {
            adapter: adapter.to_owned(),
            ..Default::default()
        };
        let flows = service(&lab).list_flows(request).await.expect(adapter);
        assert!(flows.into_inner().flows.is_empty());
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_weight_of_alpha_as_linux_counts_it() {
    let lab = Lab::start(1).await;
    for (name, value, gain) in [
        ("rp_dce_tcp_g", "1019", "5"),
        ("dce_tcp_g", "992", "32"),
        ("DcqcnDceTcpG", "4", "4"),
    ] {
        let now = set(&lab, parameters(&[(name, value)])).await.expect(name);
        assert_eq!(values(&now)["DcqcnDceTcpG"], gain, "{name}");
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_algorithm_can_be_chosen() {
    let mut lab = Lab::start(1).await;
    for algorithm in ["timely", "swift", "hpcc", "dcqcn+", "none", "dcqcn"] {
        let request = v1::SetCongestionRequest {
            algorithm: Some(algorithm.to_owned()),
            enable_reaction: 0xff,
            enable_notification: 0xff,
            ..v1::SetCongestionRequest::default()
        };
        let now = set(&lab, request).await.expect(algorithm);
        assert_eq!(now.algorithm, algorithm);
        let told = &values(&now)["np_told_interval"];
        assert_eq!(told == "0", algorithm != "dcqcn+", "{algorithm}");
        let guests = set(&lab, parameters(&[("soft_roce", "1")]))
            .await
            .expect(algorithm);
        let alone = guests.warnings.iter().any(|w| w.starts_with("soft_roce: hpcc"));
        assert_eq!(alone, algorithm == "hpcc", "{:?}", guests.warnings);
        assert_eq!(
            set(&lab, parameters(&[("soft_roce", "")]))
                .await
                .expect(algorithm),
            now
        );
        lab = lab.restart(1).await;
        assert_eq!(get(&lab).await, now);
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_algorithms_are_those_of_an_adapter() {
    let mut lab = Lab::start(2).await;
    let plain = get(&lab).await;
    let of = |p: &&v1::CongestionParameter| p.point() == Point::Algorithm;
    let names: Vec<String> = plain
        .parameters
        .iter()
        .filter(of)
        .map(|p| p.name.clone())
        .collect();
    for algorithm in ["dcqcn+", "timely", "swift", "hpcc"] {
        let front = format!("{algorithm}.");
        assert!(names.iter().any(|name| name.starts_with(&front)), "{algorithm}");
    }
    for name in &names {
        // One of these is another value than the one that acts.
        let tried = ["3", "0.25", "1", "0", "7000"];
        let mut changed = false;
        for value in tried {
            let Ok(now) = set(&lab, parameters(&[(name, value)])).await else {
                continue;
            };
            let before = plain.parameters.iter().find(|p| p.name == *name).expect("a row");
            let after = now.parameters.iter().find(|p| p.name == *name).expect("a row");
            if after.value == before.value {
                continue;
            }
            assert!(after.set && after.preset_value == before.value, "{after:?}");
            let others = |c: &v1::Congestion| {
                let mut rows = c.parameters.clone();
                rows.retain(|p| p.name != *name);
                rows
            };
            assert_eq!(others(&now), others(&plain), "{name}");
            changed = true;
            break;
        }
        assert!(changed, "{name}");
        assert_eq!(
            set(&lab, parameters(&[(name, "")])).await.expect(name),
            plain,
            "{name}"
        );
    }
    // The other adapter has its own, and all of it stays over a restart, and over a preset of DCQCN.
    set(
        &lab,
        parameters(&[
            ("swift.base", "30us"),
            ("hpcc.eta", "0.9"),
            ("hpcc.reaction", "per-rtt"),
        ]),
    )
    .await
    .expect("three parameters");
    let now = set(&lab, preset("mlx-fw")).await.expect("a preset");
    let row = |name: &str| {
        now.parameters
            .iter()
            .find(|p| p.name == name)
            .expect("a row")
            .clone()
    };
    assert_eq!(
        (&*row("swift.base").value, &*row("swift.base").word),
        ("30000", "30us")
    );
    assert_eq!((&*row("hpcc.eta").value, &*row("hpcc.eta").word), ("0.9", ""));
    assert_eq!(
        (&*row("hpcc.reaction").value, &*row("hpcc.reaction").word),
        ("2", "per-rtt")
    );
    lab = lab.restart(2).await;
    assert_eq!(get(&lab).await, now);
    let other = lab.said(&["cc", "get", "vf1", "swift.base"]).await;
    assert_eq!(other, "swift.base=25000\n");
    for (name, value, problem) in [
        ("swift.base", "2s", "base = \"2s\" is not accepted: 1ns to 1s"),
        ("timely.beta", "1.5", "0 to 1"),
        ("hpcc.reaction", "fast", "one of reference, per-ack, per-rtt"),
        ("dcqcn+.cutt", "0.5", "it has g, initial_alpha, cut"),
    ] {
        let refused = set(&lab, parameters(&[(name, value)])).await.expect_err(name);
        assert_eq!(fields(&refused), [format!("parameters[{name}]")]);
        assert!(refused.message().contains(problem), "{refused}");
    }
    assert_eq!(get(&lab).await, now);
    reset(&lab).await;
    assert_eq!(get(&lab).await.parameters, plain.parameters);
    lab.end().await;
}
