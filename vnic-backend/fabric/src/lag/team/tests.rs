use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use expect_test::expect;
use proptest::prelude::*;

use super::*;

fn new(name: &str, guid: u128, kind: TeamType) -> NewTeam {
    NewTeam {
        name: name.into(),
        guid,
        kind,
        no_failback: false,
        ipoib: false,
    }
}

fn member(n: u8) -> NewMember {
    NewMember {
        adapter: format!("vf{n}"),
        mac: MacAddr([2, 0, 0, 0, 0, n]),
        primary: false,
        set_team_mac: false,
    }
}

fn primary(n: u8) -> NewMember {
    NewMember {
        primary: true,
        ..member(n)
    }
}

/// VF LAG hashes the five-tuple, of the inner packet where there is a tunnel.
#[test]
fn nothing_said_is_the_five_tuple() {
    assert_eq!(Policy::default(), Policy::FiveTuple);
    let Mode::Aggregate { policy, lacp } = BondSettings::default().mode else {
        panic!("an aggregate is the default");
    };
    assert_eq!((policy, lacp), (Policy::FiveTuple, false));
}

/// The steps of the manual's example, with a failover team.
#[test]
fn a_life() {
    let mut teams = Teams::default();
    let no_failback = NewTeam {
        no_failback: true,
        ..new("MyTeam", 1, TeamType::Failover)
    };
    assert_eq!(teams.create(no_failback).map(|t| t.members.len()), Ok(0));
    teams.attach("MyTeam", member(2)).unwrap();
    teams.attach("myteam", primary(1)).unwrap();
    let team = teams.query("MYTEAM").unwrap();
    assert_eq!((team.kind.name(), team.mac), ("Failover", Some(member(2).mac)));
    let bond = team.bond(Policy::Layer34, BondSettings::default());
    let mode = Mode::ActiveBackup {
        primary: Some(Member(1)),
        failback: false,
    };
    assert_eq!(bond.mode, mode);
    assert_eq!(bond.check(team.members.len()), Ok(()));
    assert_eq!(teams.team_of("vf1").map(|t| t.guid), Some(1));
    let team = teams.detach("MyTeam", "vf2").unwrap();
    assert_eq!(team.mac, Some(member(2).mac), "neighbours know it");
    let team = teams.detach("MyTeam", "vf1").unwrap();
    assert_eq!((team.mac, team.members.len()), (None, 0));
    assert_eq!(teams.remove("MyTeam").map(|t| t.name), Ok("MyTeam".to_string()));
    assert_eq!(teams, Teams::default());
}

#[test]
fn a_team_of_before() {
    let mut teams = Teams::default();
    teams.create(new("MyTeam", 7, TeamType::Failover)).unwrap();
    for m in [primary(1), member(2), member(3)] {
        teams.attach("MyTeam", m).unwrap();
    }
    teams.detach("MyTeam", "vf1").unwrap();
    teams.set_vlan("MyTeam", 5, 3).unwrap();
    teams.set_no_failback("MyTeam", true).unwrap();
    let before = teams.query("MyTeam").unwrap().clone();
    assert_eq!(before.mac, Some(member(1).mac));
    let mut again = Teams::default();
    assert_eq!(again.restore(before.clone()), Ok(&before));
    assert_eq!(again, teams);
    // What is taken stays taken, and nothing is left of what was refused.
    let other = Team {
        name: "Other".into(),
        guid: 8,
        ..before
    };
    assert_eq!(again.restore(other).unwrap_err().field, "adapter");
    assert_eq!(again, teams);
    teams.create(new("A", 1, TeamType::Aggregate)).unwrap();
    assert_eq!(
        teams.set_no_failback("A", true).unwrap_err().field,
        "no_failback_to_primary"
    );
    assert!(teams.set_no_failback("A", false).is_ok());
}

#[test]
fn an_aggregate_and_its_address() {
    let mut teams = Teams::default();
    teams.create(new("A", 1, TeamType::Aggregate)).unwrap();
    teams.attach("A", member(1)).unwrap();
    let with_mac = NewMember {
        set_team_mac: true,
        ..member(2)
    };
    let team = teams.attach("A", with_mac).unwrap();
    assert_eq!(team.mac, Some(member(2).mac));
    let mode = Mode::Aggregate {
        policy: Policy::FiveTuple,
        lacp: false,
    };
    assert_eq!(team.bond(Policy::FiveTuple, BondSettings::default()).mode, mode);
}

