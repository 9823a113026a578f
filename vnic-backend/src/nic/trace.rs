//! Questions about a frame: where would it go, and why would it be dropped?

use vnic_fabric::switch::{AllowedAddresses, Claim, Egress, Explanation, Verdict};
use vnic_fabric::{DropReason, TagEdit};

use super::Inner;
use crate::datapath::{Worker, vlan_behind};
use crate::types::acl::{Action, Way};
use crate::types::*;

/// Bytes of an Ethernet header without a tag.
const HEADER: usize = 14;

/// Answers [`super::Nic::trace`].
pub fn trace(nic: &Inner, owner: &str, head: &[u8], len: usize) -> Result<Trace, NicError> {
    let source = place(nic, owner)?;
    let mut trace = Trace::default();
    trace.step(
        "mtu",
        format!("{len} bytes; {owner} sends up to {}", source.limit(head)),
    );
    if len > source.limit(head) {
        return Ok(trace.dropped(DropReason::MtuExceeded));
    }
    if let Some(claim) = AllowedAddresses::new(&source.allowed).and_then(|a| a.refused(head)) {
        let text = match claim {
            Claim::Address(address) => format!("{address} is none of them"),
            Claim::DhcpServer => "with such a list, nobody answers as a DHCP server".to_owned(),
            Claim::Hidden => "the addresses of the frame cannot be seen".to_owned(),
        };
        trace.step("allowed_addresses", text);
        return Ok(trace.dropped(DropReason::SpoofedAddress));
    }
    let (id, bytes) = (source.id, head.to_vec());
    let explained = nic.workers[source.core].ask(move |w| explain(w, id, &bytes, len));
    let (explained, targets) = explained.ok_or(NicError::ShuttingDown)?;
    tell(nic, &mut trace, owner, &explained);
    if let Verdict::Drop(reason) = explained.verdict {
        return Ok(trace.dropped(reason));
    }
    if trace.denied(nic, owner, Way::Tx, TagEdit::Keep, head) {
        return Ok(trace.dropped(DropReason::AccessList));
    }
    trace.mirrors(nic, owner, true);
    for target in targets {
        if let Some(mut receiver) = receiver(nic, owner, target, head, len) {
            if trace.denied(nic, &receiver.owner, Way::Rx, target.tag, head) {
                receiver.dropped = Some(DropReason::AccessList);
            }
            if receiver.dropped.is_none() {
                trace.mirrors(nic, &receiver.owner, false);
            }
            trace.receivers.push(receiver);
        }
    }
    Ok(trace)
}

/// Decision of a core, and the receivers.
fn explain(w: &mut Worker, id: PortId, head: &[u8], len: usize) -> (Explanation, Vec<Egress>) {
    let switch = &w.core.switch;
    let explained = switch.explain(id, head, len);
    let targets = match explained.verdict {
        Verdict::Unicast(one) => vec![one],
        Verdict::Flood(flood) => switch.flood_targets(id, flood).collect(),
        Verdict::Drop(_) => Vec::new(),
    };
    (explained, targets)
}

/// An adapter or port as a sender or receiver of frames.
struct Place {
    id: PortId,
    core: usize,
    mtu: u16,
    allowed: Vec<Prefix>,
}

impl Place {
    /// Length of the longest frame with this head. A tag does not count against the MTU (IEEE 802.3 clause 3.2.7).
    fn limit(&self, head: &[u8]) -> usize {
        let tag = 4 * usize::from(head.get(12..14) == Some(&[0x81, 0x00]));
        usize::from(self.mtu) + HEADER + tag
    }
}

fn place(nic: &Inner, owner: &str) -> Result<Place, NicError> {
    let state = nic.state()?;
    if let Ok(entry) = state.adapter(owner) {
        let spec = entry.adapter.spec();
        return Ok(Place {
            id: entry.adapter.id,
            core: entry.adapter.core,
            mtu: spec.mtu,
            allowed: spec.allowed_addresses.clone(),
        });
    }
    let port = state.port(owner)?;
    // The switch knows members of a bond by the bond.
    let (id, core) = match state.bond_of(port.id).and_then(|name| state.bonds.get(name)) {
        Some(bond) => (bond.id, bond.core),
        None => (port.id, port.core),
    };
    Ok(Place {
        id,
        core,
        mtu: port.spec.mtu,
        allowed: Vec::new(),
    })
}

