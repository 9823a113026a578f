//! What the world counted, against what the devices count.

use vnic_engine::rdma::{Completion, Counters, Event, Incoming, Outgoing, Status};
use vnic_wire::aeth::Syndrome;
use vnic_wire::roce::Ecn;
use vnic_wire::transport::Extended;

use super::node::Book;
use super::plan::What;
use super::world::World;
use crate::oracle::{Judgement, Rule};

/// What the world saw of a device.
#[derive(Debug, Default, Clone)]
struct Account {
    sent: u64,
    received: u64,
    marked: u64,
    rnr_naks: u64,
    connects: u64,
    overruns: u64,
    send_errors: u64,
    send_flushes: u64,
    recv_errors: u64,
    recv_flushes: u64,
    retry_exceeded: u64,
    rnr_exceeded: u64,
    /// Completions were lost, with a queue or with a life of a queue pair.
    uncertain: bool,
}

/// What the world saw.
#[derive(Debug)]
pub struct Ledger {
    accounts: Vec<Account>,
    /// Packets that the network lost.
    pub lost: u64,
    /// Packets that it made.
    pub copies: u64,
    /// Frames that could not be parsed.
    pub unreadable: u64,
    /// Frames with a wrong ICRC, by receiver.
    pub bad_icrc: Vec<u64>,
    /// Packets that were forged.
    pub forged: u64,
}

impl Ledger {
    pub fn new(devices: usize) -> Ledger {
        Ledger {
            accounts: vec![Account::default(); devices],
            lost: 0,
            copies: 0,
            unreadable: 0,
            bad_icrc: vec![0; devices],
            forged: 0,
        }
    }

    /// Packets sent.
    pub fn packets(&self) -> u64 {
        self.accounts.iter().map(|a| a.sent).sum()
    }

    pub fn sent(&mut self, dev: usize, packet: &Outgoing<'_>) {
        let a = &mut self.accounts[dev];
        a.sent += 1;
        if let Extended::Aeth(aeth) = packet.headers.extended
            && matches!(aeth.syndrome, Syndrome::RnrNak { .. })
        {
            a.rnr_naks += 1;
        }
    }

    /// A packet came; `connects`: a CONNECT for a target that takes some.
    pub fn received(&mut self, dev: usize, packet: &Incoming<'_>, connects: bool) {
        let a = &mut self.accounts[dev];
        a.received += 1;
        a.connects += u64::from(connects);
        a.marked += u64::from(Ecn::of(packet.path.network.traffic_class()) == Ecn::Ce);
    }

    pub fn event(&mut self, dev: usize, event: Event) {
        if let Event::CqError(_) = event {
            self.accounts[dev].overruns += 1;
            self.accounts[dev].uncertain = true;
        }
    }

    /// Completions of this device were forgotten.
    pub fn forget(&mut self, dev: usize) {
        self.accounts[dev].uncertain = true;
    }

    pub fn completion(&mut self, dev: usize, c: &Completion, book: Option<&Book>) {
        let a = &mut self.accounts[dev];
        let Some(book) = book else {
            a.uncertain = true;
            return;
        };
        let error = u64::from(c.status != Status::Success);
        let flush = u64::from(c.status == Status::FlushError);
        if book.receives.is_some() {
            a.recv_errors += error;
            a.recv_flushes += flush;
        } else {
            a.send_errors += error;
            a.send_flushes += flush;
            a.retry_exceeded += u64::from(c.status == Status::RetryExceeded);
            a.rnr_exceeded += u64::from(c.status == Status::RnrRetryExceeded);
        }
    }
}

