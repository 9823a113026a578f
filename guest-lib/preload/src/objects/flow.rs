//! Flows of raw packet queue pairs.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header; reads layers of a length that they say themselves"
)]

use std::cell::UnsafeCell;

use vnic_verbs::flow::{FlowKind, FlowRule, flow_headers};

use super::Qp;
use super::qp::AnyQp;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::{Use, publish};

/// A flow.
#[repr(C)]
pub struct Flow {
    base: UnsafeCell<ibv_flow>,
    _inner: vnic_verbs::Flow,
    _needs: Use,
}

object!(Flow: ibv_flow);

impl Flow {
    /// Makes a flow.
    ///
    /// # Safety
    /// The attributes are what `ibv_create_flow` asks for: as many layers follow as they say, each of the length that it says.
    pub unsafe fn create(
        context: &Context,
        qp: &Qp,
        attributes: *const ibv_flow_attr,
    ) -> Result<*mut ibv_flow, Errno> {
        // SAFETY: by the caller's promise.
        let rule = || unsafe { rule(attributes) };
        let inner = match &qp.inner {
            AnyQp::Raw(queue) => queue.create_flow(&rule()?)?,
            AnyQp::Hash(spread) => spread.create_flow(&rule()?)?,
            _ => return Err(Errno::INVALID),
        };
        Ok(publish(Flow {
            base: UnsafeCell::new(ibv_flow {
                comp_mask: 0,
                context: context.pointer(),
                handle: inner.number(),
            }),
            _inner: inner,
            _needs: qp.uses.one(),
        }))
    }
}

/// What a flow takes, by its attributes.
///
/// # Safety
/// As [`Flow::create`].
unsafe fn rule(attributes: *const ibv_flow_attr) -> Result<FlowRule, Errno> {
    // SAFETY: by the caller's promise.
    let attr = unsafe { attributes.read_unaligned() };
    if attr.flags & !(IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS) != 0
        || attr.comp_mask != 0
        || attr.port != 1
    {
        return Err(Errno::INVALID);
    }
    if attr.flags != 0 {
        return Err(Errno::UNSUPPORTED
            .because("flows take what comes (no EGRESS), and it is theirs alone (no DONT_TRAP)"));
    }
    let mut rule = FlowRule {
        kind: match attr.type_ {
            IBV_FLOW_ATTR_NORMAL => FlowKind::Normal,
            IBV_FLOW_ATTR_ALL_DEFAULT => FlowKind::AllDefault,
            IBV_FLOW_ATTR_MC_DEFAULT => FlowKind::MulticastDefault,
            IBV_FLOW_ATTR_SNIFFER => FlowKind::Sniffer,
            _ => return Err(Errno::INVALID),
        },
        priority: attr.priority,
        ..FlowRule::default()
    };
    if rule.kind != FlowKind::Normal {
        // What is said of headers would have no meaning.
        return if attr.num_of_specs == 0 {
            Ok(rule)
        } else {
            Err(Errno::INVALID)
        };
    }
    let mut at = attributes.cast::<u8>().wrapping_add(size_of::<ibv_flow_attr>());
    let mut seen = 0;
    for _ in 0..attr.num_of_specs {
        // (The attributes' own length is not looked at, as libibverbs does not: pyverbs leaves the layers out of it.)
        // SAFETY: by the caller's promise.
        let layer = unsafe { at.cast::<ibv_flow_spec_action_drop>().read_unaligned() };
        let len = usize::from(layer.size);
        if len < size_of::<ibv_flow_spec_action_drop>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: as above; `len` bytes are there.
        unsafe {
            add(
                &mut rule,
                &mut seen,
                layer.type_,
                std::slice::from_raw_parts(at, len),
            )
        }?;
        at = at.wrapping_add(len);
    }
    Ok(rule)
}

