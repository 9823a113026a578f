//! States and attributes of queue pairs.

#![expect(unsafe_code, reason = "keeps the state up to date that programs read")]

use vnic_verbs::{AddressVector, QpAttributes, QpMask, RateLimit};

use super::{AnyQp, Qp};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::ah;

/// Attributes with the same number in the header and in the contract: all but one of ours.
const SAME: u32 = QpMask::all().difference(QpMask::UDP_SOURCE_PORT).bits();

const _: () = {
    assert!(IBV_QP_STATE == QpMask::STATE.bits() && IBV_QP_CUR_STATE == QpMask::CURRENT_STATE.bits());
    assert!(IBV_QP_EN_SQD_ASYNC_NOTIFY == QpMask::DRAINED_EVENT.bits());
    assert!(IBV_QP_ACCESS_FLAGS == QpMask::ACCESS.bits());
    assert!(IBV_QP_PKEY_INDEX == QpMask::PKEY_INDEX.bits() && IBV_QP_PORT == QpMask::PORT.bits());
    assert!(IBV_QP_QKEY == QpMask::QKEY.bits() && IBV_QP_AV == QpMask::ADDRESS.bits());
    assert!(IBV_QP_PATH_MTU == QpMask::PATH_MTU.bits() && IBV_QP_TIMEOUT == QpMask::TIMEOUT.bits());
    assert!(IBV_QP_RETRY_CNT == QpMask::RETRY_COUNT.bits());
    assert!(IBV_QP_RNR_RETRY == QpMask::RNR_RETRY.bits() && IBV_QP_RQ_PSN == QpMask::RQ_PSN.bits());
    assert!(IBV_QP_MAX_QP_RD_ATOMIC == QpMask::MAX_RD_ATOMIC.bits());
    assert!(IBV_QP_MIN_RNR_TIMER == QpMask::MIN_RNR_TIMER.bits());
    assert!(IBV_QP_SQ_PSN == QpMask::SQ_PSN.bits());
    assert!(IBV_QP_MAX_DEST_RD_ATOMIC == QpMask::MAX_DEST_RD_ATOMIC.bits());
    assert!(IBV_QP_DEST_QPN == QpMask::DESTINATION_QP.bits());
};

/// Rights that a queue pair may give its peer. Other rights are of memory, and mean nothing here.
const RIGHTS: u32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

impl Qp {
    /// Changes the attributes that `mask` names.
    pub fn modify(&self, wanted: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        let rate = mask & IBV_QP_RATE_LIMIT != 0;
        let mask = mask & !self.other_end();
        let (attributes, known) = attributes(wanted, mask)?;
        if known.is_empty() && !rate {
            // The call asks for nothing, or for the present state.
            return Ok(());
        }
        if !known.is_empty() {
            self.inner.modify(&attributes, known).map_err(ah::no_such_gid)?;
        }
        if known.contains(QpMask::STATE) {
            self.set_state(wanted.qp_state);
        }
        if rate {
            self.inner.set_rate_limit(RateLimit::kbps(wanted.rate_limit))?;
        }
        Ok(())
    }

    /// Attributes that an end of XRC does not have. Programs name them for both ends; the kernel ignores them.
    fn other_end(&self) -> u32 {
        match self.inner {
            AnyQp::XrcSend(_) => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
            AnyQp::XrcRecv(_) => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
            _ => 0,
        }
    }

    /// Attributes of the queue pair, and of its creation.
    pub fn query(&self) -> Result<(ibv_qp_attr, ibv_qp_init_attr), Errno> {
        let found = self.inner.query()?;
        self.set_state(found.attributes.state.into());
        let base = self.plain();
        // SAFETY: fields that nobody changes.
        let created = unsafe {
            ibv_qp_init_attr {
                qp_context: (*base).qp_context,
                send_cq: (*base).send_cq,
                recv_cq: (*base).recv_cq,
                srq: (*base).srq,
                cap: self.capacity,
                qp_type: (*base).qp_type,
                sq_sig_all: self.signal_all.into(),
            }
        };
        Ok((shown(&found.attributes, found.address(), self.capacity), created))
    }

