//! Migrations as messages: the document that goes from daemon to daemon, and the rows of adapters that take part.

use std::net::Ipv6Addr;

use prost::Message as _;
use vnic_backend::acl::Rules;
use vnic_backend::settings::{AdapterSettings, QosKeys};
use vnic_backend::{AdapterSpec, CongestionSpec, GidKind, GidSetting, MovePart, Moving, QosSpec};
use vnic_control::v1;

use super::adapters::{self, NewAdapter};
use super::{access_lists, congestion, qos, values};
use crate::check::Violations;
use crate::names;

/// Fields of an adapter that go with its guest.
const MOVED: [&str; 8] = [
    "macs",
    "mtu",
    "queue_pairs",
    "vlan",
    "control_queue",
    "anti_spoofing",
    "allowed_addresses",
    "pkeys",
];

/// Identity of an adapter: its fields that go with its guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity(NewAdapter);

impl Identity {
    /// The identity that an adapter has.
    pub fn of(spec: &AdapterSpec) -> Identity {
        Identity::in_request(&NewAdapter::from(spec))
    }

    fn in_request(new: &NewAdapter) -> Identity {
        let mut own = NewAdapter::default();
        for field in MOVED {
            own.take(field, new);
        }
        Identity(own)
    }

    /// The specification of an adapter with this identity.
    pub fn worn_by(&self, spec: AdapterSpec) -> AdapterSpec {
        let own = &self.0;
        AdapterSpec {
            macs: own.macs.clone(),
            mtu: own.mtu.unwrap_or(spec.mtu),
            queue_pairs: own.queue_pairs.unwrap_or(spec.queue_pairs),
            vlan: own.vlan.clone(),
            control_queue: own.control_queue.unwrap_or(spec.control_queue),
            anti_spoofing: own.anti_spoofing.unwrap_or(spec.anti_spoofing),
            allowed_addresses: own.allowed_addresses.clone(),
            pkeys: own.pkeys,
            ..spec
        }
    }

    /// Writes the identity into the request for an adapter.
    pub fn put_into(&self, new: &mut NewAdapter) {
        for field in MOVED {
            new.take(field, &self.0);
        }
    }

    /// The same with other addresses.
    pub fn with_macs(&self, from: &Identity) -> Identity {
        let mut other = self.clone();
        other.0.macs.clone_from(&from.0.macs);
        other
    }

    /// Encodes the identity.
    pub fn encode(&self) -> Vec<u8> {
        adapters::encode(&self.0)
    }
}

/// Everything of an adapter that goes with its guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// Name of the adapter.
    pub source: String,
    /// Its identity.
    pub identity: Identity,
    /// Stored values of its registry, by key.
    pub keys: Vec<(String, String)>,
    /// Quality of service, without the fields that are registry keys.
    pub qos: QosSpec,
    /// Congestion control, without the parameters that are registry keys.
    pub congestion: CongestionSpec,
    /// GIDs of the operator.
    pub gids: Vec<GidSetting>,
    /// Access list.
    pub rules: Rules,
}

/// The message of a document.
pub fn message(document: &Document) -> v1::MigrationDocument {
    let key = |(key, value): &(String, String)| v1::MigrationKey {
        key: key.clone(),
        value: value.clone(),
    };
    let gid = |gid: &GidSetting| v1::Gid {
        gid: Ipv6Addr::from(gid.gid).to_string(),
        version: match gid.kind {
            GidKind::RoceV1 => v1::gid::Version::RoceV1.into(),
            GidKind::RoceV2 => v1::gid::Version::RoceV2.into(),
        },
        vlan: gid.vlan.map_or(0, u32::from),
        ..v1::Gid::default()
    };
    let slowing = congestion::encode(&document.congestion);
    v1::MigrationDocument {
        source: document.source.clone(),
        adapter: Some(adapters::message(&document.identity.0)),
        keys: document.keys.iter().map(key).collect(),
        qos: Some(qos::message(&document.qos, &AdapterSettings::default().qos)),
        congestion: v1::Congestion::decode(slowing.as_slice()).ok(),
        gids: document.gids.iter().map(gid).collect(),
        access_list: (document.rules != Rules::default())
            .then(|| access_lists::message(&document.rules, &[])),
    }
}

