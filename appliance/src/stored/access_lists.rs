//! Access lists as `vnic.v1.AccessList`.

use prost::Message as _;
use vnic_backend::acl::{Action, Match, RULES_MAX, Rule, Rules, Way};
use vnic_control::v1;

use crate::check::{self, Checked, Violations};

/// Reads the rules of a message. `None`: a value is wrong, and was noted.
pub fn read(list: &v1::AccessList, wrong: &mut Violations) -> Option<Rules> {
    let count = list.rules.len();
    if count > RULES_MAX {
        wrong.add(
            "access_list.rules",
            format!("{count} rules; at most {RULES_MAX} are allowed"),
        );
        return None;
    }
    let rules: Vec<Option<Rule>> = (0..)
        .zip(&list.rules)
        .map(|(i, r)| rule(r, &format!("access_list.rules[{i}]."), wrong))
        .collect();
    let default = |deny| if deny { Action::Deny } else { Action::Permit };
    Some(Rules {
        rules: rules.into_iter().collect::<Option<_>>()?,
        default_rx: default(list.deny_rx),
        default_tx: default(list.deny_tx),
    })
}

fn rule(rule: &v1::AccessRule, at: &str, wrong: &mut Violations) -> Option<Rule> {
    let way = match rule.way() {
        v1::access_rule::Way::Rx => Some(Way::Rx),
        v1::access_rule::Way::Tx => Some(Way::Tx),
        v1::access_rule::Way::Unspecified => None,
    };
    let way = wrong.check(
        format!("{at}way"),
        way.ok_or("required: WAY_RX or WAY_TX".to_owned()),
    );
    let action = match rule.action() {
        v1::access_rule::Action::Permit => Some(Action::Permit),
        v1::access_rule::Action::Deny => Some(Action::Deny),
        v1::access_rule::Action::Unspecified => None,
    };
    let action = action.ok_or("required: ACTION_PERMIT or ACTION_DENY".to_owned());
    let action = wrong.check(format!("{at}action"), action);
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let any_mac = |text: String| text.parse().map_err(|_| format!("{text:?} is not a MAC address"));
    let source_mac = wrong.optional(format!("{at}source_mac"), text(&rule.source_mac), any_mac);
    let destination_mac = wrong.optional(
        format!("{at}destination_mac"),
        text(&rule.destination_mac),
        any_mac,
    );
    let number = |what: &'static str, lo: u32, hi: u32| {
        move |n: u32| match (lo..=hi).contains(&n) {
            true => Ok(n),
            false => Err(format!("{n} is no {what}: {lo} to {hi}")),
        }
    };
    let vlan = wrong.optional(format!("{at}vlan"), rule.vlan, number("VLAN", 0, 4094));
    let ethertype = number("EtherType", 0x600, 0xffff);
    let ethertype = wrong.optional(format!("{at}ethertype"), rule.ethertype, ethertype);
    let protocol = wrong.optional(format!("{at}protocol"), rule.protocol, number("protocol", 0, 255));
    let prefix = |text: String| check::allowed_address(&text);
    let source = wrong.optional(format!("{at}source"), text(&rule.source), prefix);
    let destination = wrong.optional(format!("{at}destination"), text(&rule.destination), prefix);
    let source_ports = wrong.optional(format!("{at}source_ports"), rule.source_ports, ports);
    let destination_ports = wrong.optional(format!("{at}destination_ports"), rule.destination_ports, ports);
    Some(Rule {
        way: way?,
        action: action?,
        matches: Match {
            source_mac: source_mac?,
            destination_mac: destination_mac?,
            vlan: vlan?.and_then(|n| u16::try_from(n).ok()),
            ethertype: ethertype?.and_then(|n| u16::try_from(n).ok()),
            source: source?,
            destination: destination?,
            protocol: protocol?.and_then(|n| u8::try_from(n).ok()),
            source_ports: source_ports?,
            destination_ports: destination_ports?,
        },
    })
}

fn ports(range: v1::PortRange) -> Checked<(u16, u16)> {
    let both = u16::try_from(range.first)
        .ok()
        .zip(u16::try_from(range.last).ok());
    both.filter(|(first, last)| first <= last).ok_or_else(|| {
        format!(
            "{} to {}: 0 to 65535, the first not above the last",
            range.first, range.last
        )
    })
}

/// Message of rules; `hits` are their counters.
pub fn message(rules: &Rules, hits: &[u64]) -> v1::AccessList {
    let range = |(first, last): (u16, u16)| v1::PortRange {
        first: first.into(),
        last: last.into(),
    };
    let rule = |(i, rule): (usize, &Rule)| {
        let Rule { way, action, matches } = rule;
        let way = match way {
            Way::Rx => v1::access_rule::Way::Rx,
            Way::Tx => v1::access_rule::Way::Tx,
        };
        let action = match action {
            Action::Permit => v1::access_rule::Action::Permit,
            Action::Deny => v1::access_rule::Action::Deny,
        };
        v1::AccessRule {
            way: way.into(),
            action: action.into(),
            source_mac: matches.source_mac.map(|m| m.to_string()).unwrap_or_default(),
            destination_mac: matches.destination_mac.map(|m| m.to_string()).unwrap_or_default(),
            vlan: matches.vlan.map(u32::from),
            ethertype: matches.ethertype.map(u32::from),
            source: matches.source.map(|p| p.to_string()).unwrap_or_default(),
            destination: matches.destination.map(|p| p.to_string()).unwrap_or_default(),
            protocol: matches.protocol.map(u32::from),
            source_ports: matches.source_ports.map(range),
            destination_ports: matches.destination_ports.map(range),
            hits: hits.get(i).copied().unwrap_or_default(),
        }
    };
    v1::AccessList {
        rules: rules.rules.iter().enumerate().map(rule).collect(),
        deny_rx: rules.default_rx == Action::Deny,
        deny_tx: rules.default_tx == Action::Deny,
        ..v1::AccessList::default()
    }
}

/// Encodes rules for the store.
pub fn encode(rules: &Rules) -> Vec<u8> {
    message(rules, &[]).encode_to_vec()
}

/// Decodes a row of the store.
pub fn decode(bytes: &[u8]) -> Result<Rules, String> {
    let message = v1::AccessList::decode(bytes).map_err(|e| format!("what is stored is unreadable: {e}"))?;
    let mut wrong = Violations::default();
    let rules = read(&message, &mut wrong);
    wrong.finish(rules).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_stored_with_all_that_they_were_made_with() {
        let all = Match {
            source_mac: "02:00:00:00:00:01".parse().ok(),
            destination_mac: "ff:ff:ff:ff:ff:ff".parse().ok(),
            vlan: Some(0),
            ethertype: Some(0x800),
            source: "10.0.0.0/24".parse().ok(),
            destination: "fd00::1".parse().ok(),
            protocol: Some(0),
            source_ports: Some((0, 65535)),
            destination_ports: Some((22, 22)),
        };
        let rule = |way, action, matches| Rule { way, action, matches };
        let rules = Rules {
            rules: vec![
                rule(Way::Rx, Action::Deny, all),
                rule(Way::Tx, Action::Permit, Match::default()),
            ],
            default_rx: Action::Permit,
            default_tx: Action::Deny,
        };
        assert_eq!(decode(&encode(&rules)), Ok(rules));
        assert_eq!(decode(&[]), Ok(Rules::default()));
        let error = decode(&[0xff]).expect_err("no message");
        assert!(error.contains("unreadable"), "{error}");
    }
}
