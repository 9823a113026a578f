//! The table of settings, and what is done with values: every row against what its own kind promises, and properties over
//! any input.

mod congestion;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vnic_engine::settings::{
    self, AdapterSettings, Apply, Built, Burst, Checked, DelayDrop, Guard, HintAction, HintMode,
    HintSettings, Illegal, KEYS, KeyDef, Kind, Lifetimes, MarkRules, Origin, Place, PriorityRules, QosKeys,
    RecvCompletion, Refusal, RegType, RoceMode, Rule, Scopes, SendCompletion, SendRules, Trust, Value,
    check_change, check_together, effective, key,
};
use vnic_wire::MacAddr;

const LINE_RATE: u32 = 100_000;

fn row(name: &str) -> &'static KeyDef {
    key(name).unwrap_or_else(|| panic!("{name} is not in the table"))
}

fn stored(values: &[(&str, u32)]) -> impl Fn(&str) -> Option<Value> {
    let values: BTreeMap<String, u32> = values.iter().map(|(k, v)| (k.to_string(), *v)).collect();
    move |name| values.get(name).copied().map(Value::Dword)
}

#[test]
fn every_row_is_whole() {
    let mut names = BTreeSet::new();
    for def in KEYS {
        for name in std::iter::once(&def.name).chain(def.aliases) {
            assert!(names.insert(name.to_ascii_lowercase()), "{name} is there twice");
            assert_eq!(key(&name.to_uppercase()).map(|k| k.name), Some(def.name));
        }
        assert!(
            !def.help.is_empty() && def.help.ends_with('.'),
            "{}: help",
            def.name
        );
        assert!(
            def.note.is_empty() || def.note.ends_with('.'),
            "{}: note",
            def.name
        );
        assert!(
            def.source.starts_with("WinOF-2 Ethernet Network, "),
            "{}: source",
            def.name
        );
        assert!(def.scopes.contains(Scopes::ADAPTER), "{}: scope", def.name);
        match def.built {
            Built::Yes => assert!(def.field.is_some(), "{}: field", def.name),
            Built::No(what) => assert!(!what.is_empty() && def.field.is_none(), "{}: waits for", def.name),
        }
        for value in [def.default, def.unset].into_iter().flatten() {
            let value = Value::Dword(value);
            assert_eq!(
                def.check_value(&value, LINE_RATE),
                Ok(Checked::Accepted(value)),
                "{}",
                def.name
            );
        }
        if def.illegal == Illegal::Default {
            assert!(def.default.is_some(), "{}: falls back to nothing", def.name);
        }
        assert_eq!(
            def.illegal == Illegal::LineRate,
            matches!(def.kind, Kind::Rate { .. }),
            "{}",
            def.name
        );
        assert_eq!(
            def.reg == RegType::MultiSz,
            matches!(def.kind, Kind::MacList { .. }),
            "{}",
            def.name
        );
        match def.built {
            // An older name of another key: that one counts while nothing is stored.
            Built::Yes if def.name.starts_with("RroceDscpMark") => assert_eq!(def.unset, None),
            // Without a value that means the opposite.
            Built::Yes if def.name == "DcbxMode" => assert_eq!(def.unset, None),
            Built::Yes => assert!(
                def.unset.is_some() || matches!(def.kind, Kind::MacList { .. }),
                "{}",
                def.name
            ),
            Built::No(what) => assert!(!what.is_empty() && def.unset.is_none(), "{}", def.name),
        }
        for rule in def.rules {
            let (Rule::While { other, .. } | Rule::ChangeOnlyWhile { other, .. }) = rule;
            assert!(
                key(other).is_some(),
                "{}: depends on {other}, which is not in the table",
                def.name
            );
        }
    }
}

