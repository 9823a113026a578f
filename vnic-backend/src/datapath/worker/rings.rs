//! Start and stop of guests' rings.

use std::sync::Arc;

use crossbeam_channel::Sender;
use vnic_engine::moderation::Method;
use vnic_engine::settings::{AdapterSettings, Burst};
use vnic_engine::virtio_net::control::Control;
use vnic_fabric::switch::PortId;

use super::super::calls::{Call, Caller as _};
use super::super::control_queue::ControlStart;
use super::super::ring_start::RingStart;
use super::super::rx::RxQueue;
use super::super::sleep::Source;
use super::super::tx::TxQueue;
use super::Worker;

impl Worker {
    /// Starts a ring of an adapter.
    pub(crate) fn start_ring(&mut self, id: PortId, start: RingStart) {
        let pair = usize::from(start.index / 2);
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        let (counters, learns) = (adapter.counters.clone(), adapter.has_rdma);
        let steers = adapter.queues.len() > 1;
        let allowed = adapter.allowed.clone();
        let burst = adapter.settings.burst;
        let (method, batch) = (adapter.method(start.index), adapter.settings.tx_coalescing);
        if start.index.is_multiple_of(2) {
            adapter.accepts = start.accepts;
            let Some(place) = adapter.queues.get_mut(pair) else {
                return;
            };
            let rx = place.insert(RxQueue::new(start, counters));
            rx.set_method(method);
            adapter.follow_driver();
            self.watch(id, burst, Some(pair));
        } else {
            let mut tx = TxQueue::new(id, start, counters);
            tx.path.learns = learns;
            tx.path.steers = steers;
            tx.path.allowed = allowed;
            tx.path
                .set_policed(self.core.sender(id).map(|s| s.change.clone()));
            tx.path.batch = batch;
            tx.set_method(method);
            self.rings.add(&self.sleeper, tx);
        }
        self.set_methods(id);
    }

    /// Starts the control queue of an adapter.
    pub(crate) fn start_control(&mut self, id: PortId, start: ControlStart) {
        self.control.start(&mut self.core, &self.sleeper, id, start);
        self.follow_driver(id);
    }

    /// Sets the call eventfd of an adapter's control queue.
    pub(crate) fn set_control_call(&mut self, id: PortId, call: Option<Arc<Call>>) {
        self.control.set_call(id, call);
    }

    /// Stops the control queue of an adapter. Returns the index at which it resumes.
    pub(crate) fn stop_control(&mut self, id: PortId) -> Option<u16> {
        self.control.stop(&self.sleeper, id)
    }

    /// Forgets what the driver of an adapter has set: it has left.
    pub(crate) fn forget_driver(&mut self, id: PortId) {
        if let Some(adapter) = self.core.adapter(id) {
            adapter.driver = None;
            adapter.activate();
        }
    }

    /// What the driver of an adapter has set, if it has a control queue.
    pub(crate) fn driver(&mut self, id: PortId) -> Option<Control> {
        self.core.adapter(id)?.driver.as_deref().cloned()
    }

    /// Carries out commands of the control queues. Returns their number.
    #[cold]
    pub(super) fn control_round(&mut self) -> usize {
        let mut changed = Vec::new();
        let (queues, core) = (&mut self.control, &mut self.core);
        let work = core.guarded(|core| queues.round(core, &mut changed));
        for id in changed {
            self.follow_driver(id);
        }
        work.unwrap_or(1)
    }

    /// Brings an adapter in line with what its driver has set.
    fn follow_driver(&mut self, id: PortId) {
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        adapter.follow_driver();
        self.set_methods(id);
    }

    /// Sets how the rings of an adapter interrupt their guest.
    fn set_methods(&mut self, id: PortId) {
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        adapter.set_receive_methods(&self.by_thread);
        let by = adapter.settings.threaded.send.then_some(&self.by_thread);
        let of: Vec<Method> = (0..adapter.queues.len())
            .map(|pair| adapter.method(2 * pair as u16 + 1))
            .collect();
        self.rings.each(id, |tx| {
            if let Some(method) = of.get(tx.path.pair) {
                tx.follow_method(*method, by);
            }
        });
    }

