//! Two adapters whose traffic goes on, whatever a third does: every byte is verified.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, bail, ensure};
use vnic_device::command::qp::AddressVector;
use vnic_device::queue::Operation;
use vnic_device::verbs::{CompletionStatus as Status, QpType};
use vnic_tests::driver::rdma::{Side, World, Wr, fill};
use vnic_tests::driver::rig::wait_for;

/// The neighbours, in a thread of their own.
pub struct Neighbours {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Numbers of their QPs.
    pub qps: Vec<u32>,
    /// Keys of their regions.
    pub keys: Vec<u32>,
    /// Where they are.
    pub addresses: Vec<AddressVector>,
}

impl Neighbours {
    /// Adapters `a` and `b` talk to each other.
    pub fn start(world: &World) -> Result<Neighbours> {
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
        let (qps, keys) = (vec![qa.number, qb.number], vec![a.mr.rkey, b.mr.rkey]);
        let addresses = vec![a.d.own_address(), b.d.own_address()];
        let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (rounds.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("neighbours".into())
            .spawn(move || {
                let mut i = 0u64;
                while !ended.load(Ordering::Relaxed) {
                    let len = 1 + (i * 977 % 20_000) as usize;
                    round(&mut a, &mut qa, &mut b, &mut qb, i, len)?;
                    round(&mut b, &mut qb, &mut a, &mut qa, i, len)?;
                    i += 1;
                    counted.store(i, Ordering::Relaxed);
                }
                for s in [&a, &b] {
                    s.d.mem.check_canaries()?;
                }
                Ok(())
            })?;
        Ok(Neighbours {
            rounds,
            stop,
            thread: Some(thread),
            qps,
            keys,
            addresses,
        })
    }

    /// They get on, still.
    pub fn check(&mut self) -> Result<()> {
        let before = self.rounds.load(Ordering::Relaxed);
        let dead = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        wait_for(|| dead() || self.rounds.load(Ordering::Relaxed) > before + 1);
        if self.rounds.load(Ordering::Relaxed) <= before + 1 {
            if dead() {
                self.end()?;
            }
            bail!("the neighbours' traffic has stopped after {before} rounds");
        }
        Ok(())
    }

    /// Ends them; answers how many rounds there were.
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.end()?;
        Ok(self.rounds.load(Ordering::Relaxed))
    }

    /// What their thread has to say at its end.
    fn end(&mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

type Qp = vnic_tests::driver::rdma::Qp;

/// SEND there, READ back, WRITE there: all of it compared.
fn round(a: &mut Side, qa: &mut Qp, b: &mut Side, qb: &mut Qp, i: u64, len: usize) -> Result<()> {
    let bytes = fill(i, len);
    let n = len as u32;
    a.mr.area.write(0, &bytes);
    b.receive(qb, i, &[b.at(32_768, n)]);
    let wrs = [
        Wr::send(i, &[a.at(0, n)]),
        Wr::new(i, Operation::Write, &[a.at(0, n)]).remote(b.mr.iova + 65_536, b.mr.rkey),
        Wr::new(i, Operation::Read, &[a.at(98_304, n)]).remote(b.mr.iova + 65_536, b.mr.rkey),
    ];
    for wr in &wrs {
        a.post(qa, wr);
    }
    for wr in &wrs {
        let e = a.cq.wait();
        ensure!((e.wr_id, e.status()) == (i, Status::Success), "{wr:?}: {e:?}");
        qa.sends().consumer = e.consumed;
    }
    let e = b.cq.wait();
    ensure!(
        (e.wr_id, e.status(), e.byte_len) == (i, Status::Success, n),
        "{e:?}"
    );
    ensure!(b.mr.area.bytes(32_768, len) == bytes, "round {i}: SEND");
    ensure!(a.mr.area.bytes(98_304, len) == bytes, "round {i}: WRITE and READ");
    Ok(())
}