#[test]
fn what_is_built() {
    let built = KEYS.iter().filter(|k| k.built == Built::Yes).map(|k| k.name);
    let families = [
        "DscpToPriorityMappingTable_",
        "PriorityToDscpMappingTable_",
        "RroceDscpMarkPriorityFlowControl[",
        "DcqcnEnablePrio",
    ];
    let (members, built): (Vec<_>, Vec<_>) =
        built.partition(|name| families.iter().any(|f| name.starts_with(f)));
    assert_eq!(members.len(), 64 + 8 + 8 + 8);
    assert_eq!(
        built,
        [
            "AsyncReceiveIndicate",
            "RfdReservationFactor",
            "DelayDropTimeout",
            "mac-address-list",
            "RecvCompletionMethod",
            "SendCompletionMethod",
            "TxMaxPostSendsCoalescing",
            "ThreadedDpcEnable",
            "TxThreadedDpcEnable",
            "VlanID",
            "VlanPrio",
            "TxUntagPriorityTag",
            "roce_mode",
            "*NetworkDirect",
            "EceSupportEnabled",
            "EnableGpuDirect",
            "DcqcnClampTgtRate",
            "DcqcnClampTgtRateAfterTimeInc",
            "DcqcnCnpDscp",
            "DcqcnCnp802pPrio",
            "DcqcnCnpPrioMode",
            "DcqcnRpgTimeReset",
            "DcqcnRpgByteReset",
            "DcqcnRpgThreshold",
            "DcqcnRpgAiRate",
            "DcqcnRpgHaiRate",
            "DcqcnAlphaToRateShift",
            "DcqcnRpgMinDecFac",
            "DcqcnRpgMinRate",
            "DcqcnRateToSetOnFirstCnp",
            "DcqcnDceTcpG",
            "DcqcnDceTcpRtt",
            "DcqcnRateReduceMonitorPeriod",
            "DcqcnInitialAlphaValue",
            "AdpRetrans",
            "TxWindow",
            "SlowStart",
            "*FlowControl",
            "DefaultUntaggedPriority",
            "DcbxMode",
            "*QoSOffload",
            "*QosOffloadSupportedTCs",
            "SendQueuePerPrio",
            "RxUntaggedMapToLossless",
            "DscpBasedEtsEnabled",
            "DscpBasedpfcEnabled",
            "DscpForGlobalFlowControl",
            "RxTrustedState",
            "*WakeOnMagicPacket",
            "*WakeOnPattern",
            "*TCPChecksumOffloadIPv4",
            "*TCPChecksumOffloadIPv6",
            "*UDPChecksumOffloadIPv4",
            "*UDPChecksumOffloadIPv6",
            "*LsoV2IPv4",
            "*LsoV2IPv6",
            "*RSS",
            "*NumRSSQueues",
            "*RscIPv4",
            "*RscIPv6",
            "*UsoIPv4",
            "*UsoIPv6",
            "*EncapsulatedPacketTaskOffload",
            "*EncapsulatedPacketTaskOffloadVxlan",
            "*EncapsulatedPacketTaskOffloadNvgre",
            "*VxlanUDPPortNumber",
            "*PtpHardwareTimestamp",
            "CongestionMonitoringEnable",
            "CongestionAction",
            "CongestionMode",
            "TCHeadOfQueueLifeTimeLimit",
            "TCStallCount",
            "TCHeadOfQueueLifeTimeLimitEnable",
            "DeviceRxStallTimeout",
            "DeviceRxStallWatermark",
        ]
    );
}

#[test]
fn documented_fallbacks() {
    let fall_back: Vec<_> = KEYS
        .iter()
        .filter(|k| k.illegal == Illegal::Default)
        .map(|k| k.name)
        .collect();
    assert_eq!(
        fall_back,
        [
            "DelayDropTimeout",
            "DefaultUntaggedPriority",
            "RxUntaggedMapToLossless"
        ]
    );
    assert!(
        KEYS.iter()
            .filter(|k| k.illegal == Illegal::Default)
            .all(|k| k.apply == Apply::Dynamic)
    );
    let to_line_rate: Vec<_> = KEYS
        .iter()
        .filter(|k| k.illegal == Illegal::LineRate)
        .map(|k| k.name)
        .collect();
    assert_eq!(
        to_line_rate,
        [
            "DcqcnRpgAiRate",
            "DcqcnRpgHaiRate",
            "DcqcnRpgMinRate",
            "DcqcnRateToSetOnFirstCnp"
        ]
    );
    let for_driver: Vec<_> = KEYS
        .iter()
        .filter(|k| k.scopes.contains(Scopes::DRIVER))
        .map(|k| k.name)
        .collect();
    assert_eq!(for_driver, ["roce_mode"]);
    assert_eq!(row("AdpRetrans").place, Place::Tool("-ZtRoce"));
}