#[test]
fn a_vlan() {
    let mut teams = Teams::default();
    teams.create(new("A", 1, TeamType::Aggregate)).unwrap();
    let tci = |teams: &Teams| teams.query("A").unwrap().tci().map(|t| t.0);
    assert_eq!(tci(&teams), None);
    teams.set_vlan("A", 4094, 7).unwrap();
    assert_eq!(tci(&teams), Some(0xeffe));
    teams.set_vlan("A", 0, 7).unwrap();
    assert_eq!(tci(&teams), None, "no VLAN, no tag");
}

#[test]
fn types_have_names() {
    for (text, kind) in [
        ("Aggregate", TeamType::Aggregate),
        ("aggregate", TeamType::Aggregate),
        ("FAILOVER", TeamType::Failover),
    ] {
        assert_eq!(text.parse(), Ok(kind));
    }
}

type Step = fn(&mut Teams) -> Result<(), LagError>;

/// Every rule, in the words of its error; and none of them has changed anything.
#[test]
fn what_cannot_be() {
    let mut teams = Teams::default();
    teams.create(new("Full", 1, TeamType::Failover)).unwrap();
    teams.attach("Full", primary(0)).unwrap();
    for n in 1..32 {
        teams.attach("Full", member(n)).unwrap();
    }
    teams.create(new("Two", 2, TeamType::Failover)).unwrap();
    teams.attach("Two", primary(40)).unwrap();
    teams.create(new("All", 3, TeamType::Aggregate)).unwrap();
    let create = |t: &mut Teams, new: NewTeam| t.create(new).map(|_| ());
    let steps: Vec<Step> = vec![
        |t| t.create(new("", 9, TeamType::Aggregate)).map(|_| ()),
        |t| t.create(new(&"x".repeat(65), 9, TeamType::Aggregate)).map(|_| ()),
        |t| t.create(new(" x", 9, TeamType::Aggregate)).map(|_| ()),
        |t| t.create(new("a\nb", 9, TeamType::Aggregate)).map(|_| ()),
        |t| t.create(new("tWO", 9, TeamType::Aggregate)).map(|_| ()),
        |t| t.create(new("x", 2, TeamType::Aggregate)).map(|_| ()),
        |t| {
            let ipoib = NewTeam {
                ipoib: true,
                ..new("x", 9, TeamType::Failover)
            };
            t.create(ipoib).map(|_| ())
        },
        |t| {
            let no_failback = NewTeam {
                no_failback: true,
                ..new("x", 9, TeamType::Aggregate)
            };
            t.create(no_failback).map(|_| ())
        },
        |t| t.attach("None", member(50)).map(|_| ()),
        |t| t.attach("Full", member(50)).map(|_| ()),
        |t| t.attach("All", member(5)).map(|_| ()),
        |t| t.attach("Two", member(40)).map(|_| ()),
        |t| t.attach("Two", primary(50)).map(|_| ()),
        |t| t.attach("All", primary(50)).map(|_| ()),
        |t| {
            let nameless = NewMember {
                adapter: String::new(),
                ..member(50)
            };
            t.attach("All", nameless).map(|_| ())
        },
        |t| {
            let group = NewMember {
                mac: MacAddr::BROADCAST,
                ..member(50)
            };
            t.attach("All", group).map(|_| ())
        },
        |t| t.detach("None", "vf1").map(|_| ()),
        |t| t.detach("Two", "vf1").map(|_| ()),
        |t| t.remove("None").map(|_| ()),
        |t| t.set_vlan("None", 1, 1).map(|_| ()),
        |t| t.set_vlan("Two", 4095, 1).map(|_| ()),
        |t| t.set_vlan("Two", 1, 8).map(|_| ()),
        |_| "IPoIB".parse::<TeamType>().map(|_| ()),
    ];
    let mut text = String::new();
    for step in steps {
        let before = teams.clone();
        text += &format!("{}\n", step(&mut teams).unwrap_err());
        assert_eq!(teams, before, "{text}");
    }
    expect![[r#"
        name: 0 characters; allowed: 1 to 64
        name: 65 characters; allowed: 1 to 64
        name: " x"; allowed: no control characters, no space at its ends
        name: "a\nb"; allowed: no control characters, no space at its ends
        name: there is a team "Two"
        guid: another team has it
        ipoib: all ports are Ethernet; allowed: no IPoIB
        no_failback_to_primary: an aggregate team has no primary to go back to; allowed: with Failover
        team: there is none of the name "None"
        members: "Full" has 32; allowed: 1 to 32
        adapter: vf5 is in team "Full" already
        adapter: vf40 is in team "Two" already
        primary: vf40 is the primary; allowed: one
        primary: all members of an aggregate team carry frames; allowed: with Failover
        adapter: it has no name
        adapter: vf50 has ff:ff:ff:ff:ff:ff; allowed: the address of one station
        team: there is none of the name "None"
        adapter: vf1 is not in team "Two"
        team: there is none of the name "None"
        team: there is none of the name "None"
        VlanID: 4095; allowed: 0 (none) to 4094
        VlanPrio: 8; allowed: 0 to 7
        type: "IPoIB"; allowed: Aggregate, Failover
    "#]]
    .assert_eq(&text);
    for n in 3..TEAMS_MAX as u128 {
        create(&mut teams, new(&format!("t{n}"), n + 1, TeamType::Aggregate)).unwrap();
    }
    let error = create(&mut teams, new("x", 0, TeamType::Aggregate)).unwrap_err();
    assert_eq!(error.to_string(), "team: there are 256; allowed: no more");
}

#[derive(Debug, Clone)]
enum Op {
    Create(u8, bool, bool, bool),
    Attach(u8, u8, bool, bool),
    Detach(u8, u8),
    Remove(u8),
    Vlan(u8, u16, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let team = 0u8..4;
    let adapter = 0u8..40;
    prop_oneof![
        3 => (team.clone(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(t, a, n, i)| Op::Create(t, a, n, i)),
        20 => (team.clone(), adapter.clone(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(t, a, p, m)| Op::Attach(t, a, p, m)),
        4 => (team.clone(), adapter).prop_map(|(t, a)| Op::Detach(t, a)),
        1 => team.clone().prop_map(Op::Remove),
        1 => (team, 0u16..5000, 0u8..9).prop_map(|(t, i, p)| Op::Vlan(t, i, p)),
    ]
}

proptest! {
    /// What fails changes nothing; what holds for teams holds always, and each makes a bond that there can be.
    #[test]
    fn nothing_is_half_done(ops in prop::collection::vec(op(), 0..120)) {
        let mut teams = Teams::default();
        for op in ops {
            let before = teams.clone();
            let name = |t: u8| format!("team {t}");
            let told = match op.clone() {
                Op::Create(t, aggregate, no_failback, ipoib) => {
                    let kind = if aggregate { TeamType::Aggregate } else { TeamType::Failover };
                    teams.create(NewTeam { no_failback, ipoib, ..new(&name(t), u128::from(t), kind) }).map(|_| ())
                }
                Op::Attach(t, a, primary, set_team_mac) => {
                    teams.attach(&name(t), NewMember { primary, set_team_mac, ..member(a) }).map(|_| ())
                }
                Op::Detach(t, a) => teams.detach(&name(t), &member(a).adapter).map(|_| ()),
                Op::Remove(t) => teams.remove(&name(t)).map(|_| ()),
                Op::Vlan(t, id, prio) => teams.set_vlan(&name(t), id, prio).map(|_| ()),
            };
            if told.is_err() {
                prop_assert_eq!(&teams, &before, "{:?}", op);
            }
            let mut adapters: Vec<&str> = Vec::new();
            for team in teams.iter() {
                adapters.extend(team.members.iter().map(|m| m.adapter.as_str()));
                prop_assert!(team.members.len() <= MEMBERS_MAX);
                prop_assert_eq!(team.mac.is_some(), !team.members.is_empty());
                let primaries = team.members.iter().filter(|m| m.primary).count();
                prop_assert!(primaries <= usize::from(team.kind == TeamType::Failover));
                if !team.members.is_empty() {
                    let bond = team.bond(Policy::default(), BondSettings::default());
                    prop_assert_eq!(bond.check(team.members.len()), Ok(()));
                }
            }
            let all = adapters.len();
            adapters.sort_unstable();
            adapters.dedup();
            prop_assert_eq!(adapters.len(), all, "an adapter is in one team");
        }
    }
}