/// Reads a document.
pub fn read(message: &v1::MigrationDocument) -> Result<Document, Violations> {
    let mut wrong = Violations::default();
    let adapter = adapters::read(&message.adapter.clone().unwrap_or_default(), &[], &mut wrong);
    if adapter.macs.is_empty() {
        wrong.add("document.adapter.macs", "at least one address is needed");
    }
    let gids = message
        .gids
        .iter()
        .filter_map(|gid| values::gid_setting(gid, &mut wrong));
    let gids = gids.collect();
    let of_qos = message.qos.clone().unwrap_or_default().encode_to_vec();
    let of_qos: Option<(QosSpec, QosKeys)> = wrong.check("document.qos", qos::decode(&of_qos));
    let slowing = match &message.congestion {
        None => Some(CongestionSpec::default()),
        Some(slowing) => wrong.check(
            "document.congestion",
            congestion::decode(&slowing.encode_to_vec()),
        ),
    };
    let rules = access_lists::read(&message.access_list.clone().unwrap_or_default(), &mut wrong);
    let found = of_qos
        .zip(slowing)
        .zip(rules)
        .map(|(((qos, _), congestion), rules)| Document {
            source: message.source.clone(),
            identity: Identity::in_request(&adapter),
            keys: message
                .keys
                .iter()
                .map(|k| (k.key.clone(), k.value.clone()))
                .collect(),
            qos,
            congestion,
            gids,
            rules,
        });
    wrong.finish(found)
}

/// Encodes a document for the store.
pub fn encode(document: &Document) -> Vec<u8> {
    message(document).encode_to_vec()
}

/// Decodes a document of the store.
pub fn decode(bytes: &[u8]) -> Result<Document, String> {
    let message = v1::MigrationDocument::decode(bytes).map_err(|e| e.to_string())?;
    read(&message).map_err(|wrong| wrong.to_string())
}

/// Row of an adapter that has another identity than the configuration or its own row gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Identity that acts instead.
    pub identity: Identity,
    /// The migration in which the adapter takes part, while it lasts.
    pub moving: Option<Moving>,
    /// ETag of the identity that the row replaces.
    pub replaces: String,
}

impl Row {
    /// Encodes the row.
    pub fn encode(&self) -> Vec<u8> {
        let row = v1::Adapter {
            migration: self.moving.as_ref().map(|moving| part(moving, false)),
            etag: self.replaces.clone(),
            ..adapters::message(&self.identity.0)
        };
        row.encode_to_vec()
    }

    /// Decodes a row.
    pub fn decode(bytes: &[u8]) -> Result<Row, String> {
        let message = v1::Adapter::decode(bytes).map_err(|e| e.to_string())?;
        let mut wrong = Violations::default();
        let new = adapters::read(&message, &[], &mut wrong);
        let moving = message.migration.and_then(|m| {
            let part = match m.part() {
                v1::adapter_migration::Part::Source => MovePart::Source,
                v1::adapter_migration::Part::Target => MovePart::Target,
                v1::adapter_migration::Part::Unspecified => return None,
            };
            let peer = names::id(names::ADAPTERS, &m.peer).map(str::to_owned);
            Some(Moving { part, peer })
        });
        let row = Row {
            identity: Identity::in_request(&new),
            moving,
            replaces: message.etag,
        };
        wrong.finish(Some(row)).map_err(|wrong| wrong.to_string())
    }
}

/// The message of an adapter's part in a migration.
pub fn part(moving: &Moving, has_addresses: bool) -> v1::AdapterMigration {
    let part = match moving.part {
        MovePart::Source => v1::adapter_migration::Part::Source,
        MovePart::Target => v1::adapter_migration::Part::Target,
    };
    let peer = moving.peer.as_deref();
    v1::AdapterMigration {
        part: part.into(),
        peer: peer.map_or_else(String::new, |name| names::of(names::ADAPTERS, name)),
        has_addresses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::acl::Action;

    #[test]
    fn what_is_stored_is_read_back() {
        let adapter = NewAdapter {
            macs: vec!["02:00:00:00:00:0a".parse().expect("an address")],
            mtu: Some(9000),
            anti_spoofing: Some(true),
            ..NewAdapter::default()
        };
        let document = Document {
            source: "vf0".to_owned(),
            identity: Identity(adapter),
            keys: vec![("VlanID".to_owned(), "7".to_owned())],
            qos: QosSpec {
                rate: 1_000_000,
                ..QosSpec::default()
            },
            congestion: CongestionSpec::default(),
            gids: vec![GidSetting {
                gid: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
                kind: GidKind::RoceV1,
                vlan: Some(5),
            }],
            rules: Rules {
                default_tx: Action::Deny,
                ..Rules::default()
            },
        };
        assert_eq!(decode(&encode(&document)), Ok(document.clone()));
        for peer in [None, Some("vf1".to_owned())] {
            let row = Row {
                identity: document.identity.clone(),
                moving: Some(Moving {
                    part: MovePart::Target,
                    peer,
                }),
                replaces: "5".to_owned(),
            };
            assert_eq!(Row::decode(&row.encode()), Ok(row));
        }
        assert!(decode(&encode(&Document::default())).is_err());
    }
}