#[test]
fn drop_timeout() {
    let def = row("delaydroptimeout");
    for (text, number) in [("0", 0), (" 100 ", 100), ("0x32", 50), ("0X64", 100), ("007", 7)] {
        assert_eq!(
            def.check(&def.parse(text), LINE_RATE),
            Ok(Checked::Accepted(Value::Dword(number))),
            "{text}"
        );
    }
    for text in ["101", "-1", "+1", "", "0x", "5 ms", "4294967296", "fifty", "1.5"] {
        let checked = def.check(&def.parse(text), LINE_RATE).unwrap();
        assert_eq!(checked.value(), &Value::Dword(50), "{text}");
        let Checked::Fallback { why, .. } = checked else {
            panic!("{text} is accepted");
        };
        assert!(
            why.contains("DelayDropTimeout") && why.contains("0 to 100"),
            "{why}"
        );
    }
}

#[test]
fn rates_above_the_line_rate_store_the_line_rate() {
    let def = row("DcqcnRpgHaiRate");
    let above = def.check_value(&def.parse("100001"), LINE_RATE).unwrap_err();
    let Refusal::AboveLineRate { store, text } = above else {
        panic!("{above}");
    };
    assert_eq!(store, Value::Dword(LINE_RATE));
    assert!(text.contains("100000 Mbit/s"), "{text}");
    assert_eq!(
        def.check_value(&def.parse("100000"), LINE_RATE),
        Ok(Checked::Accepted(Value::Dword(LINE_RATE)))
    );
    for below in ["0", "fast"] {
        let refusal = def.check_value(&def.parse(below), LINE_RATE).unwrap_err();
        assert!(matches!(refusal, Refusal::NotAllowed { .. }), "{refusal}");
    }
}

#[test]
fn words_and_numbers() {
    let def = row("RecvCompletionMethod");
    for (text, number) in [("4", 4), ("NDIS poll", 4), ("ADAPTIVE", 1), ("0x0", 0)] {
        assert_eq!(def.parse(text), Value::Dword(number));
    }
    let refusal = def.check(&def.parse("2"), LINE_RATE).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "RecvCompletionMethod: 2 is not allowed; allowed: 0 (polling), 1 (adaptive), 4 (NDIS poll)"
    );
    assert_eq!(def.word(&Value::Dword(4)), Some("NDIS poll"));
    assert_eq!(def.word(&Value::Dword(2)), None);
}

#[test]
fn address_lists() {
    let def = row("mac-address-list");
    let macs = [
        MacAddr([2, 0, 0, 0, 0, 1]),
        MacAddr([0xa8, 0xcd, 0xef, 0xab, 0xcd, 0xe1]),
    ];
    let value = def.parse("02:00:00:00:00:01, A8-CD-EF-AB-CD-E1");
    assert_eq!(value, Value::Macs(macs.to_vec()));
    assert_eq!(def.format(&value), "02-00-00-00-00-01 A8-CD-EF-AB-CD-E1");
    assert_eq!(
        def.check(&def.parse(""), LINE_RATE),
        Ok(Checked::Accepted(Value::Macs(vec![])))
    );
    let many: Vec<_> = (0..129u8).map(|i| MacAddr([2, 0, 0, 0, 0, i])).collect();
    for bad in [
        def.parse("01:00:5e:00:00:01"),
        def.parse("00:00:00:00:00:00"),
        def.parse("ff:ff:ff:ff:ff:ff"),
        def.parse("02:00:00:00:00:01 02:00:00:00:00:01"),
        def.parse("02:00:00:00:00"),
        Value::Dword(1),
        Value::Macs(many),
    ] {
        assert!(
            matches!(def.check(&bad, LINE_RATE), Err(Refusal::NotAllowed { .. })),
            "{bad:?}"
        );
    }
}

