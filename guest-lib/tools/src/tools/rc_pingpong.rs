//! `rc_pingpong`: messages there and back over a reliable connection, as `ibv_rc_pingpong` of libibverbs.
//!
//! This file has every step of a verbs program, from the protection domain to the last completion. The other tools leave the
//! first steps to [`crate::session`].

use std::process::ExitCode;
use std::time::{Duration, Instant};

use vnic_verbs::{
    Access, ConnectOptions, Data, Endpoint, MacAddress, MemoryRegion, QueuePair, Rc, RecvWr, SendWr,
    WorkCompletion,
};

use crate::exchange::{Account, Offer, Queue, Role};
use crate::failure::{Failure, Result};
use crate::options::{PingpongOptions, mtu_of, own_gid, path_mtu};
use crate::pattern;
use crate::report::{Report, Verified};
use crate::seat::{self, Progress, Seat};
use crate::stats::Times;
use crate::wait::{Completions, Waiter};

const TOOL: &str = "rc_pingpong";
/// Bytes of a message by default.
const SIZE: u32 = 4096;
/// `wr_id` of sends; receives have the number of their place.
const SEND: u64 = 1 << 32;
/// `wr_id` of the question whether the peer is there.
const QUESTION: u64 = SEND + 1;
/// Time without a message after which the question is asked.
const QUIET: Duration = Duration::from_secs(1);

/// Runs the tool.
pub fn run(options: &PingpongOptions) -> ExitCode {
    seat::run(TOOL, &options.peer, Ok(()), |seat| pingpong(seat, options))
}

fn pingpong(seat: &mut Seat<'_>, options: &PingpongOptions) -> Result<Report> {
    let context = &seat.context;
    let size = options.size.unwrap_or(SIZE) as usize;
    let places = receives(options);

    // Memory: one message to send, and places for messages that come.
    let pd = context.alloc_pd()?;
    let source = pd.allocate(size.max(1), Access::LOCAL_WRITE)?;
    let sink = pd.allocate(size.max(1) * places, Access::LOCAL_WRITE)?;

    // A completion queue for sends and receives, and a queue pair.
    let waiter = Waiter::new(context, 2 + places as u32, seat.options.events)?;
    let qp = pd
        .qp::<Rc>(&waiter.cq, &waiter.cq)
        .max_send_wr(2)
        .max_recv_wr(places as u32)
        .build()?;
    // Receives may be posted from INIT on; the peer may send as soon as this side is in RTR.
    qp.to_init(ConnectOptions::default().access)?;
    for place in 0..places {
        qp.post_recv(&[receive(&sink, place, size)])?;
    }

    // Exchanges the addresses by another way than RDMA.
    let gid = own_gid(context, seat.options.gid_index)?;
    let mtu = path_mtu(context, seat.options.mtu)?;
    let mine = Offer {
        run: vec![
            ("tool".into(), TOOL.into()),
            ("size".into(), size.to_string()),
            ("iters".into(), options.iters.to_string()),
        ],
        queues: vec![Queue {
            number: qp.number(),
            psn: qp.psn(),
        }],
        gid: gid.gid,
        mac: Some(gid.mac).filter(|mac| *mac != MacAddress::default()),
        mtu: Some(mtu.bytes()),
        qkey: None,
        area: None,
        seed: Some(seat.seed()),
    };
    let peer = seat.link.swap(&mine)?;

    // To RTR and RTS: the peer's queue pair, its first packet's number, and the way there.
    let mtu = peer.mtu.map_or(mtu, |bytes| mtu.min(mtu_of(bytes)));
    let end = Endpoint {
        qpn: peer.queues[0].number,
        psn: peer.queues[0].psn,
        gid: peer.gid,
        mac: peer.mac,
    };
    qp.connect(
        &end,
        &ConnectOptions {
            gid_index: gid.index,
            path_mtu: Some(mtu),
            service_level: options.service_level,
            timeout: seat.options.qp_timeout,
            ..ConnectOptions::default()
        },
    )?;
    seat.link.ready()?;

    let seeds = [seat.seed(), peer.seed.unwrap_or(seat.seed())];
    let mut game = Game {
        qp,
        waiter,
        source,
        sink,
        size,
        seeds: (!seat.options.no_verify).then_some(seeds),
    };
    let begun = Instant::now();
    let times = game.play(seat, options.iters)?;
    let took = begun.elapsed();

    seat.link.say_done(&[options.iters])?;
    if seat.link.hears_done() {
        game.wait_done(seat)?;
    }
    seat.link.compare(&Account::default())?;

    let mut report = Report::new(TOOL);
    report.word("role", seat.role().name());
    report.fact("device", seat.context.name());
    report.fact("mtu", mtu.bytes());
    report.fact("peer", peer.gid.ip().to_string());
    report.word("qpn", game.qp.number());
    report.word("seed", seeds[0]);
    report.word("peer_seed", seeds[1]);
    report.pingpong(size as u32, options.iters, took);
    report.latency(size as u64, times.summary());
    report.lost(0, options.iters);
    report.verified(if seat.options.no_verify {
        Verified::Off
    } else {
        Verified::Both
    });
    Ok(report)
}

