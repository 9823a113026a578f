//! How work requests in C become ours.

#![expect(unsafe_code, reason = "makes lists of work requests as programs in C do")]

use std::fmt::Debug;

use super::*;

const ONE: [ibv_sge; 1] = [ibv_sge {
    addr: 0x1000,
    length: 8,
    lkey: 3,
}];

const SAME: Sge = Sge {
    addr: 0x1000,
    len: 8,
    lkey: 3,
};

/// As a program fills it, with what `opcode` has.
fn wr(opcode: c_uint) -> ibv_send_wr {
    // SAFETY: numbers and pointers only.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = 0x1_0000_0001;
    wr.opcode = opcode;
    wr.sg_list = ONE.as_ptr().cast_mut();
    wr.num_sge = 1;
    wr
}

fn rdma(opcode: c_uint) -> ibv_send_wr {
    let mut wr = wr(opcode);
    wr.wr.rdma = ibv_wr_rdma {
        remote_addr: 0x2000,
        rkey: 7,
    };
    wr
}

fn atomic(opcode: c_uint) -> ibv_send_wr {
    let mut wr = wr(opcode);
    wr.wr.atomic = ibv_wr_atomic {
        remote_addr: 0x2000,
        compare_add: 5,
        swap: 6,
        rkey: 7,
    };
    wr
}

fn with_imm(mut wr: ibv_send_wr) -> ibv_send_wr {
    wr.datum.imm_data = 0x0a0b_0c0d_u32.to_be();
    wr
}

fn with_key(mut wr: ibv_send_wr) -> ibv_send_wr {
    wr.datum.invalidate_rkey = 0x77;
    wr
}

fn converted<'a>(service: Service, wr: &ibv_send_wr) -> Result<SendWr<'a>, Errno> {
    // SAFETY: the tests fill them as the header asks.
    unsafe {
        let list = elements(wr.sg_list, wr.num_sge)?;
        if let IBV_WR_ATOMIC_CMP_AND_SWP..=IBV_WR_BIND_MW = wr.opcode {
            return special(service, wr, list);
        }
        let mut head = head(service, wr)?;
        head.flags = plain_flags(wr.send_flags)?;
        Ok(SendWr::from_parts(head, Data::from(list)))
    }
}

#[track_caller]
fn same(left: impl Debug, right: impl Debug) {
    // Where it goes is in the head.
    let text =
        |what: &dyn Debug| format!("{what:?}").replace("has_destination: true", "has_destination: false");
    assert_eq!(text(&left), text(&right));
}

#[test]
fn every_operation_becomes_its_own() {
    let list = &[SAME];
    for (c, ours) in [
        (rdma(IBV_WR_RDMA_WRITE), SendWr::write(list, 0x2000, 7)),
        (
            with_imm(rdma(IBV_WR_RDMA_WRITE_WITH_IMM)),
            SendWr::write(list, 0x2000, 7).imm(0x0a0b_0c0d),
        ),
        (wr(IBV_WR_SEND), SendWr::send(list)),
        (
            with_imm(wr(IBV_WR_SEND_WITH_IMM)),
            SendWr::send(list).imm(0x0a0b_0c0d),
        ),
        (
            with_key(wr(IBV_WR_SEND_WITH_INV)),
            SendWr::send(list).invalidate(0x77),
        ),
        (rdma(IBV_WR_RDMA_READ), SendWr::read(list, 0x2000, 7)),
        (
            atomic(IBV_WR_ATOMIC_CMP_AND_SWP),
            SendWr::compare_swap(SAME, 0x2000, 7, 5, 6),
        ),
        (
            atomic(IBV_WR_ATOMIC_FETCH_AND_ADD),
            SendWr::fetch_add(SAME, 0x2000, 7, 5),
        ),
        (with_key(wr(IBV_WR_LOCAL_INV)), SendWr::local_invalidate(0x77)),
    ] {
        let ours = ours.id(0x1_0000_0001);
        same(converted(Service::Connected, &c), Ok::<_, Errno>(ours));
        // The peer's shared receive queue, of extended connections only.
        let mut extended = c;
        extended.qp_type.xrc.remote_srqn = 0x55;
        same(converted(Service::Connected, &extended), Ok::<_, Errno>(ours));
        let ours = ours.to_srq(0x55);
        same(converted(Service::Extended, &extended), Ok::<_, Errno>(ours));
    }
}