    /// Stops a ring of an adapter. The answer, when none of its buffers is in flight any more, is the index at which it
    /// resumes; `None`: it was not running.
    pub(crate) fn stop_ring(&mut self, id: PortId, index: u16, done: Sender<Option<u16>>) {
        self.stopping.push((id, index, done));
        self.finish_stopping();
    }

    /// Sets the call eventfd of a ring.
    pub(crate) fn set_call(&mut self, id: PortId, index: u16, call: Option<Arc<Call>>) {
        let pair = usize::from(index / 2);
        if index.is_multiple_of(2) {
            if let Some(Some(rx)) = self.core.adapter(id).and_then(|a| a.queues.get_mut(pair)) {
                rx.set_call(call);
            }
        } else {
            self.rings.each(id, |tx| {
                if tx.path.pair == pair {
                    tx.set_call(call.clone());
                }
            });
        }
    }

    /// Applies settings to an adapter; queues that start later find them there. `anew`: a mode that has ended by itself
    /// begins again.
    pub(crate) fn configure(&mut self, id: PortId, settings: AdapterSettings, anew: bool) {
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        let before = std::mem::replace(&mut adapter.settings, settings.clone());
        let roce = |s: &AdapterSettings| {
            (
                s.roce_mode,
                s.network_direct,
                s.ece,
                s.offloads.tunnels.vxlan_port,
            )
        };
        if roce(&before) != roce(&settings) {
            self.functions.set_roce(&mut self.core, id, &settings);
        }
        self.rings.each(id, |tx| tx.path.batch = settings.tx_coalescing);
        self.set_methods(id);
        if (before.burst, before.reserve) != (settings.burst, settings.reserve) {
            self.watch(id, settings.burst, None);
            self.core.out.reserve_changed(id);
        }
        self.core
            .out
            .set_delay_drop(id, before.delay_drop, settings.delay_drop, anew);
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

    /// Takes a ring out. `None`: one of its buffers is still in flight.
    fn try_stop(&mut self, id: PortId, index: u16) -> Option<Option<u16>> {
        let pair = usize::from(index / 2);
        if !index.is_multiple_of(2) {
            return self.rings.stop(&mut self.core, &self.sleeper, id, pair);
        }
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
            self.core.out.drop_waiting(id, pair);
        }
        let Some(adapter) = self.core.adapter(id) else {
            return Some(None);
        };
        let taken = adapter.queues.get_mut(pair).and_then(Option::take);
        if let Some(kick) = taken.as_ref().and_then(RxQueue::kick_fd) {
            self.sleeper.remove(kick);
            self.dpc.0.forget(kick);
        }
        let base = taken.map(|mut rx| {
            rx.settle_calls();
            rx.base()
        });
        adapter.activate();
        let down = adapter.active.is_empty();
        if down {
            self.core.out.drop_queued(id, self.core.now);
        }
        if down && let Some(function) = self.functions.get_mut(id) {
            function.guest_down(self.clock.now());
        }
        Some(base)
    }

    /// Registers the kicks for receive buffers, of one pair or all, with the thread or the core that waits for them.
    fn watch(&mut self, id: PortId, burst: Burst, pair: Option<usize>) {
        let (dpc, core) = &self.dpc;
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        let queues = adapter.queues.iter().enumerate();
        for (_, rx) in queues.filter(|(i, _)| pair.is_none_or(|pair| *i == pair)) {
            let Some(kick) = rx.as_ref().and_then(RxQueue::kick_fd) else {
                continue;
            };
            self.sleeper.remove(kick);
            dpc.forget(kick);
            if burst == Burst::Thread {
                dpc.watch(kick, *core);
            } else {
                let _ = self.sleeper.add(kick, Source::Buffers(id.0.into()));
            }
        }
    }
}