/// As many receives as the options ask for, but not more than 16 MiB of memory.
fn receives(options: &PingpongOptions) -> usize {
    let fit = (16 << 20) / options.size.unwrap_or(SIZE).max(1);
    options.rx_depth.min(fit).max(1) as usize
}

fn receive(sink: &MemoryRegion, place: usize, size: usize) -> RecvWr<'static> {
    RecvWr::new(sink.slice(place * size..(place + 1) * size)).id(place as u64)
}

struct Game {
    qp: QueuePair<Rc>,
    waiter: Waiter,
    source: MemoryRegion,
    sink: MemoryRegion,
    size: usize,
    /// Seeds of sent and of received messages; `None` if data are not checked.
    seeds: Option<[u64; 2]>,
}

impl Game {
    fn send(&self, i: u64) -> Result {
        if let Some([mine, _]) = self.seeds {
            let mut message = vec![0; self.size];
            pattern::fill(mine.wrapping_add(i), 0, &mut message);
            self.source.write_at(0, &message);
        }
        let request = SendWr::send(self.source.slice(..self.size)).id(SEND).signaled();
        self.qp.post_send(&[request])?;
        Ok(())
    }

    /// Checks message `i` in its place.
    fn look(&self, i: u64, place: usize, len: u32) -> Result {
        if len as usize != self.size {
            return Err(Failure::Data(format!(
                "message {i} has {len} bytes, not {}",
                self.size
            )));
        }
        let Some([_, theirs]) = self.seeds else {
            return Ok(());
        };
        let message = self.sink.read_vec(place * self.size, self.size);
        match pattern::first_difference(theirs.wrapping_add(i), 0, &message) {
            Some(at) => Err(Failure::Data(format!("message {i} differs from byte {at} on"))),
            None => Ok(()),
        }
    }

    /// The client sends message 0. The side that gets message `i` checks it and sends its own: the server number `i`, the
    /// client the next.
    fn play(&mut self, seat: &Seat<'_>, iters: u64) -> Result<Times> {
        let is_client = seat.role() == Role::Client;
        let mut times = Times::new();
        let mut progress = Progress::new(seat.watched);
        let (mut sent, mut came) = (0, 0);
        let (mut sending, mut asking) = (false, false);
        let mut begun = Instant::now();
        let mut taken = Completions::new();
        while sent < iters || came < iters || sending {
            let turn = if is_client { sent == came } else { sent < came };
            if turn && !sending && sent < iters {
                begun = Instant::now();
                self.send(sent)?;
                (sent, sending) = (sent + 1, true);
            }
            self.waiter.take(&mut taken, QUIET)?;
            if taken.is_empty() && !sending && !asking {
                self.ask()?;
                asking = true;
            }
            for completion in taken.iter() {
                good(completion)?;
                if completion.is_receive() {
                    if is_client {
                        times.add(begun.elapsed());
                    }
                    let place = completion.id() as usize;
                    self.look(came, place, completion.byte_len())?;
                    self.qp.post_recv(&[receive(&self.sink, place, self.size)])?;
                    came += 1;
                    progress.at(came, || format!("{came} of {iters} messages"));
                } else if completion.id() == SEND {
                    sending = false;
                } else {
                    asking = false;
                }
            }
        }
        Ok(times)
    }

    /// Asks whether the peer is still there. A WRITE of no bytes needs no key (IBTA C9-88) and changes nothing; if nobody
    /// acknowledges it, it completes with RETRY_EXC_ERR, as every request would.
    fn ask(&self) -> Result {
        let question = SendWr::write(Data::NONE, 0, 0).id(QUESTION).signaled();
        self.qp.post_send(&[question])?;
        Ok(())
    }

    /// Waits until the peer says that it has all its messages. If the peer is gone instead, the queue pair knows why.
    fn wait_done(&self, seat: &mut Seat<'_>) -> Result {
        loop {
            let failure = match seat.link.done_within(QUIET) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => None,
                Err(failure) => Some(failure),
            };
            self.ask()?;
            let mut taken = Completions::new();
            while taken.is_empty() {
                self.waiter.take(&mut taken, QUIET)?;
            }
            taken.iter().try_for_each(good)?;
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
    }
}

/// Makes a completion with an error a failure.
fn good(completion: &WorkCompletion) -> Result {
    if completion.is_success() {
        return Ok(());
    }
    Err(Failure::completion(
        completion,
        match (completion.is_receive(), completion.id()) {
            (true, _) => "a receive",
            (false, QUESTION) => "the question whether the peer is there",
            (false, _) => "a send",
        },
    ))
}