impl World {
    /// The devices count what the world counted.
    pub(super) fn audit(&mut self) -> Judgement {
        let changed =
            self.plan.actions.iter().enumerate().any(|(i, a)| {
                matches!(a.what, What::Admin | What::Dynamic) && !self.cut.actions.contains(&i)
            });
        let ready = self.slots.iter().flatten().all(|s| s.connected_at_once);
        let rnr = self.ledger.accounts.iter().any(|a| a.rnr_naks > 0);
        let trouble =
            |a: &Account| a.overruns > 0 || a.send_errors > a.send_flushes || a.recv_errors > a.recv_flushes;
        let overrun = self.ledger.accounts.iter().any(trouble);
        // Nothing has gone wrong, so nothing was repeated.
        let calm = self.plan.terms.clean && self.plan.flaws == 0 && !changed && ready && !rnr && !overrun;
        for dev in 0..self.nodes.len() {
            let counters = self.nodes[dev].device().counters().clone();
            self.compare(dev, &counters, calm)?;
        }
        Ok(())
    }

    fn compare(&self, dev: usize, c: &Counters, calm: bool) -> Judgement {
        let a = &self.ledger.accounts[dev];
        let mut rows = vec![
            (
                "tx_vport_rdma packets",
                c.tx_vport_rdma_unicast_packets + c.tx_vport_rdma_multicast_packets,
                a.sent,
            ),
            (
                "rx_vport_rdma packets",
                c.rx_vport_rdma_unicast_packets + c.rx_vport_rdma_multicast_packets,
                a.received,
            ),
            (
                "rx_icrc_encapsulated",
                c.rx_icrc_encapsulated,
                self.ledger.bad_icrc[dev],
            ),
            (
                "np_ecn_marked_roce_packets",
                c.np_ecn_marked_roce_packets,
                a.marked,
            ),
            ("cq_overrun", c.cq_overrun, a.overruns),
            ("resp_rnr_nak", c.resp_rnr_nak, a.rnr_naks),
        ];
        if !a.uncertain {
            rows.extend([
                ("req_cqe_error", c.req_cqe_error, a.send_errors),
                ("req_cqe_flush_error", c.req_cqe_flush_error, a.send_flushes),
                ("resp_cqe_error", c.resp_cqe_error, a.recv_errors),
                ("resp_cqe_flush_error", c.resp_cqe_flush_error, a.recv_flushes),
                (
                    "req_transport_retries_exceeded",
                    c.req_transport_retries_exceeded,
                    a.retry_exceeded,
                ),
                (
                    "req_rnr_retries_exceeded",
                    c.req_rnr_retries_exceeded,
                    a.rnr_exceeded,
                ),
            ]);
        }
        if calm {
            rows.extend([
                ("out_of_sequence", c.out_of_sequence, 0),
                ("duplicate_request", c.duplicate_request, 0),
                ("packet_seq_err", c.packet_seq_err, 0),
                ("implied_nak_seq_err", c.implied_nak_seq_err, 0),
                ("local_ack_timeout_err", c.local_ack_timeout_err, 0),
            ]);
        }
        for (name, counted, seen) in rows {
            if counted != seen {
                return Rule::Counter.broken(format!("dev{dev}: {name} is {counted}; the world saw {seen}"));
            }
        }
        self.compare_connects(dev, c, calm)?;
        // (Targets without room for a connection say that they are not ready, too.)
        if c.out_of_buffer < c.resp_rnr_nak && !self.plan.terms.few_connections {
            return Rule::Counter.broken(format!(
                "dev{dev}: {} RNR NAKs for {} packets out of buffer",
                c.resp_rnr_nak, c.out_of_buffer
            ));
        }
        Ok(())
    }

    /// Whoever was served was connected before, and nobody connects without need.
    fn compare_connects(&self, dev: usize, c: &Counters, calm: bool) -> Judgement {
        let seen = self.ledger.accounts[dev].connects;
        let (least, most) = self.oracle.connects(dev);
        let forged = self.plan.terms.hostile;
        let wrong = !forged && c.rx_dct_connect != seen || calm && c.rx_dct_connect > most;
        if wrong || c.rx_dct_connect < least {
            return Rule::Counter.broken(format!(
                "dev{dev}: rx_dct_connect is {}; the world saw {seen}, and requests needed {least} to {most}",
                c.rx_dct_connect
            ));
        }
        Ok(())
    }
}
