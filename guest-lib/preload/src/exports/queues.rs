//! Completion queues, shared receive queues, queue pairs.

use std::ffi::{c_int, c_uint, c_void};

use vnic_verbs::Gid;
use vnic_verbs::connection::Ece;

use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::calls;
use crate::handle::{end, maybe, the};
use crate::objects::{Ah, Channel, Cq, Pd, Qp, Srq, ah, cq, qp};
use crate::sync::lock;

export! {
    /// `man 3 ibv_create_comp_channel`.
    "IBVERBS_1.0" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel, of context,
        as pointer {
        Channel::create(Context::of(context))
    }

    /// `man 3 ibv_destroy_comp_channel`.
    "IBVERBS_1.0" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int, of (*channel).context,
        as code {
        the::<Channel>(channel).uses.none()?;
        end::<Channel>(channel)
    }

    /// `man 3 ibv_create_cq`.
    "IBVERBS_1.1" fn ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void,
        channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq, of context, as pointer {
        let wanted = cq::Wanted {
            entries: cqe.try_into().map_err(|_| Errno::INVALID)?,
            context: cq_context,
            channel: maybe::<Channel>(channel),
            vector: comp_vector.into(),
            parent: None,
        };
        Ok(Cq::create(Context::of(context), &wanted)?.cast())
    }

    /// `man 3 ibv_resize_cq`.
    "IBVERBS_1.1" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int, of (*cq).context, as code {
        the::<Cq>(cq.cast()).resize(cqe.try_into().map_err(|_| Errno::INVALID)?)
    }

    /// `man 3 ibv_destroy_cq`.
    "IBVERBS_1.1" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int, of (*cq).context, as code {
        Cq::destroy(cq.cast())
    }

    /// `man 3 ibv_get_cq_event`.
    "IBVERBS_1.1" fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void) -> c_int, of (*channel).context, as signed {
        let found = the::<Channel>(channel).get()?;
        cq.write(found);
        cq_context.write((*found).cq_context);
        Ok(0)
    }

    /// `man 3 ibv_ack_cq_events`.
    "IBVERBS_1.1" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint), of (*cq).context, as plain {
        let completions = the::<Cq>(cq.cast()).completions.clone();
        calls::completed(&raw mut (*cq).comp_events_completed, count);
        completions.acknowledge(count);
        Ok(())
    }

    /// `man 3 ibv_create_srq`.
    "IBVERBS_1.1" fn ibv_create_srq(pd: *mut ibv_pd, attributes: *mut ibv_srq_init_attr) -> *mut ibv_srq,
        of (*pd).context, as pointer {
        let wanted = &mut *attributes;
        Srq::create(the(pd), wanted.srq_context, &mut wanted.attr, None)
    }

    /// `man 3 ibv_modify_srq`.
    "IBVERBS_1.1" fn ibv_modify_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr, mask: c_int) -> c_int,
        of (*srq).context, as code {
        the::<Srq>(srq).modify(&*attributes, mask.cast_unsigned())
    }

    /// `man 3 ibv_query_srq`.
    "IBVERBS_1.1" fn ibv_query_srq(srq: *mut ibv_srq, into: *mut ibv_srq_attr) -> c_int, of (*srq).context, as code {
        into.write(the::<Srq>(srq).query()?);
        Ok(())
    }

    /// `man 3 ibv_destroy_srq`.
    "IBVERBS_1.1" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int, of (*srq).context, as code {
        Srq::destroy(srq)
    }

    /// `man 3 ibv_create_qp`.
    "IBVERBS_1.1" fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp,
        of (*pd).context, as pointer {
        let attributes = &mut *attributes;
        let mut wanted = qp::Wanted {
            context: attributes.qp_context,
            pd: Some(the::<Pd>(pd)),
            xrcd: None,
            send_cq: maybe::<Cq>(attributes.send_cq.cast()),
            recv_cq: maybe::<Cq>(attributes.recv_cq.cast()),
            srq: maybe::<Srq>(attributes.srq),
            capacity: attributes.cap,
            kind: attributes.qp_type,
            signal_all: attributes.sq_sig_all != 0,
            operations: None,
            dynamic: None,
            tso_header: 0,
            spread: None,
        };
        let qp = Qp::create(Context::of((*pd).context), &mut wanted)?;
        attributes.cap = wanted.capacity;
        Ok(qp)
    }

    /// `man 3 ibv_modify_qp`.
    "IBVERBS_1.1" fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int,
        of (*qp).context, as code {
        the::<Qp>(qp.cast()).modify(&*attributes, mask.cast_unsigned())
    }

    /// `man 3 ibv_query_qp`. Returns all attributes, whatever the mask names.
    "IBVERBS_1.1" fn ibv_query_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, _mask: c_int,
        created: *mut ibv_qp_init_attr) -> c_int, of (*qp).context, as code {
        let found = the::<Qp>(qp.cast()).query()?;
        attributes.write(found.0);
        created.write(found.1);
        Ok(())
    }

    /// `man 3 ibv_destroy_qp`.
    "IBVERBS_1.1" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int, of (*qp).context, as code {
        Qp::destroy(qp.cast())
    }

    /// `man 3 ibv_qp_to_qp_ex`.
    "IBVERBS_1.6" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex, of (*qp).context, as pointer {
        Ok(the::<Qp>(qp.cast()).extended())
    }

    /// `man 3 ibv_attach_mcast`.
    "IBVERBS_1.1" fn ibv_attach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, _lid: u16) -> c_int, of (*qp).context,
        as code {
        the::<Qp>(qp.cast()).attach(Gid((*group).raw))
    }

    /// `man 3 ibv_detach_mcast`.
    "IBVERBS_1.1" fn ibv_detach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, _lid: u16) -> c_int, of (*qp).context,
        as code {
        the::<Qp>(qp.cast()).detach(Gid((*group).raw))
    }

    /// `man 3 ibv_create_ah`.
    "IBVERBS_1.1" fn ibv_create_ah(pd: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah, of (*pd).context,
        as pointer {
        Ah::create(the(pd), &*attributes)
    }

    /// `man 3 ibv_init_ah_from_wc`.
    "IBVERBS_1.1" fn ibv_init_ah_from_wc(context: *mut ibv_context, port: u8, wc: *mut ibv_wc, grh: *mut ibv_grh,
        into: *mut ibv_ah_attr) -> c_int, of context, as signed {
        into.write(ah::from_wc::init(Context::of(context), port, &*wc, grh.cast::<[u8; 40]>().as_ref())?);
        Ok(0)
    }

    /// `man 3 ibv_create_ah_from_wc`.
    "IBVERBS_1.1" fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port: u8) -> *mut ibv_ah,
        of (*pd).context, as pointer {
        let context = Context::of((*pd).context);
        Ah::create(the(pd), &ah::from_wc::init(context, port, &*wc, grh.cast::<[u8; 40]>().as_ref())?)
    }

    /// `man 3 ibv_destroy_ah`.
    "IBVERBS_1.1" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int, of (*ah).context, as code {
        end::<Ah>(ah)
    }
}

export! {
    /// `man 3 ibv_query_ece`: what was set. Our devices have no enhancements of their own.
    "IBVERBS_1.10" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int, of (*qp).context, as code {
        let Ece { vendor, options } = *lock(&the::<Qp>(qp.cast()).ece);
        ece.write(ibv_ece { vendor_id: vendor, options, comp_mask: 0 });
        Ok(())
    }

    /// `man 3 ibv_set_ece`. Peers hear of it by the connection, which is all that comes of it.
    "IBVERBS_1.10" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int, of (*qp).context, as code {
        let wanted = &*ece;
        if wanted.comp_mask != 0 || wanted.vendor_id >> 24 != 0 {
            return Err(Errno::INVALID);
        }
        *lock(&the::<Qp>(qp.cast()).ece) = Ece { vendor: wanted.vendor_id, options: wanted.options };
        Ok(())
    }
}
