//! The agent of subnet administration, beside OpenSM's, and what it refuses.

use vnic_fabric::subnet::{Agent, GroupError, GroupSpec, Groups, Policy, Port, parse};
use vnic_wire::gid::Gid;
use vnic_wire::mad;
use vnic_wire::sa::{
    Bound, ClassPortInfo, McMemberRecord as Mc, MultiPathRecord as Multi, PathRecord as Pr, Rmpp, RmppType,
    SaMad, Selector, attribute, method, status,
};

use super::subnet::ports;

/// The port of the first server of `tests/opensm/record`, which asks.
const ASKER: usize = 0;

fn gid(guid: u64) -> Gid {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&guid.to_be_bytes());
    Gid(gid)
}

/// Port GUID of a link-local GID.
fn find(gid: Gid) -> Option<u64> {
    let (prefix, guid) = gid.0.split_at(8);
    let known = prefix == [0xfe, 0x80, 0, 0, 0, 0, 0, 0];
    known.then(|| u64::from_be_bytes(guid.try_into().expect("8 bytes")))
}

fn group(pkey: u16, sl: u8) -> GroupSpec {
    GroupSpec {
        mgid: GroupSpec::broadcast_gid(pkey),
        pkey,
        qkey: 0xb1b,
        mtu: 4,
        rate: 3,
        packet_life: 18,
        sl,
    }
}

/// The groups of `tests/opensm/partitions.conf`.
fn groups() -> Groups {
    let mut groups = Groups::default();
    groups.create("Default", group(0xffff, 0)).expect("it is right");
    groups.create("Blue", group(0x8123, 12)).expect("it is right");
    groups
}

fn policy() -> Policy {
    parse(include_str!("../opensm/full.conf")).expect("OpenSM takes it")
}

/// The segments of the agent's answer to a port.
fn all_to(asker: usize, groups: &mut Groups, question: &SaMad) -> Option<Vec<SaMad>> {
    let (policy, ports) = (policy(), ports());
    let mut agent = Agent {
        policy: Some(&policy),
        ports: &ports,
        find: &find,
        groups,
    };
    agent.answer(asker, question)
}

/// The agent's answer to a port, of one datagram.
fn answer_to(asker: usize, groups: &mut Groups, question: &SaMad) -> Option<SaMad> {
    all_to(asker, groups, question).map(only)
}

fn only(segments: Vec<SaMad>) -> SaMad {
    assert_eq!(segments.len(), 1, "segments");
    segments[0]
}

/// Records of an answer of several segments.
fn long<const N: usize>(question: &SaMad) -> Vec<[u8; N]> {
    let segments = all_to(ASKER, &mut groups(), question).expect("an answer");
    assert!(segments.len() > 1);
    assert!(segments.iter().all(|segment| segment.status == status::OK));
    let payload: Vec<_> = segments.iter().flat_map(SaMad::payload).copied().collect();
    segments[0].records(&payload).copied().collect()
}

fn answer(question: &SaMad) -> SaMad {
    answer_to(ASKER, &mut groups(), question).expect("an answer")
}

/// Status of the answer.
fn refused(question: &SaMad) -> u16 {
    let answer = answer(question);
    assert_eq!(answer.transaction, question.transaction);
    assert_ne!(answer.method & method::RESPONSE, 0);
    answer.status
}

