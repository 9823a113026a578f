//! Rings that guests start and stop, on their data core.

use std::sync::Arc;

use vnic_engine::settings::Burst;
use vnic_fabric::switch::PortId;

use super::calls::{Call, Caller as _};
use super::command::RingStart;
use super::dpc::Dpc;
use super::rx::RxQueue;
use super::sleep::{Sleeper, Source};
use super::tx::TxQueue;
use super::worker::{Worker, free_index};

impl Worker {
    pub(super) fn start_ring(&mut self, id: PortId, start: RingStart) {
        let pair = usize::from(start.index / 2);
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        let (counters, learns) = (adapter.counters.clone(), adapter.has_rdma);
        let allowed = adapter.allowed.clone();
        let burst = adapter.settings.burst;
        let (method, batch) = (
            adapter.settings.send_completion.into(),
            adapter.settings.tx_coalescing,
        );
        if start.index.is_multiple_of(2) {
            adapter.accepts = start.accepts;
            let Some(place) = adapter.queues.get_mut(pair) else {
                return;
            };
            let method = adapter.settings.recv_completion.into();
            let rx = place.insert(RxQueue::new(start, counters));
            rx.set_method(method);
            watch(burst, rx, id, &self.sleeper, &self.dpc, self.index);
            adapter.activate();
        } else {
            let mut tx = TxQueue::new(id, start, counters);
            tx.path.learns = learns;
            tx.path.allowed = allowed;
            tx.path
                .set_policed(self.core.sender(id).map(|s| s.change.clone()));
            tx.path.batch = batch;
            tx.set_method(method);
            let i = free_index(&mut self.txs);
            if let Some(kick) = tx.kick_fd() {
                let _ = self.sleeper.add(kick, Source::Kick(i as u32));
            }
            self.txs[i] = Some(tx);
        }
    }

    pub(super) fn set_call(&mut self, id: PortId, index: u16, call: Option<Arc<Call>>) {
        let pair = usize::from(index / 2);
        if index.is_multiple_of(2) {
            if let Some(Some(rx)) = self.core.adapter(id).and_then(|a| a.queues.get_mut(pair)) {
                rx.set_call(call);
            }
        } else if let Some(tx) = self
            .txs
            .iter_mut()
            .flatten()
            .find(|t| t.path.port == id && t.path.pair == pair)
        {
            tx.set_call(call);
        }
    }

    pub(super) fn finish_stopping(&mut self) {
        let mut waiting = std::mem::take(&mut self.stopping);
        waiting.retain(|(id, index, done)| match self.try_stop(*id, *index) {
            Some(base) => {
                let _ = done.send(base);
                false
            }
            None => true,
        });
        self.stopping.append(&mut waiting);
    }

    /// Takes a ring out; `None` while something of it is under way.
    fn try_stop(&mut self, id: PortId, index: u16) -> Option<Option<u16>> {
        let pair = usize::from(index / 2);
        if index.is_multiple_of(2) {
            self.core.flush_queue(id, pair);
            let Some(adapter) = self.core.adapter(id) else {
                return Some(None);
            };
            let Some(place) = adapter.queues.get_mut(pair) else {
                return Some(None);
            };
            if place.as_ref().is_some_and(|rx| !rx.drained()) {
                return None;
            }
            if place.is_some() {
                self.core.drop_waiting(id, pair);
            }
            let Some(adapter) = self.core.adapter(id) else {
                return Some(None);
            };
            let taken = adapter.queues.get_mut(pair).and_then(Option::take);
            if let Some(kick) = taken.as_ref().and_then(RxQueue::kick_fd) {
                self.sleeper.remove(kick);
                self.dpc.forget(kick);
            }
            let base = taken.map(|mut rx| {
                rx.settle_calls();
                rx.base()
            });
            adapter.activate();
            let down = adapter.active.is_empty();
            if down {
                self.core.drop_queued(id);
            }
            if down && let Some(function) = self.functions.get_mut(id) {
                function.guest_down(self.clock.now());
            }
            return Some(base);
        }
        let Some(i) = self
            .txs
            .iter()
            .position(|t| matches!(t, Some(t) if t.path.port == id && t.path.pair == pair))
        else {
            return Some(None);
        };
        let tx = self.txs[i].as_mut()?;
        tx.path.stop();
        if !tx.path.drained() {
            return None;
        }
        let mut tx = self.txs[i].take()?;
        tx.path.leave(&mut self.core);
        tx.settle_calls();
        if let Some(kick) = tx.kick_fd() {
            self.sleeper.remove(kick);
        }
        Some(Some(tx.base()))
    }
}

/// The guest's kicks for receive buffers wake whoever waits for them there.
pub(super) fn watch(burst: Burst, rx: &RxQueue, port: PortId, sleeper: &Sleeper, dpc: &Dpc, core: usize) {
    let Some(kick) = rx.kick_fd() else { return };
    sleeper.remove(kick);
    dpc.forget(kick);
    if burst == Burst::Thread {
        dpc.watch(kick, core);
    } else {
        let _ = sleeper.add(kick, Source::Buffers(port.0.into()));
    }
}
