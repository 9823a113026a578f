//! Mirror sessions as `vnic.v1.Mirror`: the values of a request, without those that the daemon fills in.

use prost::Message as _;
use vnic_backend::{MirrorDirection, MirrorSpec};
use vnic_control::v1;

use crate::check::{self, Violations};
use crate::names;

/// Forms of a resource name of an adapter or port.
const OWNER: &str = "adapters/{adapter} or ports/{port}";

/// Reads a message. `None`: a value is wrong, and was noted.
pub fn read(id: &str, mirror: &v1::Mirror, wrong: &mut Violations) -> Option<MirrorSpec> {
    let name = wrong.check("mirror_id", check::name(id));
    let mut owner = |field: &str, name: &str| {
        let ids = [names::ADAPTERS, names::PORTS].map(|c| names::id(c, name));
        let id = ids.into_iter().flatten().next();
        let checked = id
            .map(str::to_owned)
            .ok_or_else(|| format!("{name:?} is not of the form {OWNER}"));
        wrong.check(field, checked)
    };
    let source = owner("mirror.source", &mirror.source);
    let destination = owner("mirror.destination", &mirror.destination);
    let direction = match v1::mirror::Direction::try_from(mirror.direction) {
        Ok(v1::mirror::Direction::Unspecified | v1::mirror::Direction::Both) => Some(MirrorDirection::Both),
        Ok(v1::mirror::Direction::Rx) => Some(MirrorDirection::Rx),
        Ok(v1::mirror::Direction::Tx) => Some(MirrorDirection::Tx),
        Err(_) => {
            wrong.add(
                "mirror.direction",
                "DIRECTION_RX, DIRECTION_TX and DIRECTION_BOTH are allowed",
            );
            None
        }
    };
    Some(MirrorSpec {
        name: name?,
        source: source?,
        direction: direction?,
        destination: destination?,
    })
}

/// Message of a session, without what the daemon fills in; `owner` gives the resource name of an adapter or port.
pub fn message(spec: &MirrorSpec, owner: impl Fn(&str) -> String) -> v1::Mirror {
    let direction = match spec.direction {
        MirrorDirection::Rx => v1::mirror::Direction::Rx,
        MirrorDirection::Tx => v1::mirror::Direction::Tx,
        MirrorDirection::Both => v1::mirror::Direction::Both,
    };
    v1::Mirror {
        source: owner(&spec.source),
        direction: direction.into(),
        destination: owner(&spec.destination),
        ..v1::Mirror::default()
    }
}

/// Encodes a session for the store. Adapters and ports have one namespace: which of the two a name is, the NIC knows.
pub fn encode(spec: &MirrorSpec) -> Vec<u8> {
    message(spec, |name| names::of(names::ADAPTERS, name)).encode_to_vec()
}

/// Decodes a row of the store.
pub fn decode(name: &str, bytes: &[u8]) -> Result<MirrorSpec, String> {
    let message = v1::Mirror::decode(bytes).map_err(|e| format!("what is stored is unreadable: {e}"))?;
    let mut wrong = Violations::default();
    let spec = read(name, &message, &mut wrong);
    wrong.finish(spec).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_stored_with_all_that_they_were_made_with() {
        for direction in MirrorDirection::ALL {
            let spec = MirrorSpec {
                name: "span0".to_owned(),
                source: "vf0".to_owned(),
                direction,
                destination: "p0".to_owned(),
            };
            assert_eq!(decode("span0", &encode(&spec)), Ok(spec));
        }
        let error = decode("span0", &[0xff]).expect_err("no message");
        assert!(error.contains("unreadable"), "{error}");
    }
}
