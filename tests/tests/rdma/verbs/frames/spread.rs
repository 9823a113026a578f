//! Work queues, and queue pairs that spread frames over them by their hash.

use vnic_verbs::work_queue::{HASH_KEY_LEN, hash_types};
use vnic_verbs::{Capabilities, HashQueuePair, HashRule, WorkQueue};

use super::*;

/// Work queues of one side, which are ready, each with a completion queue of its own and receives of 2 KiB.
struct Queues {
    queues: Vec<WorkQueue>,
    cqs: Vec<CompletionQueue>,
}

const RECEIVES: usize = 16;

impl Side {
    fn queues(&self, n: usize) -> Result<Queues> {
        let cqs = (0..n)
            .map(|_| self.context.create_cq(64))
            .collect::<Result<Vec<_>, _>>()?;
        let queues = cqs
            .iter()
            .map(|cq| WorkQueue::new(&self.pd, cq, RECEIVES as u32, 1));
        let all = Queues {
            queues: queues.collect::<Result<_, _>>()?,
            cqs,
        };
        for queue in &all.queues {
            queue.to_ready()?;
            for i in 0..RECEIVES {
                self.receive(queue, i)?;
            }
        }
        Ok(all)
    }

    fn receive(&self, queue: &WorkQueue, i: usize) -> Result<()> {
        let at = LEN / 2 + 2048 * i;
        queue.post_recv(&[RecvWr::new(self.region.slice(at..at + 2048)).id(i as u64)])?;
        Ok(())
    }

    fn hash(&self, types: u32, table: &[WorkQueue]) -> Result<HashQueuePair, Error> {
        HashQueuePair::new(&self.pd, &HashRule { types, key: key() }, table)
    }
}

fn key() -> [u8; HASH_KEY_LEN] {
    std::array::from_fn(|i| (i as u8).wrapping_mul(73).wrapping_add(11))
}

/// The hash as Microsoft describes it: for each bit of the input that is set the 32 bits of the key that begin at it.
fn toeplitz(input: &[u8]) -> usize {
    let bit = |bytes: &[u8], at: usize| usize::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let window = |at: usize| (at..at + 32).fold(0, |sum, i| sum << 1 | bit(&key(), i));
    let set = (0..8 * input.len()).filter(|at| bit(input, *at) == 1);
    set.fold(0, |sum, at| sum ^ window(at))
}

/// A frame whose sender has this port.
fn from_port(port: u16) -> Vec<u8> {
    let mut frame = udp(A, B, 7, 40);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn frames_go_where_their_hash_says() -> Result<()> {
    for cores in [1, 2] {
        let Pair { rig: _rig, a, b } = pair_on(cores)?;
        let device = b.context.query_device();
        ensure!(device.capabilities().contains(Capabilities::RSS));
        let qa = a.raw()?;
        let Queues { queues, cqs } = b.queues(4)?;
        let order = [2, 0, 3, 1, 1, 3, 0, 2];
        let table = order.map(|i| queues[i].clone());
        let spread = b.hash(hash_types::IPV4 | hash_types::UDPV4, &table)?;
        let _flow = spread.create_flow(&to_port(7, 0))?;
        let mut used = [0; 4];
        for port in 1000..1064 {
            let frame = from_port(port);
            let queue = order[toeplitz(&frame[26..38]) % 8];
            a.send(&qa, &frame)?;
            let wc = take(&cqs[queue])?;
            wc.ok()?;
            assert_eq!(
                (wc.qp(), wc.byte_len()),
                (queues[queue].number(), frame.len() as u32)
            );
            let i = wc.id() as usize;
            assert_eq!(b.region.read_vec(LEN / 2 + 2048 * i, frame.len()), frame);
            b.receive(&queues[queue], i)?;
            used[queue] += 1;
        }
        assert!(used.iter().all(|n| *n > 0), "{used:?}");
        for cq in &cqs {
            quiet(cq)?;
        }
    }
    Ok(())
}

/// RESET takes nothing, ERR flushes, and back to RESET forgets; frames for a queue that takes none go to no other.
#[test]
fn a_work_queue_has_three_states() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let qa = a.raw()?;
    let queue = WorkQueue::new(&b.pd, &b.cq, 4, 1)?;
    let other = WorkQueue::new(&b.pd, &b.cq, 4, 1)?;
    other.to_ready()?;
    let receive = |queue: &WorkQueue, id| queue.post_recv(&[RecvWr::new(b.region.slice(..2048)).id(id)]);
    receive(&other, 9)?;
    let refused = receive(&queue, 1).err().map(|e| e.reason);
    assert_eq!(refused, Some(PostReason::State(QpState::Reset)));
    // Frames without a hash go to the first.
    let spread = b.hash(0, &[queue.clone(), other.clone()])?;
    let flow = spread.create_flow(&to_port(7, 0))?;
    let frame = from_port(5);
    a.send(&qa, &frame)?;
    quiet(&b.cq)?;
    queue.to_ready()?;
    queue.to_ready()?;
    receive(&queue, 2)?;
    a.send(&qa, &frame)?;
    assert_eq!(b.done()?.id(), 2);
    receive(&queue, 3)?;
    queue.to_error()?;
    let flushed = take(&b.cq)?;
    assert_eq!(
        (flushed.id(), flushed.status()),
        (3, CompletionStatus::FlushError)
    );
    assert!(queue.to_ready().is_err(), "only RESET leads out of ERR");
    queue.to_reset()?;
    queue.to_ready()?;
    receive(&queue, 4)?;
    a.send(&qa, &frame)?;
    assert_eq!(b.done()?.id(), 4);
    // What is in use stays: a flow its spread, and that its queues.
    drop((spread, queue));
    let limits = (0..64)
        .map(|_| b.hash(0, std::slice::from_ref(&other)))
        .collect::<Vec<_>>();
    let full = limits.last().and_then(|last| last.as_ref().err()?.status());
    assert_eq!(
        full,
        Some(CommandStatus::LimitReached),
        "the first is there, by its flow"
    );
    drop((limits, flow));
    assert!(b.hash(0, std::slice::from_ref(&other)).is_ok());
    assert!(
        b.hash(0, &[other.clone(), other.clone(), other]).is_err(),
        "no power of two"
    );
    Ok(())
}

#[test]
fn a_process_that_ends_leaves_no_spread() -> Result<()> {
    let (Pair { rig, a, b }, mut guest) = beside_a_guest()?;
    let qa = a.raw()?;
    let Queues { queues, cqs } = b.queues(2)?;
    let spread = b.hash(hash_types::ALL, &queues)?;
    let flow = spread.create_flow(&to_port(7, 0))?;
    a.send(&qa, &from_port(5))?;
    b.context.reset()?;
    drop((flow, spread, queues, cqs, b));
    nothing_left(&rig, "b")?;
    a.send(&qa, &from_port(5))?;
    assert_eq!(got(&mut guest)?, from_port(5));
    Ok(())
}