    fn set_state(&self, state: u32) {
        // SAFETY: a field that the program reads and only calls like this change.
        unsafe { (*self.c()).qp_base.state = state };
    }
}

/// Attributes for the device.
fn attributes(wanted: &ibv_qp_attr, mask: u32) -> Result<(QpAttributes, QpMask), Errno> {
    // Paths do not migrate: "has migrated" (0) is the only possible state.
    let migrates = mask & IBV_QP_PATH_MIG_STATE != 0 && wanted.path_mig_state != IBV_MIG_MIGRATED;
    if mask & (IBV_QP_ALT_PATH | IBV_QP_CAP) != 0 || migrates {
        return Err(Errno::UNSUPPORTED.because("no alternate paths, and a queue pair keeps its capacity"));
    }
    if mask & !(SAME | IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT) != 0 {
        return Err(Errno::INVALID);
    }
    let small = |value: u32| u8::try_from(value).map_err(|_| Errno::INVALID);
    let named = |bit: u32| mask & bit != 0;
    let mut all = QpAttributes {
        drained_event: (wanted.en_sqd_async_notify != 0).into(),
        max_rd_atomic: wanted.max_rd_atomic,
        max_dest_rd_atomic: wanted.max_dest_rd_atomic,
        min_rnr_timer: wanted.min_rnr_timer,
        port: wanted.port_num,
        timeout: wanted.timeout,
        retry_count: wanted.retry_cnt,
        rnr_retry: wanted.rnr_retry,
        pkey_index: wanted.pkey_index,
        access: wanted.qp_access_flags & RIGHTS,
        qkey: wanted.qkey,
        // Programs choose random numbers, of which packets carry 24 bits.
        rq_psn: wanted.rq_psn & PSN,
        sq_psn: wanted.sq_psn & PSN,
        destination_qp: wanted.dest_qp_num,
        ..QpAttributes::default()
    };
    if named(IBV_QP_STATE) {
        all.state = small(wanted.qp_state)?;
    }
    if named(IBV_QP_CUR_STATE) {
        all.current_state = small(wanted.cur_qp_state)?;
    }
    if named(IBV_QP_PATH_MTU) {
        all.path_mtu = small(wanted.path_mtu)?;
    }
    if named(IBV_QP_PORT) && wanted.port_num != 1 {
        return Err(Errno::INVALID);
    }
    if named(IBV_QP_AV) {
        all.address = ah::address(&wanted.ah_attr)?.into();
    }
    Ok((all, QpMask::from_bits_truncate(mask & SAME)))
}

const PSN: u32 = 0xff_ffff;

/// The device's answer, as programs see it.
pub fn shown(has: &QpAttributes, way: Option<AddressVector>, capacity: ibv_qp_cap) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: has.state.into(),
        cur_qp_state: has.state.into(),
        path_mtu: has.path_mtu.into(),
        path_mig_state: IBV_MIG_MIGRATED,
        qkey: has.qkey,
        rq_psn: has.rq_psn,
        sq_psn: has.sq_psn,
        dest_qp_num: has.destination_qp,
        qp_access_flags: has.access,
        cap: capacity,
        ah_attr: way.as_ref().map_or(zeros(), ah::attributes),
        pkey_index: has.pkey_index,
        en_sqd_async_notify: has.drained_event,
        max_rd_atomic: has.max_rd_atomic,
        max_dest_rd_atomic: has.max_dest_rd_atomic,
        min_rnr_timer: has.min_rnr_timer,
        port_num: has.port.max(1),
        timeout: has.timeout,
        retry_cnt: has.retry_count,
        rnr_retry: has.rnr_retry,
        ..zeros()
    }
}