#[test]
fn flags_are_passed_on() {
    let list = &[SAME];
    let plain = SendWr::send(list).id(0x1_0000_0001);
    for (flags, ours) in [
        (0, plain),
        (IBV_SEND_FENCE, plain.fence()),
        (IBV_SEND_SIGNALED, plain.signaled()),
        (IBV_SEND_SOLICITED, plain.solicited()),
        (PLAIN_FLAGS, plain.fence().signaled().solicited()),
    ] {
        let mut c = wr(IBV_WR_SEND);
        c.send_flags = flags;
        same(converted(Service::Connected, &c), Ok::<_, Errno>(ours));
    }
    for wrong in [IBV_SEND_IP_CSUM, 32, 1 << 31] {
        let mut c = wr(IBV_WR_SEND);
        c.send_flags = wrong;
        same(converted(Service::Connected, &c), Err::<(), _>(Errno::INVALID));
    }
}

#[test]
fn what_is_not_there_is_refused() {
    for unknown in [IBV_WR_TSO, IBV_WR_ATOMIC_WRITE, 11, 16, 256, c_uint::MAX] {
        same(
            converted(Service::Connected, &wr(unknown)),
            Err::<(), _>(Errno::UNSUPPORTED),
        );
    }
    let refused = |c: &ibv_send_wr| converted(Service::Connected, c).err() == Some(Errno::INVALID);
    // Counts of elements.
    for count in [-1, c_int::MIN] {
        let mut c = wr(IBV_WR_SEND);
        c.num_sge = count;
        assert!(refused(&c), "{count} elements");
    }
    for count in [0, 2] {
        let two = [ONE[0]; 2];
        let mut c = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD);
        c.sg_list = two.as_ptr().cast_mut();
        c.num_sge = count;
        assert!(refused(&c), "an atomic of {count} elements");
    }
    // A datagram to nowhere, a bind of nothing.
    let nowhere = converted(Service::Datagram, &wr(IBV_WR_SEND));
    assert_eq!(nowhere.err(), Some(Errno::INVALID));
    assert!(refused(&wr(IBV_WR_BIND_MW)));
}

#[test]
fn a_list_of_no_elements_needs_no_list() {
    let mut c = wr(IBV_WR_SEND);
    (c.sg_list, c.num_sge) = (std::ptr::null_mut(), 0);
    let ours = SendWr::send(&[]).id(0x1_0000_0001);
    same(converted(Service::Connected, &c), Ok::<_, Errno>(ours));
}

#[test]
fn receives_are_taken_one_by_one() {
    let two = [ONE[0]; 2];
    let mut last = ibv_recv_wr {
        wr_id: 3,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: -1,
    };
    let mut middle = ibv_recv_wr {
        wr_id: 2,
        next: &raw mut last,
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
    };
    let mut first = ibv_recv_wr {
        wr_id: 1,
        next: &raw mut middle,
        sg_list: two.as_ptr().cast_mut(),
        num_sge: 2,
    };
    let all = |first| Receives { next: first }.collect::<Vec<_>>();
    same(all(std::ptr::null_mut()), Vec::<()>::new());
    // The last is one that no queue takes.
    let expected = [
        RecvWr::new(&[SAME, SAME]).id(1),
        RecvWr::new(&[]).id(2),
        RecvWr::new(Data::inline(b"")).id(3),
    ];
    same(all(&raw mut first), expected);
    // What was refused is found by its place.
    for (posted, reason, errno) in [
        (0, PostReason::Full, Errno::NO_MEMORY),
        (1, PostReason::Length, Errno::INVALID),
        (2, PostReason::Malformed, Errno::INVALID),
        (0, PostReason::Gone, Errno::BROKEN),
    ] {
        let mut bad = std::ptr::null_mut();
        // SAFETY: the list above.
        let result = unsafe { received(Err(PostError { posted, reason }), &raw mut first, &raw mut bad) };
        assert_eq!(result, Err(errno));
        // SAFETY: it is one of the list.
        assert_eq!(unsafe { (*bad).wr_id }, posted as u64 + 1);
    }
}

#[test]
fn bytes_of_no_length_are_nowhere() {
    let text = b"hello";
    // SAFETY: they are there.
    unsafe {
        assert_eq!(bytes(text.as_ptr().expose_provenance() as u64 + 1, 3), b"ell");
        assert_eq!(bytes(0, 0), b"");
    }
}