#[test]
fn poll_mode_excludes_burst_handling() {
    for (recv, burst, fine) in [
        (1, 1, true),
        (4, 0, true),
        (4, 1, false),
        (4, 2, false),
        (0, 2, true),
    ] {
        let values = [("RecvCompletionMethod", recv), ("AsyncReceiveIndicate", burst)];
        assert_eq!(check_together(stored(&values)).is_ok(), fine, "{values:?}");
    }
    assert!(check_together(stored(&[("RecvCompletionMethod", 4)])).is_ok());
    let conflict = check_together(stored(&[
        ("RecvCompletionMethod", 4),
        ("AsyncReceiveIndicate", 1),
    ]))
    .unwrap_err();
    assert_eq!(
        (conflict.key, conflict.other),
        ("RecvCompletionMethod", "AsyncReceiveIndicate")
    );
    for (send, most, fine) in [(1, 256, true), (2, 32, true), (2, 33, false)] {
        let values = [("SendCompletionMethod", send), ("TxMaxPostSendsCoalescing", most)];
        assert_eq!(check_together(stored(&values)).is_ok(), fine, "{values:?}");
    }
    assert!(check_together(stored(&[("SendCompletionMethod", 2)])).is_ok());
    assert!(check_together(stored(&[("RecvCompletionMethod", 4), ("ThreadedDpcEnable", 1)])).is_err());
}

#[test]
fn congestion_keys_change_only_while_monitored() {
    for name in ["CongestionAction", "CongestionMode"] {
        assert!(check_change(name, stored(&[])).is_err());
        assert!(check_change(name, stored(&[("CongestionMonitoringEnable", 0)])).is_err());
        assert!(check_change(name, stored(&[("CongestionMonitoringEnable", 1)])).is_ok());
    }
    assert!(check_change("CongestionMonitoringEnable", stored(&[])).is_ok());
    assert!(check_change("no such key", stored(&[])).is_ok());
}

#[test]
fn adapter_wins_over_driver() {
    let (one, two) = (Value::Dword(0), Value::Dword(4));
    let of = |adapter, driver| effective("roce_mode", adapter, driver);
    assert_eq!(of(Some(&one), Some(&two)), (Some(one.clone()), Origin::Adapter));
    assert_eq!(of(None, Some(&two)), (Some(two.clone()), Origin::Driver));
    assert_eq!(of(None, None), (Some(Value::Dword(2)), Origin::Unset));
    assert_eq!(
        effective("VlanID", None, Some(&two)),
        (Some(Value::Dword(0)), Origin::Unset)
    );
    assert_eq!(
        effective("DelayDropTimeout", None, None),
        (Some(Value::Dword(0)), Origin::Unset)
    );
    assert_eq!(
        effective("*RscIPv4", None, None),
        (Some(Value::Dword(1)), Origin::Unset)
    );
    assert_eq!(effective("no such key", Some(&one), None), (None, Origin::Unset));
}

#[test]
fn nothing_stored_is_the_default() {
    assert_eq!(AdapterSettings::from_values(|_| None), AdapterSettings::default());
    for def in KEYS {
        // What acts while nothing is stored stands in the row, for people, and in the field, for the NIC.
        let field = def.get(&AdapterSettings::default());
        let chosen = settings::parameter(def.name).is_none() && def.kind != Kind::MacList { max: 128 };
        if chosen {
            assert_eq!(field, def.unset.map(Value::Dword), "{}", def.name);
        }
    }
}