fn asked<const N: usize>(method: u8, attribute: u16, component_mask: u64, record: [u8; N]) -> SaMad {
    SaMad {
        component_mask,
        ..SaMad::new(method, attribute, 0x5a).with(record)
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len() / 2).map(|i| hex.get(2 * i..2 * i + 2).expect("ASCII"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
        .collect()
}

/// A datagram of a recording: zeros at its end are left out there.
fn read(hex: &str) -> (SaMad, Vec<u8>) {
    let short = bytes(hex);
    let mut whole = short.clone();
    whole.resize(mad::LEN, 0);
    (SaMad::parse(&whole).expect("a datagram"), short)
}

/// Records of OpenSM's answer: the simulator's header of RMPP says nothing of their number.
fn recorded<const N: usize>(answer: &SaMad, short: &[u8]) -> Vec<[u8; N]> {
    let distance = usize::from(answer.attribute_offset) * 8;
    let records = short.get(56..).unwrap_or_default().chunks(distance.max(1));
    records
        .filter_map(|record| record.first_chunk().copied())
        .collect()
}

/// What is compared of a path: RoCE has no LIDs, and OpenSM repeats the query's bit of full members.
fn path(bytes: &[u8; Pr::LEN]) -> Pr {
    let read = Pr::parse(bytes).expect("a record");
    Pr {
        dlid: 0,
        slid: 0,
        pkey: read.pkey & 0x7fff,
        ..read
    }
}

#[test]
fn answers_are_those_of_opensm() {
    let mut lines = include_str!("../opensm/mads.txt").lines();
    let mut compared = 0;
    while let (Some(query), Some(request), Some(response)) = (lines.next(), lines.next(), lines.next()) {
        let (question, _) = read(request.strip_prefix("request: ").expect("a question"));
        let (theirs, short) = read(response.strip_prefix("response: ").expect("an answer"));
        let ours = answer(&question);
        let header = |mad: &SaMad| (mad.method, mad.attribute, mad.transaction, mad.component_mask);
        assert_eq!(header(&ours), header(&theirs), "{query}");
        compared += 1;
        // OpenSM looks at the value where the best is asked for, and 0 is no code.
        if query.contains("--mtu 0xc0") || query.contains("--rate 0xc0") {
            assert_eq!(
                (theirs.status, ours.status),
                (status::REQ_INVALID, status::OK),
                "{query}"
            );
            continue;
        }
        assert_eq!(ours.status, theirs.status, "{query}");
        // OpenSM gives groups whose lifetime is not longer, too.
        if query == "MCMR --pkt_lifetime 0x12" {
            assert_eq!(
                (ours.table::<52>().count(), recorded::<52>(&theirs, &short).len()),
                (0, 2)
            );
            continue;
        }
        match question.attribute {
            attribute::CLASS_PORT_INFO => {
                let [ours, theirs] =
                    [ours, theirs].map(|mad| ClassPortInfo::parse(&mad.data).expect("it is there"));
                assert_eq!(ours.capabilities2 & theirs.capabilities2, ClassPortInfo::QOS);
                assert_ne!(
                    ours.capabilities & theirs.capabilities & ClassPortInfo::UD_MULTICAST,
                    0
                );
            }
            attribute::PATH_RECORD => {
                let theirs: Vec<_> = recorded(&theirs, &short).iter().map(path).collect();
                assert_eq!(ours.table().map(path).collect::<Vec<_>>(), theirs, "{query}");
            }
            _ => {
                let read = |bytes: &[u8; Mc::LEN]| Mc::parse(bytes).expect("a record");
                let theirs: Vec<_> = recorded(&theirs, &short).iter().map(read).collect();
                assert_eq!(ours.table().map(read).collect::<Vec<_>>(), theirs, "{query}");
            }
        }
    }
    assert!(compared > 60, "{compared}");
}

/// A question for the path to a port, with other components besides.
fn path_to(method: u8, guid: u64, components: u64, record: Pr) -> SaMad {
    let to = Pr {
        dgid: gid(guid),
        ..record
    };
    asked(method, attribute::PATH_RECORD, Pr::DGID | components, to.emit())
}

#[test]
fn get_answers_one_record_or_says_why_not() {
    let one = answer(&path_to(method::GET, 0x10_0005, 0, Pr::default()));
    assert_eq!((one.method, one.status, one.rmpp), (0x81, status::OK, Rmpp::NONE));
    let record = Pr::parse(&one.data).expect("a record");
    // Without a source it is the path of the one who asks.
    assert_eq!((record.sgid, record.pkey, record.sl), (gid(0x10_0001), 0x8123, 1));
    let all = |method| asked(method, attribute::PATH_RECORD, 0, [0; Pr::LEN]);
    assert_eq!(refused(&all(method::GET)), status::TOO_MANY_RECORDS);
    // Four paths are more than a datagram takes.
    let paths: Vec<_> = long(&all(method::GET_TABLE)).iter().map(path).collect();
    let to: Vec<_> = paths.iter().map(|path| path.dgid).collect();
    assert_eq!(to, [0x10_0001, 0x10_0003, 0x10_0005, 0x10_0007].map(gid));
    assert!(paths.iter().all(|path| path.sgid == gid(0x10_0001)));
    let none = Pr {
        pkey: 0x8abc,
        ..Pr::default()
    };
    assert_eq!(
        refused(&path_to(method::GET, 0x10_0005, Pr::PKEY, none)),
        status::NO_RECORDS
    );
    assert_eq!(
        refused(&path_to(method::GET, 0x10_0099, 0, Pr::default())),
        status::NO_RECORDS
    );
    let lid = Pr {
        dlid: 4,
        ..Pr::default()
    };
    assert_eq!(
        refused(&path_to(method::GET, 0x10_0005, Pr::DLID, lid)),
        status::NO_RECORDS
    );
}

#[test]
fn what_is_not_known_has_a_status() {
    let get = |components| refused(&path_to(method::GET, 0x10_0005, components, Pr::default()));
    for component in [1 << 7, 1 << 23, 1 << 63, 1, 2] {
        assert_eq!(get(component), status::REQ_INVALID, "component {component:#x}");
    }
    let bound = Pr {
        mtu: Bound::exactly(6),
        rate: Bound::exactly(1),
        ..Pr::default()
    };
    for components in [Pr::MTU | Pr::MTU_SELECTOR, Pr::RATE | Pr::RATE_SELECTOR] {
        let question = path_to(method::GET, 0x10_0005, components, bound);
        assert_eq!(refused(&question), status::REQ_INVALID);
    }
    for (method, attribute, wanted) in [
        (
            method::SET,
            attribute::PATH_RECORD,
            status::BAD_METHOD_FOR_ATTRIBUTE,
        ),
        (
            method::GET,
            attribute::MULTI_PATH_RECORD,
            status::BAD_METHOD_FOR_ATTRIBUTE,
        ),
        (
            method::GET_TABLE,
            attribute::CLASS_PORT_INFO,
            status::BAD_METHOD_FOR_ATTRIBUTE,
        ),
        // NodeRecord.
        (method::GET, 0x11, status::BAD_METHOD_FOR_ATTRIBUTE),
        (0x03, attribute::PATH_RECORD, status::BAD_METHOD),
        (0x7f, 0x11, status::BAD_METHOD),
    ] {
        assert_eq!(
            refused(&SaMad::new(method, attribute, 9)),
            wanted,
            "{method:#x} {attribute:#x}"
        );
    }
    let mut question = path_to(method::GET, 0x10_0005, 0, Pr::default());
    question.class_version = 1;
    assert_eq!(refused(&question), status::BAD_VERSION);
}

#[test]
fn what_is_no_question_has_no_answer() {
    let question = path_to(method::GET, 0x10_0005, 0, Pr::default());
    let silent = |change: fn(&mut SaMad)| {
        let mut question = question;
        change(&mut question);
        answer_to(ASKER, &mut groups(), &question)
    };
    assert!(silent(|_| {}).is_some());
    assert_eq!(silent(|mad| mad.method |= method::RESPONSE), None);
    assert_eq!(silent(|mad| mad.rmpp.kind = RmppType::ACK), None);
    assert_eq!(silent(|mad| mad.rmpp.kind = RmppType::ABORT), None);
    // Who says to be a manager is none.
    assert_eq!(silent(|mad| mad.sm_key = 1), None);
    assert_eq!(answer_to(9, &mut groups(), &question), None);
    // The first of several segments.
    let part = silent(|mad| {
        mad.rmpp = Rmpp::data(1, 2);
    });
    assert_eq!(part.map(|mad| mad.status), Some(status::NO_RESOURCES));
}

#[test]
fn who_shares_no_partition_with_a_port_does_not_hear_of_it() {
    let (policy, mut ports) = (policy(), ports());
    ports[2].pkeys = &[0x8123];
    ports[3].pkeys = &[0x0123];
    let to = |asker: usize, guid| {
        let mut agent = Agent {
            policy: Some(&policy),
            ports: &ports,
            find: &find,
            groups: &mut Groups::default(),
        };
        let question = path_to(method::GET, guid, 0, Pr::default());
        only(agent.answer(asker, &question).expect("an answer")).status
    };
    // Full members and limited ones of the partition, two limited ones, and one that is in the default partition only.
    assert_eq!(
        [to(0, 0x10_0005), to(3, 0x10_0005), to(3, 0x10_0003)],
        [status::OK, status::OK, status::NO_RECORDS]
    );
    assert_eq!(to(1, 0x10_0007), status::NO_RECORDS);
}

#[test]
fn paths_between_several_ports_are_asked_for_at_once() {
    let question = |counts, guids: &[u64], components, of: Multi| {
        let mut record = Multi { counts, ..of };
        for (slot, guid) in record.gids.iter_mut().zip(guids) {
            *slot = gid(*guid);
        }
        let mask = Multi::SOURCES | Multi::DESTINATIONS | components;
        asked(
            method::GET_MULTI,
            attribute::MULTI_PATH_RECORD,
            mask,
            record.emit(),
        )
    };
    let ends = [0x10_0001, 0x10_0003, 0x10_0005];
    let found = answer(&question([1, 2], &ends, Multi::GIDS, Multi::default()));
    assert_eq!(
        (found.method, found.attribute, found.status),
        (0x94, attribute::MULTI_PATH_RECORD, status::OK)
    );
    let found: Vec<_> = found
        .table()
        .map(path)
        .map(|record| (record.sgid, record.dgid))
        .collect();
    assert_eq!(
        found,
        [(gid(ends[0]), gid(ends[1])), (gid(ends[0]), gid(ends[2]))]
    );
    let class = Multi {
        qos_class: 7,
        ..Multi::default()
    };
    let fast = answer(&question([1, 1], &ends[1..], Multi::QOS_CLASS, class));
    assert_eq!(
        fast.table().map(path).map(|record| record.sl).collect::<Vec<_>>(),
        [3]
    );
    for (counts, wanted) in [
        ([2, 2], status::REQ_INVALID_GID),
        ([0, 1], status::REQ_INVALID),
        ([9, 9], status::REQ_INVALID),
    ] {
        assert_eq!(
            refused(&question(counts, &ends, 0, Multi::default())),
            wanted,
            "{counts:?}"
        );
    }
    let mut uncounted = question([1, 1], &ends, 0, Multi::default());
    uncounted.component_mask = Multi::SOURCES;
    assert_eq!(refused(&uncounted), status::INSUFFICIENT_COMPONENTS);
    assert_eq!(
        refused(&question([1, 1], &ends, 1 << 18, Multi::default())),
        status::REQ_INVALID
    );
    // Every server to every target: more than a datagram takes.
    let all = [0x10_0001, 0x10_0003, 0x10_0005, 0x10_0007];
    let found = long(&question([2, 2], &all, 0, Multi::default()));
    let found: Vec<_> = found
        .iter()
        .map(path)
        .map(|path| [path.sgid, path.dgid])
        .collect();
    let pairs = [[0, 2], [0, 3], [1, 2], [1, 3]].map(|pair| pair.map(|n| gid(all[n])));
    assert_eq!(found, pairs);
}

const JOIN: u64 = Mc::MGID | Mc::PORT_GID | Mc::JOIN_STATE;

/// A join of the default group, or a leave.
fn join(method: u8, guid: u64, join_state: u8, components: u64, of: Mc) -> SaMad {
    let record = Mc {
        mgid: GroupSpec::broadcast_gid(0xffff),
        port_gid: gid(guid),
        join_state,
        ..of
    };
    asked(
        method,
        attribute::MCMEMBER_RECORD,
        JOIN | components,
        record.emit(),
    )
}

#[test]
fn a_port_joins_a_group_and_leaves_it() {
    let mut groups = groups();
    let mut say = |question: &SaMad| answer_to(ASKER, &mut groups, question).expect("an answer");
    let joined = say(&join(method::SET, 0x10_0001, Mc::FULL_MEMBER, 0, Mc::default()));
    assert_eq!((joined.method, joined.status), (0x81, status::OK));
    let record = Mc::parse(&joined.data).expect("a record");
    assert_eq!(
        (record.qkey, record.mtu, record.scope),
        (0xb1b, Bound::exactly(4), 2)
    );
    assert_eq!((record.port_gid, record.join_state), (gid(0x10_0001), 1));
    // Another state is added.
    let again = say(&join(method::SET, 0x10_0001, Mc::SEND_ONLY, 0, Mc::default()));
    assert_eq!(Mc::parse(&again.data).map(|record| record.join_state), Ok(5));
    // The own membership can be asked for.
    let mine = Mc {
        port_gid: gid(0x10_0001),
        ..Mc::default()
    };
    let own = asked(method::GET, attribute::MCMEMBER_RECORD, Mc::PORT_GID, mine.emit());
    assert_eq!(Mc::parse(&say(&own).data).map(|record| record.join_state), Ok(5));
    let leave = |state| join(method::DELETE, 0x10_0001, state, 0, Mc::default());
    assert_eq!(say(&leave(Mc::NON_MEMBER)).status, status::REQ_INVALID);
    let left = say(&leave(Mc::FULL_MEMBER));
    assert_eq!((left.method, left.status), (0x95, status::OK));
    assert_eq!(say(&leave(Mc::SEND_ONLY)).status, status::OK);
    assert_eq!(say(&leave(Mc::SEND_ONLY)).status, status::REQ_INVALID);
    assert_eq!(say(&own).status, status::NO_RECORDS);
    assert!(groups.iter().all(|(_, group)| group.members.is_empty()));
}

#[test]
fn a_join_has_to_be_right() {
    let full = Mc::FULL_MEMBER;
    let set = |guid, state, components, of| refused(&join(method::SET, guid, state, components, of));
    let none = Mc::default();
    // Of another port, of nobody, for somebody else.
    assert_eq!(set(0x10_0003, full, 0, none), status::REQ_DENIED);
    let proxy = Mc {
        proxy_join: true,
        ..none
    };
    assert_eq!(set(0x10_0001, full, Mc::PROXY_JOIN, proxy), status::REQ_DENIED);
    for state in [0, 8, 9] {
        assert_eq!(set(0x10_0001, state, 0, none), status::REQ_INVALID);
    }
    assert_eq!(set(0x10_0001, full, 1 << 18, none), status::REQ_INVALID);
    for component in [Mc::MGID, Mc::PORT_GID, Mc::JOIN_STATE] {
        let mut question = join(method::SET, 0x10_0001, full, 0, none);
        question.component_mask &= !component;
        assert_eq!(refused(&question), status::INSUFFICIENT_COMPONENTS);
    }
    // Nobody but the operator makes groups.
    let other = Mc {
        mgid: Gid([0xff; 16]),
        ..none
    };
    let mut question = join(method::SET, 0x10_0001, full, 0, none);
    question = question.with(
        Mc {
            port_gid: gid(0x10_0001),
            join_state: 1,
            ..other
        }
        .emit(),
    );
    assert_eq!(refused(&question), status::REQ_DENIED);
    // Components have to be those of the group; bounds have to hold.
    let bound = |selector, value| Bound { selector, value };
    let mtu = Mc::MTU | Mc::MTU_SELECTOR;
    for (components, of, wanted) in [
        (Mc::QKEY, Mc { qkey: 0xb1b, ..none }, status::OK),
        (Mc::QKEY, none, status::REQ_INVALID),
        (Mc::PKEY, Mc { pkey: 0x7fff, ..none }, status::OK),
        (Mc::PKEY, Mc { pkey: 0x8123, ..none }, status::REQ_INVALID),
        (Mc::SL, Mc { sl: 1, ..none }, status::REQ_INVALID),
        (Mc::SCOPE, Mc { scope: 5, ..none }, status::REQ_INVALID),
        (Mc::MLID, Mc { mlid: 0xc000, ..none }, status::OK),
        (Mc::MLID, Mc { mlid: 0xc001, ..none }, status::REQ_INVALID),
        (
            mtu,
            Mc {
                mtu: bound(Selector::Greater, 3),
                ..none
            },
            status::OK,
        ),
        (
            mtu,
            Mc {
                mtu: bound(Selector::Greater, 4),
                ..none
            },
            status::REQ_INVALID,
        ),
        (
            mtu,
            Mc {
                mtu: bound(Selector::Less, 5),
                ..none
            },
            status::OK,
        ),
        (
            mtu,
            Mc {
                mtu: bound(Selector::Exactly, 3),
                ..none
            },
            status::REQ_INVALID,
        ),
        (
            Mc::RATE | Mc::RATE_SELECTOR,
            Mc {
                rate: bound(Selector::Less, 3),
                ..none
            },
            status::REQ_INVALID,
        ),
        (
            Mc::RATE | Mc::RATE_SELECTOR,
            Mc {
                rate: bound(Selector::Best, 0),
                ..none
            },
            status::OK,
        ),
    ] {
        assert_eq!(
            set(0x10_0001, full, components, of),
            wanted,
            "{components:#x} {of:?}"
        );
    }
}

#[test]
fn only_ports_with_the_partition_and_the_means_join() {
    let (policy, mut ports) = (policy(), ports());
    ports[0].pkeys = &[0x0123];
    let join = |change: fn(&mut Port<'_>), spec: GroupSpec| {
        let mut ports = ports.clone();
        change(&mut ports[0]);
        let record = Mc {
            mgid: spec.mgid,
            port_gid: gid(0x10_0001),
            join_state: 1,
            ..Mc::default()
        };
        let mut groups = Groups::default();
        groups.create("one", spec).expect("it is right");
        let mut agent = Agent {
            policy: Some(&policy),
            ports: &ports,
            find: &find,
            groups: &mut groups,
        };
        let question = asked(method::SET, attribute::MCMEMBER_RECORD, JOIN, record.emit());
        only(agent.answer(0, &question).expect("an answer")).status
    };
    // A limited member speaks with full ones.
    assert_eq!(join(|_| {}, group(0x8123, 0)), status::OK);
    assert_eq!(join(|_| {}, group(0x0123, 0)), status::REQ_DENIED);
    assert_eq!(join(|_| {}, group(0xffff, 0)), status::REQ_DENIED);
    assert_eq!(join(|port| port.mtu = 3, group(0x8123, 0)), status::REQ_INVALID);
    assert_eq!(join(|port| port.rate = 2, group(0x8123, 0)), status::REQ_INVALID);
}

#[test]
fn a_group_is_made_once_with_values_in_their_ranges() {
    let mut groups = groups();
    let blue = group(0x8123, 12);
    let error =
        |groups: &Groups, name: &str, spec: &GroupSpec| groups.check(name, spec).expect_err("it is wrong");
    assert_eq!(
        error(&groups, "Blue", &group(0x8001, 0)),
        GroupError::Exists("Blue".into())
    );
    assert_eq!(
        error(&groups, "Red", &blue),
        GroupError::Taken(blue.mgid, "Blue".into())
    );
    let red = group(0x8002, 0);
    for (spec, field) in [
        (
            GroupSpec {
                mgid: gid(1),
                ..red.clone()
            },
            "mgid",
        ),
        (
            GroupSpec {
                pkey: 0x8000,
                ..red.clone()
            },
            "pkey",
        ),
        (
            GroupSpec {
                qkey: 1 << 31,
                ..red.clone()
            },
            "qkey",
        ),
        (
            GroupSpec {
                mtu: 0,
                ..red.clone()
            },
            "mtu",
        ),
        (
            GroupSpec {
                rate: 25,
                ..red.clone()
            },
            "rate",
        ),
        (
            GroupSpec {
                packet_life: 64,
                ..red.clone()
            },
            "packet_life",
        ),
        (
            GroupSpec {
                sl: 16,
                ..red.clone()
            },
            "sl",
        ),
    ] {
        assert_eq!(error(&groups, "Red", &spec).field(), Some(field));
    }
    // Numbers of groups that are gone are given again.
    assert!(groups.remove("Default") && !groups.remove("Default"));
    groups.create("Red", red).expect("it is right");
    let lids: Vec<_> = groups
        .iter()
        .map(|(name, group)| (name.to_owned(), group.mlid))
        .collect();
    assert_eq!(lids, [("Blue".into(), 0xc001), ("Red".into(), 0xc000)]);
}