/// A layer of its type, if it has that length.
fn layer<T: Plain>(bytes: &[u8]) -> Result<T, Errno> {
    if bytes.len() != size_of::<T>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: so many bytes are there, and any bytes are a value: the structure has numbers only.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Adds a layer to a rule. EINVAL: there are two of a kind.
fn add(rule: &mut FlowRule, seen: &mut u32, kind: u32, bytes: &[u8]) -> Result<(), Errno> {
    let inside = kind & IBV_FLOW_SPEC_INNER != 0;
    let kind = kind & !IBV_FLOW_SPEC_INNER;
    if inside && kind == IBV_FLOW_SPEC_VXLAN_TUNNEL {
        return Err(Errno::UNSUPPORTED.because("flows look into one tunnel"));
    }
    let (value, mask, shift) = match inside {
        false => (&mut rule.value, &mut rule.mask, 0),
        true => (
            &mut rule.inner_value,
            &mut rule.inner_mask,
            flow_headers::INNER_SHIFT,
        ),
    };
    let mut once = |bit: u32| {
        let bit = bit << shift;
        let first = *seen & bit == 0;
        *seen |= bit;
        if first { Ok(()) } else { Err(Errno::INVALID) }
    };
    const ETH: u32 = 1 << 20;
    match kind {
        IBV_FLOW_SPEC_ETH => {
            let layer: ibv_flow_spec_eth = layer(bytes)?;
            once(ETH)?;
            for (fields, filter) in [(value, layer.val), (mask, layer.mask)] {
                (fields.destination_mac, fields.source_mac) = (filter.dst_mac, filter.src_mac);
                fields.ethertype = u16::from_be(filter.ether_type);
                fields.tag = u16::from_be(filter.vlan_tag);
            }
        }
        IBV_FLOW_SPEC_IPV4 | IBV_FLOW_SPEC_IPV4_EXT => {
            let [values, masks] = match kind {
                IBV_FLOW_SPEC_IPV4 => {
                    let layer: ibv_flow_spec_ipv4 = layer(bytes)?;
                    [layer.val, layer.mask].map(|plain| ibv_flow_ipv4_ext_filter {
                        src_ip: plain.src_ip,
                        dst_ip: plain.dst_ip,
                        ..zeros()
                    })
                }
                _ => {
                    let layer: ibv_flow_spec_ipv4_ext = layer(bytes)?;
                    [layer.val, layer.mask]
                }
            };
            once(flow_headers::IPV4)?;
            if masks.flags != 0 {
                return Err(Errno::UNSUPPORTED.because("flows do not look at the flags of IPv4"));
            }
            rule.headers |= flow_headers::IPV4 << shift;
            for (fields, filter) in [(value, values), (mask, masks)] {
                // In memory they are as on the wire.
                fields.source[..4].copy_from_slice(&filter.src_ip.to_ne_bytes());
                fields.destination[..4].copy_from_slice(&filter.dst_ip.to_ne_bytes());
                (fields.protocol, fields.traffic_class, fields.hop_limit) =
                    (filter.proto, filter.tos, filter.ttl);
            }
        }
        IBV_FLOW_SPEC_IPV6 => {
            let layer: ibv_flow_spec_ipv6 = layer(bytes)?;
            once(flow_headers::IPV6)?;
            rule.headers |= flow_headers::IPV6 << shift;
            for (fields, filter) in [(value, layer.val), (mask, layer.mask)] {
                (fields.source, fields.destination) = (filter.src_ip, filter.dst_ip);
                fields.flow_label = u32::from_be(filter.flow_label);
                (fields.protocol, fields.traffic_class) = (filter.next_hdr, filter.traffic_class);
                fields.hop_limit = filter.hop_limit;
            }
        }
        IBV_FLOW_SPEC_TCP | IBV_FLOW_SPEC_UDP => {
            let layer: ibv_flow_spec_tcp_udp = layer(bytes)?;
            let header = match kind {
                IBV_FLOW_SPEC_TCP => flow_headers::TCP,
                _ => flow_headers::UDP,
            };
            once(header)?;
            rule.headers |= header << shift;
            for (fields, filter) in [(value, layer.val), (mask, layer.mask)] {
                fields.source_port = u16::from_be(filter.src_port);
                fields.destination_port = u16::from_be(filter.dst_port);
            }
        }
        IBV_FLOW_SPEC_VXLAN_TUNNEL => {
            let layer: ibv_flow_spec_tunnel = layer(bytes)?;
            once(flow_headers::VXLAN)?;
            rule.headers |= flow_headers::VXLAN | flow_headers::UDP;
            rule.value.tunnel = u32::from_be(layer.val.tunnel_id);
            rule.mask.tunnel = u32::from_be(layer.mask.tunnel_id);
        }
        _ => {
            return Err(Errno::UNSUPPORTED.because("flows look at Ethernet, IPv4, IPv6, TCP and UDP, at the identifier of VXLAN and what is inside, and they have no actions"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes with these layers behind them.
    fn attributes(kind: u32, layers: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<ibv_flow_attr>()];
        bytes[4..8].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(layers.concat());
        let size = bytes.len() as u16;
        bytes[8..10].copy_from_slice(&size.to_ne_bytes());
        (bytes[12], bytes[13]) = (layers.len() as u8, 1);
        bytes
    }

    fn of(bytes: &[u8]) -> Result<FlowRule, Errno> {
        // SAFETY: they are attributes.
        unsafe { rule(bytes.as_ptr().cast()) }
    }

    fn udp(port: u16) -> Vec<u8> {
        let mut layer = vec![0; 16];
        layer[..4].copy_from_slice(&IBV_FLOW_SPEC_UDP.to_ne_bytes());
        layer[4..6].copy_from_slice(&16_u16.to_ne_bytes());
        layer[6..8].copy_from_slice(&port.to_be_bytes());
        layer[10..12].fill(0xff);
        layer
    }

    #[test]
    fn layers_are_read_as_the_header_has_them() {
        let mut eth = vec![0; size_of::<ibv_flow_spec_eth>()];
        eth[..4].copy_from_slice(&IBV_FLOW_SPEC_ETH.to_ne_bytes());
        eth[4] = eth.len() as u8;
        eth[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        eth[18..22].copy_from_slice(&[8, 0, 0, 5]);
        eth[22..28].fill(0xff);
        eth[34..38].copy_from_slice(&[0xff, 0xff, 0x0f, 0xff]);
        let rule = of(&attributes(IBV_FLOW_ATTR_NORMAL, &[&eth, &udp(7)])).expect("a rule");
        assert_eq!(
            (rule.value.destination_mac, rule.mask.destination_mac),
            ([2, 0, 0, 0, 0, 9], [0xff; 6])
        );
        assert_eq!(
            (rule.value.ethertype, rule.value.tag, rule.mask.tag),
            (0x800, 5, 0xfff)
        );
        assert_eq!(
            (
                rule.value.destination_port,
                rule.mask.destination_port,
                rule.mask.source_port
            ),
            (7, 0xffff, 0)
        );
        assert_eq!(rule.headers, flow_headers::UDP);
    }

    #[test]
    fn layers_inside_of_a_tunnel_are_their_own() {
        let mut tunnel = vec![0; size_of::<ibv_flow_spec_tunnel>()];
        tunnel[..4].copy_from_slice(&IBV_FLOW_SPEC_VXLAN_TUNNEL.to_ne_bytes());
        tunnel[4] = tunnel.len() as u8;
        let mut inner = udp(8);
        inner[..4].copy_from_slice(&(IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER).to_ne_bytes());
        let layers: [&[u8]; 3] = [&udp(7), &tunnel, &inner];
        let rule = of(&attributes(IBV_FLOW_ATTR_NORMAL, &layers)).expect("a rule");
        assert_eq!(
            (rule.value.destination_port, rule.inner_value.destination_port),
            (7, 8)
        );
        assert_eq!((rule.mask.tunnel, rule.inner_mask.destination_port), (0, 0xffff));
        let expected = flow_headers::UDP | flow_headers::VXLAN | flow_headers::INNER_UDP;
        assert_eq!(rule.headers, expected);
        let twice: [&[u8]; 2] = [&inner, &inner];
        assert_eq!(of(&attributes(IBV_FLOW_ATTR_NORMAL, &twice)), Err(Errno::INVALID));
        tunnel[1] |= 1;
        assert_eq!(
            of(&attributes(IBV_FLOW_ATTR_NORMAL, &[&tunnel])),
            Err(Errno::UNSUPPORTED)
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        let good = attributes(IBV_FLOW_ATTR_NORMAL, &[&udp(7)]);
        assert!(of(&good).is_ok());
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            of(&bytes)
        };
        // The kind, another port, the mask of a comparison, a layer's size.
        for (at, byte) in [(4, 9), (13, 2), (0, 1), (24, 15)] {
            assert_eq!(changed(at, byte), Err(Errno::INVALID), "{at}");
        }
        // The length of all is nobody's business.
        assert!(changed(8, 20).is_ok());
        // A flag that exists, a layer that we do not have.
        for (at, byte) in [(16, 2), (20, 0x60)] {
            assert_eq!(changed(at, byte), Err(Errno::UNSUPPORTED), "{at}");
        }
        assert_eq!(
            of(&attributes(IBV_FLOW_ATTR_SNIFFER, &[&udp(7)])),
            Err(Errno::INVALID)
        );
        assert_eq!(
            of(&attributes(IBV_FLOW_ATTR_NORMAL, &[&udp(7), &udp(8)])),
            Err(Errno::INVALID)
        );
        assert_eq!(
            of(&attributes(IBV_FLOW_ATTR_SNIFFER, &[])).map(|r| r.kind),
            Ok(FlowKind::Sniffer)
        );
    }
}