#[test]
fn a_key_reads_back_what_it_set_and_touches_nothing_else() {
    let default = AdapterSettings::default();
    for def in KEYS.iter().filter(|def| def.built == Built::Yes) {
        let values: Vec<Value> = match def.kind {
            Kind::Dword { min, max } => vec![Value::Dword(min), Value::Dword(max)],
            Kind::Rate { min } => vec![Value::Dword(min), Value::Dword(LINE_RATE)],
            Kind::Enum(values) => values.iter().map(|(value, _)| Value::Dword(*value)).collect(),
            Kind::Bool => vec![Value::Dword(0), Value::Dword(1)],
            Kind::MacList { .. } => vec![
                Value::Macs(vec![]),
                Value::Macs(vec![MacAddr([2, 0, 0, 0, 0, 1])]),
            ],
            Kind::Text { .. } => panic!("{}: no field is text", def.name),
        };
        for value in values {
            let mut settings = default.clone();
            def.set(&mut settings, &value);
            assert_eq!(def.get(&settings), Some(value.clone()), "{}", def.name);
            for other in KEYS.iter().filter(|other| *other != def) {
                assert_eq!(
                    other.get(&settings),
                    other.get(&default),
                    "{} by {}",
                    other.name,
                    def.name
                );
            }
            // Copied alone, it is all that differs; and it is copied at once if and only if it is dynamic.
            let mut copy = default.clone();
            def.copy(&mut copy, &settings);
            assert_eq!(copy, settings, "{}", def.name);
            let at_once = default.at_once(&settings);
            let expected = if def.apply == Apply::Dynamic {
                &settings
            } else {
                &default
            };
            assert_eq!(&at_once, expected, "{}", def.name);
        }
    }
}

#[test]
fn stored_values_act() {
    let values = stored(&[
        ("AsyncReceiveIndicate", 2),
        ("RfdReservationFactor", 10_000),
        ("RecvCompletionMethod", 0),
        ("SendCompletionMethod", 2),
        ("TxMaxPostSendsCoalescing", 8),
        ("VlanID", 4094),
        ("VlanPrio", 7),
        ("TxUntagPriorityTag", 1),
        ("roce_mode", 4),
        ("*NetworkDirect", 0),
        ("DelayDropTimeout", 100),
    ]);
    let macs = vec![MacAddr([2, 0, 0, 0, 0, 9])];
    let lookup = |name: &str| match name {
        "mac-address-list" => Some(Value::Macs(macs.clone())),
        _ => values(name),
    };
    assert_eq!(
        AdapterSettings::from_values(lookup),
        AdapterSettings {
            burst: Burst::Poll,
            reserve: 10_000,
            recv_completion: RecvCompletion::Polling,
            send_completion: SendCompletion::NdisPoll,
            tx_coalescing: 8,
            vlan_id: 4094,
            vlan_prio: 7,
            tx_untag_priority_tag: true,
            delay_drop: DelayDrop { timeout: 100, act: 0 },
            macs: macs.clone(),
            roce_mode: RoceMode::Off,
            network_direct: false,
            ..AdapterSettings::default()
        }
    );
    // An older version may have stored what this one does not allow.
    let illegal = stored(&[
        ("VlanID", 4095),
        ("RecvCompletionMethod", 2),
        ("DelayDropTimeout", 1000),
        ("RfdReservationFactor", 0),
    ]);
    assert_eq!(AdapterSettings::from_values(&illegal), AdapterSettings::default());
}

/// What acts with these values of quality of service.
fn qos(values: &[(&str, u32)]) -> QosKeys {
    AdapterSettings::from_values(stored(values)).qos
}

