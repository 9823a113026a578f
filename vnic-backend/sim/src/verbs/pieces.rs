//! Receives at random, and the pieces of memory that work uses.

use fastrand::Rng;
use vnic_engine::rdma::{Access, QpState, RecvWr, Span};

use super::node::{Book, Holder, Piece};
use super::world::{World, refused, tag};
use crate::oracle::Judgement;
use crate::oracle::keys::slice;

impl World {
    /// Posts receives until there are as many as wanted, at most `many`.
    pub(super) fn fill(&mut self, queue: usize, many: u32) -> Judgement {
        let mut rng = Rng::with_seed(self.plan.seed ^ self.next_id ^ (queue as u64) << 32);
        for _ in 0..many {
            let r = &self.receives[queue];
            let slot = r.slot.map(|s| self.slot(s));
            let postable = slot.is_none_or(|s| s.alive && s.state() != QpState::Reset);
            if !r.alive || !postable || r.open >= r.depth {
                return Ok(());
            }
            let (dev, pd, most, srq) = (r.dev, r.pd, r.max_sge, r.srq);
            let number = slot.map(|s| s.number);
            let mut size = r.size + r.front;
            if self.plan.flaws > 0 && rng.u64(0..self.plan.flaws * 4) == 0 {
                size = rng.u64(0..=size);
            }
            let Some((mut sges, pieces)) = self.gather(dev, pd, size, most, Access::LOCAL_WRITE, &mut rng)
            else {
                return Ok(());
            };
            if self.plan.flaws > 0 && rng.u64(0..self.plan.flaws * 8) == 0 {
                let right = sges.clone();
                self.spoil_receive(dev, &mut sges, &mut rng);
                if !self.oracle.forbids(dev, self.nodes[dev].pds[pd], &right, &sges) {
                    sges = right;
                }
            }
            let id = self.new_id();
            let wr = RecvWr {
                id,
                tag: tag(id),
                sges,
            };
            let device = self.nodes[dev].device();
            match (srq, number) {
                (Some(srq), _) => device.post_srq_recv(srq, wr.clone()),
                (_, Some(number)) => device.post_recv(number, wr.clone()),
                _ => return Ok(()),
            }
            .or_else(|e| match srq {
                // It failed with the completion queue that belongs to it.
                Some(_) if self.oracle.any_overrun(dev) => {
                    self.receives[queue].alive = false;
                    Ok(())
                }
                _ => refused("post_recv", e),
            })?;
            if !self.receives[queue].alive {
                return Ok(());
            }
            match (srq, number) {
                (Some(srq), _) => self.oracle.posted_srq_recv(dev, srq, &wr),
                (_, Some(number)) => self.oracle.posted_recv(dev, number, &wr),
                _ => {}
            }
            self.capture.note(self.now, || {
                format!(
                    "dev{dev} {srq:?}{number:?} posts receive {:#x} of {size} bytes",
                    wr.id
                )
            });
            self.receives[queue].open += 1;
            let book = Book {
                receives: Some(queue),
                local: pieces,
                ..Book::default()
            };
            self.books.insert(wr.id, book);
            self.stirred(dev)?;
        }
        Ok(())
    }

    /// Where a piece is.
    pub(super) fn spans(&self, piece: &Piece) -> Vec<Span> {
        let node = &self.nodes[piece.dev];
        match piece.holder {
            Holder::Region(region) => {
                let r = &node.regions[region];
                slice(&r.spans, piece.at.wrapping_sub(r.base), piece.len).to_vec()
            }
            Holder::Window(window) => {
                let Some(b) = &node.windows[window].bound else {
                    return Vec::new();
                };
                // (It may have been bound anew since, elsewhere.)
                let Some(offset) = piece.at.checked_sub(b.base) else {
                    return Vec::new();
                };
                let r = &node.regions[b.region];
                let at = b.at.wrapping_sub(r.base) + offset;
                slice(&r.spans, at, piece.len).to_vec()
            }
        }
    }

    pub(super) fn store(&mut self, piece: &Piece, bytes: &[u8]) {
        let spans = self.spans(piece);
        let mut rest = bytes;
        for s in &spans {
            let (now, later) = rest.split_at((s.len as usize).min(rest.len()));
            self.memories[piece.dev].store(s.at, now);
            rest = later;
        }
        self.oracle.stored(piece.dev, &spans, bytes);
    }

    pub(super) fn peek(&self, piece: &Piece) -> Vec<u8> {
        crate::oracle::bytes::read(&self.memories[piece.dev], &self.spans(piece))
    }

    /// Pieces that nobody uses any more.
    pub(super) fn give_back(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let node = &mut self.nodes[piece.dev];
            match piece.holder {
                Holder::Region(region) => {
                    let r = &mut node.regions[region];
                    if r.alive {
                        r.arena.give(piece.at, piece.len);
                    }
                }
                Holder::Window(window) => {
                    if let Some(bound) = &mut node.windows[window].bound {
                        bound.arena.give(piece.at, piece.len);
                    }
                }
            }
        }
    }
}
