//! Functions that programs call by way of the context.

use std::ffi::{c_int, c_uint};

use super::query::{query_device_ex, query_port, query_rt_values};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::{end, maybe, the};
use crate::objects::qp::{Dynamic, Extended, Wanted};
use crate::objects::{
    Channel, Cq, Dm, Flow, Mr, Mw, Pd, Qp, RwqIndTable, Srq, Td, Wq, Xrcd, cq, only, qp, wq,
};
use crate::work::fields;
use crate::work::poll::poll_cq;
use crate::work::post::{bind_mw, elements, post_recv, post_send, post_srq_recv, post_wq_recv};

/// Fields that completions of an extended queue may have. There are no local identifiers (LIDs) and path bits on
/// Ethernet: they read as 0, as those of other devices.
const FIELDS: u32 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    | IBV_WC_EX_WITH_CVLAN;

/// Completions that perftest takes for an event before it waits for the next one.
const BATCH: u32 = 16;

operation! {
    /// `man 3 ibv_alloc_td`.
    fn alloc_td(context: *mut ibv_context, attributes: *mut ibv_td_init_attr) -> *mut ibv_td, as pointer {
        Td::alloc(Context::of(context), &*attributes)
    }

    /// `man 3 ibv_dealloc_td`.
    fn dealloc_td(td: *mut ibv_td) -> c_int, as code {
        the::<Td>(td).uses.none()?;
        end::<Td>(td)
    }

    /// `man 3 ibv_alloc_parent_domain`.
    fn alloc_parent_domain(context: *mut ibv_context, attributes: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
        as pointer {
        let attributes = &*attributes;
        let parent = maybe::<Pd>(attributes.pd).ok_or(Errno::INVALID)?;
        Pd::of_parent(Context::of(context), parent, maybe::<Td>(attributes.td), attributes)
    }

    /// `man 3 ibv_alloc_mw`.
    fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw, as pointer {
        Mw::alloc(the(pd), kind)
    }

    /// `man 3 ibv_dealloc_mw`.
    fn dealloc_mw(mw: *mut ibv_mw) -> c_int, as code {
        end::<Mw>(mw)
    }

    /// `man 3 ibv_advise_mr`.
    fn advise_mr(pd: *mut ibv_pd, advice: c_uint, flags: u32, list: *mut ibv_sge, count: u32) -> c_int, as code {
        only(flags, IBV_ADVISE_MR_FLAG_FLUSH, Errno::INVALID)?;
        let write = match advice {
            IBV_ADVISE_MR_ADVICE_PREFETCH | IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => false,
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => true,
            _ => return Err(Errno::UNSUPPORTED.because("ibv_advise_mr: no such advice")),
        };
        let what = elements(list, c_int::try_from(count).map_err(|_| Errno::INVALID)?)?;
        Ok(the::<Pd>(pd).inner.prefetch(what, write, flags & IBV_ADVISE_MR_FLAG_FLUSH != 0)?)
    }

    /// `man 3 ibv_alloc_null_mr`.
    fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr, as pointer {
        Mr::null(the(pd))
    }

    /// `man 3 ibv_alloc_dm`.
    fn alloc_dm(context: *mut ibv_context, attributes: *mut ibv_alloc_dm_attr) -> *mut ibv_dm, as pointer {
        Dm::alloc(Context::of(context), &*attributes)
    }

    /// `man 3 ibv_free_dm`.
    fn free_dm(dm: *mut ibv_dm) -> c_int, as code {
        the::<Dm>(dm).uses.none()?;
        end::<Dm>(dm)
    }

    /// `man 3 ibv_reg_dm_mr`.
    fn reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: size_t, access: c_uint) -> *mut ibv_mr,
        as pointer {
        the::<Dm>(dm).register(the(pd), offset, length, access)
    }

    /// `man 3 ibv_req_notify_cq`.
    fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int, as code {
        Ok(the::<Cq>(cq.cast()).inner.req_notify_new(solicited_only != 0, BATCH)?)
    }

    /// `man 3 ibv_modify_cq`: our devices do not moderate completions.
    fn modify_cq(_cq: *mut ibv_cq, _attributes: *mut ibv_modify_cq_attr) -> c_int, as code {
        Err(Errno::UNSUPPORTED.because("ibv_modify_cq: completions are not moderated"))
    }

    /// `man 3 ibv_create_cq_ex`. The flag for use by a single thread changes nothing; the flag for a queue that
    /// forgets completions without room is refused.
    fn create_cq_ex(context: *mut ibv_context, attributes: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex, as pointer {
        let wanted = &*attributes;
        let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        only(wanted.comp_mask, known, Errno::INVALID)?;
        if wanted.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 {
            only(wanted.flags, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, Errno::UNSUPPORTED)
                .map_err(|e| e.because("a completion queue never forgets completions (IGNORE_OVERRUN)"))?;
        }
        let parent = if wanted.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
            Some(maybe::<Pd>(wanted.parent_domain).ok_or(Errno::INVALID)?)
        } else {
            None
        };
        only(wanted.wc_flags, FIELDS, Errno::UNSUPPORTED)
            .map_err(|e| e.because("completions have no flow tag and no tag matching"))?;
        let wanted = cq::Wanted {
            entries: wanted.cqe,
            context: wanted.cq_context,
            channel: maybe::<Channel>(wanted.channel),
            vector: wanted.comp_vector.into(),
            parent,
        };
        let cq = Cq::create(Context::of(context), &wanted)?;
        fields::equip(&mut *cq);
        Ok(cq)
    }

    /// `man 3 ibv_create_srq_ex`.
    fn create_srq_ex(_context: *mut ibv_context, attributes: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq, as pointer {
        let wanted = &mut *attributes;
        let has = |bit: c_uint| wanted.comp_mask & bit != 0;
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ
            | IBV_SRQ_INIT_ATTR_TM;
        only(wanted.comp_mask, known, Errno::INVALID)?;
        let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) { wanted.srq_type } else { IBV_SRQT_BASIC };
        let pd = if has(IBV_SRQ_INIT_ATTR_PD) { maybe::<Pd>(wanted.pd) } else { None };
        let pd = pd.ok_or(Errno::INVALID)?;
        let xrc = match kind {
            IBV_SRQT_BASIC => None,
            IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_XRCD) && has(IBV_SRQ_INIT_ATTR_CQ) => {
                let xrcd = maybe::<Xrcd>(wanted.xrcd).ok_or(Errno::INVALID)?;
                Some((xrcd, maybe::<Cq>(wanted.cq.cast()).ok_or(Errno::INVALID)?))
            }
            IBV_SRQT_TM => return Err(Errno::UNSUPPORTED.because("no tag matching")),
            _ => return Err(Errno::INVALID),
        };
        Srq::create(pd, wanted.srq_context, &mut wanted.attr, xrc)
    }

    /// `man 3 ibv_get_srq_num`.
    fn get_srq_num(srq: *mut ibv_srq, into: *mut u32) -> c_int, as code {
        into.write(the::<Srq>(srq).number());
        Ok(())
    }

    /// `man 3 ibv_open_xrcd`.
    fn open_xrcd(context: *mut ibv_context, attributes: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd, as pointer {
        Xrcd::open(Context::of(context), &*attributes)
    }

    /// `man 3 ibv_close_xrcd`.
    fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int, as code {
        the::<Xrcd>(xrcd).uses.none()?;
        end::<Xrcd>(xrcd)
    }

    /// `man 3 ibv_create_qp_ex`.
    fn create_qp_ex(context: *mut ibv_context, attributes: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp, as pointer {
        create_extended(context, &mut *attributes, None)
    }

    /// `man 3 ibv_open_qp`.
    fn open_qp(context: *mut ibv_context, attributes: *mut ibv_qp_open_attr) -> *mut ibv_qp, as pointer {
        let wanted = &*attributes;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        only(wanted.comp_mask, needed | IBV_QP_OPEN_ATTR_CONTEXT, Errno::INVALID)?;
        if wanted.comp_mask & needed != needed || wanted.qp_type != IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        let xrcd = maybe::<Xrcd>(wanted.xrcd).ok_or(Errno::INVALID)?;
        let named = wanted.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
        let program = if named { wanted.qp_context } else { std::ptr::null_mut() };
        qp::open(Context::of(context), xrcd, wanted.qp_num, program)
    }

    /// `man 3 ibv_create_wq`.
    fn create_wq(context: *mut ibv_context, attributes: *mut ibv_wq_init_attr) -> *mut ibv_wq, as pointer {
        let wq = Wq::create(Context::of(context), &mut *attributes)?;
        (*wq).post_recv = Some(post_wq_recv);
        Ok(wq)
    }

    /// `man 3 ibv_modify_wq`.
    fn modify_wq(wq: *mut ibv_wq, attributes: *mut ibv_wq_attr) -> c_int, as code {
        the::<Wq>(wq).modify(&*attributes)
    }

    /// `man 3 ibv_create_wq`.
    fn destroy_wq(wq: *mut ibv_wq) -> c_int, as code {
        Wq::destroy(wq)
    }

    /// `man 3 ibv_create_rwq_ind_table`.
    fn create_rwq_ind_table(context: *mut ibv_context, attributes: *mut ibv_rwq_ind_table_init_attr)
        -> *mut ibv_rwq_ind_table, as pointer {
        RwqIndTable::create(Context::of(context), &*attributes)
    }

    /// `man 3 ibv_create_rwq_ind_table`.
    fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int, as code {
        the::<RwqIndTable>(table).uses.none()?;
        end::<RwqIndTable>(table)
    }

    /// `man 3 ibv_create_flow`.
    fn ibv_create_flow(qp: *mut ibv_qp, attributes: *mut ibv_flow_attr) -> *mut ibv_flow, as pointer {
        Flow::create(Context::of((*qp).context), the::<Qp>(qp.cast()), attributes)
    }

    /// `man 3 ibv_create_flow`.
    fn ibv_destroy_flow(flow: *mut ibv_flow) -> c_int, as code {
        end::<Flow>(flow)
    }

    /// `man 3 ibv_modify_qp_rate_limit`.
    fn modify_qp_rate_limit(qp: *mut ibv_qp, limit: *mut ibv_qp_rate_limit_attr) -> c_int, as code {
        the::<Qp>(qp.cast()).limit_rate(&*limit)
    }
}

/// Makes a queue pair by extended attributes; `dynamic`: as an end of dynamic connections.
///
/// # Safety
/// The context is ours, and the attributes are what `ibv_create_qp_ex` asks for.
pub unsafe fn create_extended(
    context: *mut ibv_context,
    attributes: &mut ibv_qp_init_attr_ex,
    dynamic: Option<Dynamic>,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: by the caller's promise, for all pointers here.
    unsafe {
        // Fields that the mask does not name need not be there: structures of older programs are shorter.
        let has = |bit: c_uint| attributes.comp_mask & bit != 0;
        let extended = Extended {
            mask: attributes.comp_mask,
            flags: if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) {
                attributes.create_flags
            } else {
                0
            },
            tso_header: if has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) {
                attributes.max_tso_header
            } else {
                0
            },
        };
        extended.check()?;
        let spread = match (has(IBV_QP_INIT_ATTR_IND_TABLE), has(IBV_QP_INIT_ATTR_RX_HASH)) {
            (false, false) => None,
            (true, true) => {
                let table = maybe::<RwqIndTable>(attributes.rwq_ind_tbl).ok_or(Errno::INVALID)?;
                Some((table, wq::rule(&attributes.rx_hash_conf)?))
            }
            _ => return Err(Errno::INVALID.because("an indirection table and a hash (RSS) come together")),
        };
        let mut wanted = Wanted {
            context: attributes.qp_context,
            pd: if has(IBV_QP_INIT_ATTR_PD) {
                maybe::<Pd>(attributes.pd)
            } else {
                None
            },
            xrcd: if has(IBV_QP_INIT_ATTR_XRCD) {
                maybe::<Xrcd>(attributes.xrcd)
            } else {
                None
            },
            send_cq: maybe::<Cq>(attributes.send_cq.cast()),
            recv_cq: maybe::<Cq>(attributes.recv_cq.cast()),
            srq: maybe::<Srq>(attributes.srq),
            capacity: attributes.cap,
            kind: attributes.qp_type,
            signal_all: attributes.sq_sig_all != 0,
            operations: has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attributes.send_ops_flags),
            dynamic,
            tso_header: extended.tso_header,
            spread,
        };
        let qp = Qp::create(Context::of(context), &mut wanted)?;
        attributes.cap = wanted.capacity;
        Ok(qp)
    }
}

/// A context with the functions that the program's inline functions call by way of it, and zeros. A missing function
/// makes them return EOPNOTSUPP.
pub fn operations() -> verbs_context {
    let mut all: verbs_context = zeros();
    all.sz = size_of::<verbs_context>();
    give! {
        all.context.ops;
        poll_cq post_send post_recv post_srq_recv bind_mw req_notify_cq alloc_mw dealloc_mw
    }
    give! {
        all;
        query_port query_device_ex query_rt_values advise_mr alloc_null_mr reg_dm_mr alloc_dm free_dm
        modify_qp_rate_limit alloc_parent_domain dealloc_td alloc_td modify_cq create_cq_ex open_qp create_qp_ex
        get_srq_num create_srq_ex open_xrcd close_xrcd ibv_create_flow ibv_destroy_flow create_wq modify_wq destroy_wq
        create_rwq_ind_table destroy_rwq_ind_table
    }
    all
}