#[test]
fn stored_values_of_quality_of_service_act() {
    for (value, tx, rx) in [
        (0, false, false),
        (1, true, false),
        (2, false, true),
        (3, true, true),
        (4, true, true),
    ] {
        let got = qos(&[("*FlowControl", value)]);
        let got = got.flow_control;
        assert_eq!((got.is_sent(), got.is_obeyed()), (tx, rx), "{value}");
    }
    let trusts = [Trust::Port, Trust::Pcp, Trust::Dscp, Trust::Both];
    for (value, trust) in (0..).zip(trusts) {
        assert_eq!(qos(&[("RxTrustedState", value)]).priorities.trust, trust);
    }
    let actions = [HintAction::Off, HintAction::Drop, HintAction::Mark];
    for (value, action) in (0..).zip(actions) {
        assert_eq!(qos(&[("CongestionAction", value)]).hint.action, action);
    }
    assert_eq!(qos(&[("CongestionMode", 0)]).hint.mode, HintMode::Aggressive);
    let got = qos(&[
        ("DefaultUntaggedPriority", 6),
        ("DscpBasedEtsEnabled", 1),
        ("DscpBasedpfcEnabled", 1),
        ("DscpForGlobalFlowControl", 46),
        ("RxUntaggedMapToLossless", 1),
        ("*QoSOffload", 0),
        ("*QosOffloadSupportedTCs", 0x0f),
        ("SendQueuePerPrio", 1),
        ("TCHeadOfQueueLifeTimeLimit", 10),
        ("TCStallCount", 2),
        ("TCHeadOfQueueLifeTimeLimitEnable", 0x81),
        ("DeviceRxStallTimeout", 500),
        ("DeviceRxStallWatermark", 100),
        ("CongestionMonitoringEnable", 1),
    ]);
    let expected = QosKeys {
        priorities: PriorityRules {
            trust: Trust::Pcp,
            default_priority: 6,
            untagged_to_lossless: true,
        },
        dscp_table: true,
        marks: MarkRules {
            dscp_by_priority: true,
            default_dscp: 46,
        },
        sending: SendRules {
            queue_per_priority: true,
            offload: false,
            offload_classes: 0x0f,
        },
        lifetimes: Lifetimes {
            limit: 10,
            stall_count: 2,
            enable: 0x81,
        },
        guard: Guard {
            minor_ms: 100,
            critical_ms: 500,
        },
        hint: HintSettings {
            enable: true,
            ..HintSettings::default()
        },
        ..QosKeys::default()
    };
    assert_eq!(got, expected);
    assert_eq!(got.acting_watermarks(), got.guard);
}

#[test]
fn tables_by_dscp_and_by_priority() {
    for dscp in 0..64usize {
        let name = format!("DscpToPriorityMappingTable_{dscp}");
        let wanted = (dscp as u32 + 3) % 8;
        let off = qos(&[(&name, wanted)]);
        assert_eq!(
            usize::from(off.acting_dscp_map()[dscp]),
            dscp / 8,
            "{name} does not count"
        );
        let on = qos(&[(&name, wanted), ("DscpBasedEtsEnabled", 1)]);
        let mut map = QosKeys::default().dscp_to_priority;
        map[dscp] = wanted as u8;
        assert_eq!(on.acting_dscp_map(), map, "{name}");
    }
    // The documented table, two rows of which differ from the static one.
    let documented = qos(&[("DscpBasedEtsEnabled", 1)]).acting_dscp_map();
    for (dscp, priority) in documented.iter().enumerate() {
        let expected = if matches!(dscp, 3 | 4) { dscp } else { dscp / 8 };
        assert_eq!(usize::from(*priority), expected, "DSCP {dscp}");
    }
    for priority in 0..8usize {
        let newer = format!("PriorityToDscpMappingTable_{priority}");
        let older = format!("RroceDscpMarkPriorityFlowControl[{priority}]");
        let of = |values: &[(&str, u32)]| qos(values).acting_priority_to_dscp()[priority];
        assert_eq!(usize::from(of(&[])), priority);
        assert_eq!(of(&[(&newer, 40)]), 40);
        assert_eq!(of(&[(&older, 50)]), 50);
        assert_eq!(of(&[(&newer, 40), (&older, 0)]), 0, "the older name wins");
    }
}

#[test]
fn watermarks_of_the_receive_path() {
    let of = |critical, minor| {
        let keys = qos(&[
            ("DeviceRxStallTimeout", critical),
            ("DeviceRxStallWatermark", minor),
        ]);
        let acting = keys.acting_watermarks();
        (acting.minor_ms, acting.critical_ms)
    };
    assert_eq!(qos(&[]).acting_watermarks(), Guard::default());
    assert_eq!(of(8000, 6800), (6800, 8000), "which is that");
    assert_eq!(of(0, 6800), (6800, 0), "never critical");
    assert_eq!(of(1, 0), (0, 80), "the least of the register");
    assert_eq!(of(1000, 6800), (850, 1000), "85 % where it would come too late");
    assert_eq!(of(80, 6800), (80, 80));
    assert_eq!(of(1000, 1), (80, 1000));
    assert_eq!(of(1000, 1000), (1000, 1000));
}