/// Notes the grounds of a decision.
fn tell(nic: &Inner, trace: &mut Trace, owner: &str, explained: &Explanation) {
    let Some(vlan) = explained.vlan else {
        if let Some(other) = nic.lock().bridged_with(owner) {
            let text = format!("{owner} and {other} are one wire: the frame goes across as it is");
            return trace.step("bridge", text);
        }
        let text = match nic.lock().mirrored_to(owner) {
            Some(mirror) => format!("{owner} is the destination of mirror {mirror}: it sends nothing"),
            None => "the switch does not let it in".to_owned(),
        };
        return trace.step("admission", text);
    };
    trace.step("vlan", format!("VLAN {vlan}"));
    let text = match (explained.entry, explained.verdict) {
        (Some((port, is_static)), _) => {
            let name = nic.lock().names.get(&port).cloned().unwrap_or_default();
            let kind = if is_static { "its own address" } else { "learned" };
            format!("the destination is behind {name} ({kind})")
        }
        (None, Verdict::Flood(_)) => {
            "the destination is a group, or unknown: everybody in the VLAN gets it".to_owned()
        }
        (None, _) => "nobody else in the VLAN is up".to_owned(),
    };
    trace.step("address_table", text);
}

/// What a receiver does with the frame. `None`: the receiver is gone.
fn receiver(nic: &Inner, from: &str, target: Egress, head: &[u8], len: usize) -> Option<TraceReceiver> {
    let name = nic.lock().names.get(&target.port).cloned()?;
    let rules: Vec<String> = {
        let state = nic.lock();
        let on_path = |spec: &FaultSpec| {
            let of = |end: &Option<String>, name: &str| end.as_deref().is_none_or(|end| end == name);
            of(&spec.from, from) && of(&spec.to, &name)
        };
        let rules = state.faults.rules.values().filter(|rule| on_path(&rule.spec));
        rules.map(|rule| rule.spec.name.clone()).collect()
    };
    let tag = match target.tag {
        TagEdit::Keep => String::new(),
        TagEdit::Push(tci) => format!("gets the tag {:#06x}", tci),
        TagEdit::Pop => "loses its tag".to_owned(),
        TagEdit::Replace(tci) => format!("gets the tag {:#06x} in place of its own", tci),
    };
    let mut receiver = TraceReceiver {
        owner: name.clone(),
        tag,
        function: TraceFunction::Wire,
        dropped: None,
        fault_rules: rules,
    };
    let place = match place(nic, &name) {
        Ok(place) => place,
        // A bond: its members have one MTU.
        Err(_) => return Some(receiver),
    };
    let (id, bytes) = (target.port, head.to_vec());
    let function = nic.workers[place.core].ask(move |w| w.core.out.taker(id, &bytes));
    receiver.function = function??;
    if len > place.limit(head) {
        receiver.dropped = Some(DropReason::ReceiverMtu);
    } else if receiver.function == TraceFunction::Nobody {
        receiver.dropped = Some(DropReason::ReceiverDown);
    }
    Some(receiver)
}

impl Trace {
    /// Notes what the access list of an adapter says. True: it denies the frame.
    fn denied(&mut self, nic: &Inner, name: &str, way: Way, tag: TagEdit, head: &[u8]) -> bool {
        let Some((decision, text)) = nic.lock().listed(name, way, vlan_behind(tag, head), head) else {
            return false;
        };
        self.step("access_list", text);
        decision.action == Action::Deny
    }

    /// Notes the sessions that copy the frame where it enters the switch (`ingress`) or leaves it.
    fn mirrors(&mut self, nic: &Inner, name: &str, ingress: bool) {
        let what = if ingress { "from" } else { "for" };
        for (mirror, destination) in nic.lock().copies(name, ingress) {
            let text = format!("{mirror} copies frames {what} {name} to {destination}");
            self.step("mirror", text);
        }
    }

    fn step(&mut self, name: &'static str, text: String) {
        self.steps.push((name, text));
    }

    fn dropped(mut self, reason: DropReason) -> Trace {
        self.dropped = Some(reason);
        self
    }
}