fn any_key() -> impl Strategy<Value = &'static KeyDef> {
    (0..KEYS.len()).prop_map(|i| &KEYS[i])
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u32>().prop_map(Value::Dword),
        (0u32..300).prop_map(Value::Dword),
        ".{0,40}".prop_map(Value::Text),
        "(0x)?[0-9a-f]{0,9}".prop_map(Value::Text),
        proptest::collection::vec(any::<[u8; 6]>().prop_map(MacAddr), 0..140).prop_map(Value::Macs),
    ]
}

proptest! {
    /// What is stored is always allowed itself, and is what its own text stands for.
    #[test]
    fn what_is_stored_is_allowed(def in any_key(), value in any_value(), line_rate in 1u32..) {
        let stored = match def.check_value(&value, line_rate) {
            Ok(checked) => {
                prop_assert_eq!(def.illegal == Illegal::Default || matches!(checked, Checked::Accepted(_)), true);
                checked.value().clone()
            }
            Err(Refusal::AboveLineRate { store, .. }) => {
                prop_assert_eq!(def.illegal, Illegal::LineRate);
                store
            }
            Err(Refusal::NotAllowed { text }) => {
                prop_assert!(text.contains(def.name) && text.contains(&def.allowed()));
                return Ok(());
            }
            Err(Refusal::NotBuilt(_)) => unreachable!("check_value does not look at it"),
        };
        prop_assert_eq!(def.check_value(&stored, line_rate), Ok(Checked::Accepted(stored.clone())));
        prop_assert_eq!(def.parse(&def.format(&stored)), stored);
    }

    /// A number counts the same as `REG_DWORD`, as decimal and as hexadecimal text.
    #[test]
    fn types_of_numbers_do_not_matter(def in any_key(), number in any::<u32>(), line_rate in 1u32..) {
        if matches!(def.kind, Kind::MacList { .. } | Kind::Text { .. }) {
            return Ok(());
        }
        let answer = def.check_value(&Value::Dword(number), line_rate);
        for text in [number.to_string(), format!("0x{number:x}"), format!(" 0X{number:08X} ")] {
            prop_assert_eq!(&def.check_value(&Value::Text(text.clone()), line_rate), &answer);
            prop_assert_eq!(def.parse(&text), Value::Dword(number));
        }
    }

    /// A key that is not built refuses everything, and says what it waits for.
    #[test]
    fn unbuilt_keys_take_nothing(def in any_key(), value in any_value()) {
        match def.built {
            Built::Yes => prop_assert_eq!(def.check(&value, LINE_RATE), def.check_value(&value, LINE_RATE)),
            Built::No(what) => prop_assert_eq!(def.check(&value, LINE_RATE), Err(Refusal::NotBuilt(what))),
        }
    }

    /// Whatever is stored, legal or not: an answer, and only legal settings.
    #[test]
    fn any_store_gives_legal_settings(values in proptest::collection::btree_map(0..KEYS.len(), any_value(), 0..40)) {
        let lookup = |name: &str| {
            let at = KEYS.iter().position(|k| k.name == name)?;
            values.get(&at).cloned()
        };
        let got = AdapterSettings::from_values(lookup);
        prop_assert!((1..=5_000_000).contains(&got.reserve));
        prop_assert!((1..=256).contains(&got.tx_coalescing));
        prop_assert!(got.vlan_id <= 4094 && got.vlan_prio <= 7);
        let qos = &got.qos;
        prop_assert!(qos.priorities.default_priority < 8 && qos.marks.default_dscp < 64);
        prop_assert!(qos.acting_dscp_map().iter().all(|p| *p < 8));
        prop_assert!(qos.acting_priority_to_dscp().iter().all(|d| *d < 64));
        prop_assert!(qos.lifetimes.limit <= 20 && qos.lifetimes.stall_count <= 7);
        let acting = qos.acting_watermarks();
        let (minor, critical) = (acting.minor_ms, acting.critical_ms);
        prop_assert!(critical == 0 || ((80..=8000).contains(&critical) && minor <= critical));
        prop_assert!(got.delay_drop.timeout <= 100);
        prop_assert!(check_together(lookup).is_ok() || !values.is_empty());
        for def in KEYS {
            let _ = check_change(def.name, lookup);
        }
    }
}

/// The rows of a table with a heading; a cell with commas is quoted.
fn rows(csv: &'static str) -> Vec<BTreeMap<&'static str, String>> {
    let cells = |line: &str| {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().expect("never empty").push(c),
            }
        }
        cells
    };
    let mut lines = csv.lines();
    let heading: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    lines
        .map(|line| heading.iter().copied().zip(cells(line)).collect())
        .collect()
}

/// Every row of the catalog that comes from the WinOF-2 text is a key of the table with the range, the default and the
/// behaviour of the catalog, or is left out for the reason that stands there.
#[test]
fn nothing_of_the_catalog_is_forgotten() {
    let rows = rows(include_str!("../data/seed_keys.csv"));
    assert_eq!(rows.len(), 171);
    let mut found = BTreeSet::new();
    for cells in &rows {
        let catalog = &cells["catalog"];
        assert_ne!(
            cells["keys"].is_empty(),
            cells["left_out"].is_empty(),
            "{catalog}"
        );
        for name in cells["keys"].split(' ').filter(|n| !n.is_empty()) {
            let def = row(name);
            assert!(def.name == name || def.aliases.contains(&name), "{name}");
            found.insert(def.name);
            let (min, max) = match def.kind {
                Kind::Dword { min, max } => (min.to_string(), max.to_string()),
                Kind::Rate { min } => (min.to_string(), "line rate".to_owned()),
                Kind::Enum(values) => {
                    let numbers: Vec<u32> = values.iter().map(|(n, _)| *n).collect();
                    let end = |n: Option<&u32>| n.map_or(String::new(), u32::to_string);
                    (end(numbers.iter().min()), end(numbers.iter().max()))
                }
                Kind::Bool => ("0".to_owned(), "1".to_owned()),
                Kind::MacList { .. } | Kind::Text { .. } => (String::new(), String::new()),
            };
            let check = |column: &str, ours: String| {
                let theirs = &cells[column];
                // What a document does not say was decided; the row's note says how.
                if !theirs.is_empty() && *theirs != ours && !DECIDED.contains(&(name, column)) {
                    panic!("{name}: {column} is {ours}, in the catalog {theirs}");
                }
            };
            check("min", min);
            check("max", max);
            check("default", def.default.map_or(String::new(), |d| d.to_string()));
            check(
                "apply",
                if def.apply == Apply::Dynamic {
                    "dynamic"
                } else {
                    "restart"
                }
                .to_owned(),
            );
            check(
                "illegal",
                match def.illegal {
                    Illegal::Default => "default",
                    Illegal::LineRate => "line rate",
                    Illegal::Reject => "",
                }
                .to_owned(),
            );
        }
    }
    let more: Vec<_> = KEYS
        .iter()
        .map(|k| k.name)
        .filter(|name| !found.contains(name))
        .collect();
    assert_eq!(more, Vec::<&str>::new(), "keys that are not in the catalog");
}

/// Where the table differs from the catalog on purpose; the row's note says why.
const DECIDED: &[(&str, &str)] = &[
    // The catalog has the limit with NDIS poll, which is a rule here.
    ("TxMaxPostSendsCoalescing", "max"),
    // 0 switches these two off; the catalog has the least of the register.
    ("DeviceRxStallTimeout", "min"),
    ("DeviceRxStallWatermark", "min"),
    // Port and both are ours.
    ("RxTrustedState", "min"),
    ("RxTrustedState", "max"),
];
