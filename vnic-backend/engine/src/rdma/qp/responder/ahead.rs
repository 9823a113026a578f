//! Requests that come before others that are missing, from a requester that knows selective repeat: payload of WRITEs lands at
//! once, READs and atomics are kept until their turn, and a NAK says so. SENDs are dropped, as without.
//!
//! Rights are looked at when a WRITE begins, for all of it, and at each packet, as in order; what may not land is dropped,
//! and refused when its turn comes. A packet whose WRITE began in one that is missing has no address, and is dropped, too.
//!
//! Later WRITEs are not overwritten by earlier ones that come again: where both go to the same bytes, those of the later one
//! stay (IBTA 10.8.3.3 orders them). Who looks at memory sees later bytes before earlier ones; completions and acknowledges
//! are in order.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use smallvec::SmallVec;
use vnic_wire::aeth::{self, NakCode, Syndrome};
use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;
use vnic_wire::reth;
use vnic_wire::roce::Path;
use vnic_wire::sack::{self, SPAN};
use vnic_wire::transport::{Extended, Headers};

use super::super::super::marks::Mark;
use super::super::super::memory::{Memory, Unmapped};
use super::super::super::packet::{Incoming, Payload, Sink, SpanList};
use super::super::super::shared::Shared;
use super::super::super::types::{Access, Span};
use super::super::selective::{Bits, earlier, ensure, pieces, psns};
use super::super::{Qp, notes};
use super::{Message, Target};

/// WRITEs of several packets that are known at a time.
const HEADS: usize = 64;

/// A WRITE of which packets may land before others.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// PSN of its first packet that is known to be missing, or has an address.
    first: Psn,
    psns: u32,
    rkey: u32,
    /// Where that packet goes.
    addr: u64,
    /// Bytes from there on.
    left: u32,
    /// Bytes of the whole message.
    total: u32,
}

impl Head {
    /// Of a packet that says where what is left of its message goes.
    fn of(psn: Psn, reth: &reth::Header, mtu: u32) -> Head {
        Head {
            first: psn,
            psns: reth.len.div_ceil(mtu).max(1),
            rkey: reth.rkey,
            addr: reth.va,
            left: reth.len,
            total: reth.len,
        }
    }

    fn holds(&self, psn: Psn) -> bool {
        u32::try_from(psn.distance(self.first)).is_ok_and(|d| d < self.psns)
    }

    fn behind(&self) -> Psn {
        self.first.add(self.psns)
    }
}

/// A READ or an atomic that waits for its turn.
#[derive(Debug)]
struct Kept {
    operation: Operation,
    path: Path,
    headers: Headers,
}

impl Kept {
    fn psn(&self) -> Psn {
        self.headers.bth.psn
    }
}

/// Requests that came before others.
#[derive(Debug)]
pub(in super::super) struct Beyond {
    /// What has landed.
    came: Bits<{ sack::WORDS }>,
    /// What of it ends a message.
    ends: Bits<{ sack::WORDS }>,
    /// Where each landed.
    landed: [Span; SPAN as usize],
    /// Between which addresses those of each word of `came` have landed: all of them are within.
    reach: [Reach; sack::WORDS],
    /// WRITEs that are not complete, in the order of their PSNs.
    heads: Vec<Head>,
    /// READs and atomics, in the order of their PSNs.
    kept: Vec<Kept>,
    /// One beyond the highest PSN that came, landed or not.
    end: Psn,
    /// The newest request.
    trigger: Psn,
    /// Whether that had come before.
    again: bool,
    /// Whether it is one that takes several ways with others, so that gaps are no news.
    spread: bool,
    /// What is missing is told before the answers that are due.
    urgent: bool,
}

/// Addresses from one to before another.
#[derive(Debug, Clone, Copy)]
struct Reach {
    from: u64,
    to: u64,
}

impl Reach {
    const NONE: Reach = Reach {
        from: u64::MAX,
        to: 0,
    };

    fn meets(&self, span: Span) -> bool {
        self.from < span.at + span.len && span.at < self.to
    }
}

fn place(psn: Psn) -> usize {
    (psn.value() % SPAN) as usize
}

impl Beyond {
    fn new(expected: Psn) -> Box<Beyond> {
        Box::new(Beyond {
            came: Bits::NONE,
            ends: Bits::NONE,
            landed: [Span { at: 0, len: 0 }; SPAN as usize],
            reach: [Reach::NONE; sack::WORDS],
            heads: Vec::new(),
            kept: Vec::new(),
            end: expected,
            trigger: expected,
            again: false,
            spread: false,
            urgent: false,
        })
    }

    /// Parts of `span` where WRITEs behind `psn` have landed, in the order of addresses.
    fn covered(&self, psn: Psn, span: Span) -> SmallVec<[Span; 4]> {
        let mut covered = SmallVec::new();
        let later = pieces(psn.next(), earlier(self.end, psn.add(SPAN)));
        let near = later.filter(|(at, _)| {
            let word = place(*at) / 64;
            self.reach[word].meets(span) || self.reach[(word + 1) % sack::WORDS].meets(span)
        });
        for later in near.flat_map(|(at, mask)| psns(at, self.came.word(at) & mask)) {
            let there = self.landed[place(later)];
            let from = there.at.max(span.at);
            let to = (there.at + there.len).min(span.at + span.len);
            if from < to {
                covered.push(Span {
                    at: from,
                    len: to - from,
                });
            }
        }
        covered.sort_unstable_by_key(|span: &Span| span.at);
        covered
    }

    /// A packet has landed.
    fn land(&mut self, psn: Psn, span: Span, ends: bool) {
        let reach = &mut self.reach[place(psn) / 64];
        if self.came.is_clear_around(psn) {
            *reach = Reach::NONE;
        }
        if span.len > 0 {
            reach.from = reach.from.min(span.at);
            reach.to = reach.to.max(span.at + span.len);
        }
        self.landed[place(psn)] = span;
        self.came.set(psn);
        match ends {
            true => self.ends.set(psn),
            false => self.ends.clear(psn),
        }
    }

    /// Is something missing, from one PSN to before another?
    fn misses(&self, from: Psn, to: Psn) -> bool {
        let mut pieces = pieces(from, earlier(to, from.add(SPAN)));
        pieces.any(|(at, mask)| !self.came.word(at) & mask != 0)
    }

    /// Knows where the packets go of a WRITE that has begun in order: the next of it is `expected`.
    fn know(&mut self, message: Message, expected: Psn, mtu: u32) {
        if let Message::Write {
            rkey,
            addr,
            left,
            total,
        } = message
            // (A message that has all of its bytes, and goes on, is refused when its next packet has its turn.)
            && left > 0
            && self.head_of(expected).is_none()
        {
            let head = Head {
                first: expected,
                psns: left.div_ceil(mtu),
                rkey,
                addr,
                left,
                total,
            };
            self.heads.insert(0, head);
        }
    }

    /// The WRITE that this packet is of. (They are in order, and have no packets in common.)
    fn head_of(&self, psn: Psn) -> Option<&Head> {
        let behind = self.heads.partition_point(|head| !psn.before(head.first));
        let head = self.heads.get(behind.checked_sub(1)?)?;
        head.holds(psn).then_some(head)
    }

    /// Keeps a READ or an atomic for its turn, if there is room for so many.
    fn keep(&mut self, operation: Operation, packet: &Incoming<'_>, most: usize) -> bool {
        use Operation::{CompareSwap, FetchAdd, ReadRequest};
        let waits = matches!(operation, ReadRequest | CompareSwap | FetchAdd);
        if !waits || self.kept.len() >= most {
            return false;
        }
        let psn = packet.headers.bth.psn;
        let at = self.kept.partition_point(|other| other.psn().before(psn));
        let kept = Kept {
            operation,
            path: packet.path,
            headers: packet.headers,
        };
        self.kept.insert(at, kept);
        self.land(psn, Span { at: 0, len: 0 }, false);
        true
    }

    /// Is the request that has its turn one that was kept?
    fn keeps(&self, expected: Psn) -> bool {
        self.kept.first().is_some_and(|kept| kept.psn() == expected)
    }

    /// What the NAK says of it. `answers`: those to requests before are not all out.
    fn sack(&self, expected: Psn, answers: bool) -> sack::Header {
        let mut map = [0; sack::WORDS];
        let known = earlier(self.end, expected.add(SPAN));
        for (word, (at, mask)) in map.iter_mut().zip(pieces(expected, known)) {
            *word = self.came.word(at) & mask;
        }
        sack::Header {
            trigger: self.trigger,
            again: self.again,
            answers,
            map,
        }
    }
}

fn gaps(qp: &mut Qp) -> Option<&mut Beyond> {
    qp.trouble.as_mut()?.beyond.as_deref_mut()
}

/// Is a request missing before others that came?
pub(in super::super) fn has_gaps(qp: &Qp) -> bool {
    qp.trouble.as_ref().is_some_and(|t| t.beyond.is_some())
}

/// A request came before others that are missing.
pub(super) fn come(
    qp: &mut Qp,
    shared: &mut Shared,
    operation: Operation,
    target: Target,
    packet: &Incoming<'_>,
    memory: &dyn Memory,
) {
    // (Who was told to wait sends all of it again.)
    if qp.responder.told {
        return qp.out_of_sequence(shared, packet);
    }
    let (psn, expected) = (packet.headers.bth.psn, qp.responder.expected);
    let first = !has_gaps(qp);
    let mtu = qp.attributes.path_mtu.bytes();
    let message = qp.responder.message;
    let trouble = qp.trouble.get_or_insert_default();
    if !ensure(&shared.seats, &mut trouble.beyond, || Beyond::new(expected)) {
        return qp.out_of_sequence(shared, packet);
    }
    let spread = packet.headers.bth.spread;
    if spread {
        let ports = trouble.ports.get_or_insert_default();
        ports.came(packet.path.source_port, psn);
    }
    let Some(beyond) = gaps(qp) else { return };
    if first {
        beyond.know(message, expected, mtu);
    }
    let near = psn.distance(expected) < SPAN as i32;
    let again = near && beyond.came.has(psn);
    let skips = beyond.end != psn;
    let landed = near && !again && land_ahead(qp, shared, operation, target, packet, memory);
    let most = usize::from(qp.attributes.max_dest_rd_atomic);
    let Some(beyond) = gaps(qp) else { return };
    let kept = near && !again && !landed && beyond.keep(operation, packet, most);
    if beyond.end.before(psn.next()) {
        beyond.end = psn.next();
    }
    (beyond.trigger, beyond.again) = (psn, again);
    beyond.spread = spread;
    if landed {
        shared.marks.hit(Mark::LandedAhead);
    } else if kept {
        shared.marks.hit(Mark::KeptAhead);
    } else if !again {
        shared.marks.hit(Mark::NotAhead);
    }
    let lost = if spread { is_lost(qp) } else { true };
    let news = if spread { lost } else { skips };
    if lost {
        shared.counters.out_of_sequence += 1;
        if news {
            qp.went_wrong(shared, |errors| &mut errors.out_of_sequence);
        } else if let Some(trouble) = &mut qp.trouble {
            // (Those who list errors hear of it with the next gap.)
            let count = &mut trouble.errors.out_of_sequence;
            *count = count.saturating_add(1);
        }
    }
    if news || !landed || packet.headers.bth.ack_request {
        if lost && (first || spread) {
            shared.marks.hit(Mark::SequenceNakSent);
            qp.notify_gap(shared, packet);
        }
        say_missing(qp, shared);
    }
}

/// A request came in its turn, one of those that take several ways.
#[cold]
pub(super) fn came_in_order(qp: &mut Qp, packet: &Incoming<'_>) {
    if let Some(ports) = qp.trouble.as_mut().and_then(|t| t.ports.as_mut()) {
        ports.came(packet.path.source_port, packet.headers.bth.psn);
    }
}

/// Requests take several ways: is one lost of which nothing was said yet?
fn is_lost(qp: &mut Qp) -> bool {
    let expected = qp.responder.expected;
    let Some(trouble) = &mut qp.trouble else {
        return false;
    };
    let (Some(ports), Some(beyond)) = (&mut trouble.ports, &trouble.beyond) else {
        return false;
    };
    let news = ports.news(expected);
    news.is_some_and(|(from, to)| beyond.misses(from, to))
}

/// Carries out the READs and atomics that were kept and have their turn.
#[cold]
#[inline(never)]
pub(super) fn carry_out_kept(qp: &mut Qp, shared: &mut Shared, memory: &dyn Memory) {
    while let Some(kept) = next_kept(qp) {
        shared.marks.hit(Mark::KeptCarriedOut);
        let packet = Incoming {
            path: kept.path,
            headers: kept.headers,
            payload: Payload::NONE,
            telemetry: None,
        };
        match qp.target(shared, &packet) {
            Ok(target) => qp.carry_out(shared, kept.operation, target, &packet, memory),
            Err(code) => qp.refuse(shared, kept.psn(), code),
        }
    }
}

/// Is the request that has its turn one that was kept?
fn keeps_next(qp: &mut Qp) -> bool {
    let expected = qp.responder.expected;
    gaps(qp).is_some_and(|beyond| beyond.keeps(expected))
}

/// Takes the request that was kept, if it is its turn.
fn next_kept(qp: &mut Qp) -> Option<Kept> {
    let (expected, told) = (qp.responder.expected, qp.responder.told);
    let beyond = gaps(qp)?;
    if told {
        // (Who was told to wait sends all of it again.)
        for kept in beyond.kept.drain(..) {
            beyond.came.clear(kept.psn());
        }
    }
    if !beyond.keeps(expected) {
        return None;
    }
    beyond.came.clear(expected);
    Some(beyond.kept.remove(0))
}

/// Is something missing of which the peer hears before the answers that are due? A NAK behind them would come when nothing is
/// under way any more.
#[cold]
#[inline(never)]
pub(super) fn tells_first(qp: &mut Qp) -> bool {
    gaps(qp).is_some_and(|beyond| core::mem::take(&mut beyond.urgent))
}

/// Sends a NAK that says what has come.
#[cold]
#[inline(never)]
pub(super) fn tell(qp: &mut Qp, shared: &mut Shared, sink: &mut dyn Sink) {
    let (psn, msn) = (qp.responder.expected, qp.responder.msn);
    let answers = !qp.responder.responses.is_empty();
    let Some(beyond) = gaps(qp) else { return };
    let (bytes, len) = beyond.sack(psn, answers).emit();
    let aeth = aeth::Header {
        syndrome: Syndrome::Nak(NakCode::SequenceError),
        msn,
    };
    let payload = bytes.get(..len).map_or(Payload::NONE, Payload::Bytes);
    let extended = Extended::Aeth(aeth);
    qp.send_back(shared, Operation::Acknowledge, psn, extended, payload, sink);
}

/// Tells what is missing.
fn say_missing(qp: &mut Qp, shared: &mut Shared) {
    let (expected, answers) = (qp.responder.expected, !qp.responder.responses.is_empty());
    if let Some(beyond) = gaps(qp) {
        beyond.urgent = answers;
    }
    qp.reply(shared, expected, Some(Syndrome::Nak(NakCode::SequenceError)));
}

/// Lands payload before its turn, if it is that of a WRITE that may.
fn land_ahead(
    qp: &mut Qp,
    shared: &mut Shared,
    operation: Operation,
    target: Target,
    packet: &Incoming<'_>,
    memory: &dyn Memory,
) -> bool {
    let (begins, ends) = (operation.starts_message(), operation.ends_message());
    if !operation.is_write() || operation.has_imm() && ends {
        return false;
    }
    let (psn, mtu) = (packet.headers.bth.psn, qp.attributes.path_mtu.bytes());
    let bytes = packet.payload.len() as u32;
    let head = match (begins, packet.headers.extended) {
        (true, Extended::Reth(reth) | Extended::RethImm(reth, _)) => {
            if qp.check_write(shared, target.pd, &reth).is_err() {
                return false;
            }
            Head::of(psn, &reth, mtu)
        }
        (true, _) => return false,
        (false, _) => {
            let Some(beyond) = gaps(qp) else { return false };
            let known = beyond.head_of(psn).copied();
            match (known, packet.headers.extended) {
                (Some(head), _) => head,
                // It says itself where it goes.
                (None, Extended::Reth(reth)) if qp.check_write(shared, target.pd, &reth).is_ok() => {
                    Head::of(psn, &reth, mtu)
                }
                (None, _) => {
                    shared.regions.take_missing();
                    return false;
                }
            }
        }
    };
    let offset = psn.distance(head.first).max(0) as u32 * mtu;
    let left = head.left.saturating_sub(offset);
    let fits = match ends {
        true => bytes == left && bytes <= mtu,
        false => bytes == mtu && bytes < left,
    };
    let number = qp.number;
    let Some(beyond) = gaps(qp) else { return false };
    let room = !begins || ends || beyond.heads.len() < HEADS;
    let overlaps = |other: &Head| other.holds(psn) || head.holds(other.first);
    let clear = !begins || !beyond.heads.iter().any(overlaps);
    if !fits || !room || !clear {
        return false;
    }
    let mut spans = SpanList::new();
    let addr = head.addr.wrapping_add(offset.into());
    let need = Access::REMOTE_WRITE;
    let found = shared
        .regions
        .remote(target.pd, number, head.rkey, addr, bytes.into(), need, &mut spans);
    if found.is_err() {
        // It is seen to when its turn comes.
        shared.regions.take_missing();
        return false;
    }
    let span = match spans.as_slice() {
        [] => Span { at: 0, len: 0 },
        [one] => *one,
        _ => return false,
    };
    if land_under(beyond, psn, &packet.payload, &spans, memory).is_err() {
        return false;
    }
    beyond.land(psn, span, ends);
    if begins {
        shared.counters.rx_write_requests += 1;
        if !ends {
            let at = beyond.heads.partition_point(|other| other.first.before(psn));
            beyond.heads.insert(at, head);
        }
    }
    if shared.notes.is_some() {
        notes::landed(qp, shared, operation, packet, qp.attributes.destination_qp);
    }
    true
}

/// Lands payload of the packet whose turn it is, while later ones have landed.
pub(super) fn land_below(
    qp: &Qp,
    shared: &mut Shared,
    psn: Psn,
    payload: &Payload<'_>,
    spans: &SpanList,
    memory: &dyn Memory,
) -> Result<(), Unmapped> {
    let beyond = qp.trouble.as_ref().and_then(|t| t.beyond.as_deref());
    match beyond {
        Some(beyond) => {
            let whole = land_under(beyond, psn, payload, spans, memory)?;
            if !whole {
                shared.marks.hit(Mark::LandedUnder);
            }
            Ok(())
        }
        None => payload.land(memory, spans),
    }
}

/// A request was carried out, so that `expected` has moved from `before`: steps over what has landed. Answers whether something
/// is missing still.
fn close_up(qp: &mut Qp, before: Psn) -> bool {
    let mtu = qp.attributes.path_mtu.bytes();
    let (mut expected, mut ended) = (qp.responder.expected, 0);
    let Some(trouble) = &mut qp.trouble else {
        return false;
    };
    let Some(beyond) = trouble.beyond.as_deref_mut() else {
        return false;
    };
    beyond.came.clear_between(before, expected);
    beyond.know(qp.responder.message, expected, mtu);
    let moved = expected;
    beyond.kept.retain(|kept| !kept.psn().before(expected));
    let kept = beyond.kept.first().map(Kept::psn);
    loop {
        let before_kept = kept.map_or(64, |psn| psn.distance(expected).clamp(0, 64) as u32);
        let landed = beyond.came.word(expected).trailing_ones().min(before_kept);
        let bits = u64::MAX.checked_shr(64 - landed).unwrap_or(0);
        beyond.came.put(expected, 0, bits);
        ended += (beyond.ends.word(expected) & bits).count_ones();
        expected = expected.add(landed);
        if landed < 64 {
            break;
        }
    }
    (beyond.trigger, beyond.again) = (before, false);
    let over = beyond
        .heads
        .partition_point(|head| !expected.before(head.behind()));
    beyond.heads.drain(..over);
    let message = match beyond.heads.first() {
        Some(head) if head.first.before(expected) => {
            let skipped = expected.distance(head.first).max(0) as u32 * mtu;
            Message::Write {
                rkey: head.rkey,
                addr: head.addr.wrapping_add(skipped.into()),
                left: head.left.saturating_sub(skipped),
                total: head.total,
            }
        }
        _ => Message::None,
    };
    let more = expected.before(beyond.end);
    if !more {
        trouble.beyond = None;
    }
    let responder = &mut qp.responder;
    if moved != expected {
        responder.message = message;
    }
    responder.expected = expected;
    responder.msn = Psn::new(responder.msn).add(ended).value();
    more
}

/// A request was carried out, and `expected` has moved from `before`, while others are missing: says what is so now, if it was
/// asked or that is news.
pub(super) fn closes_gaps(qp: &mut Qp, shared: &mut Shared, before: Psn, asked: bool) {
    match close_up(qp, before) {
        // (It goes on at once.)
        true if keeps_next(qp) => {}
        true => {
            let spread = gaps(qp).is_some_and(|beyond| beyond.spread);
            if !spread || asked || is_lost(qp) {
                say_missing(qp, shared);
            }
        }
        false => {
            shared.marks.hit(Mark::GapsClosed);
            let last = qp.responder.expected.sub(1);
            qp.reply(shared, last, None);
        }
    }
}

/// A request came that was carried out before, while others are missing.
pub(super) fn duplicate(qp: &mut Qp, shared: &mut Shared, packet: &Incoming<'_>) {
    let psn = packet.headers.bth.psn;
    if let Some(beyond) = gaps(qp) {
        (beyond.trigger, beyond.again) = (psn, true);
    }
    if packet.headers.bth.ack_request && !qp.responder.told {
        say_missing(qp, shared);
    }
}

/// Lands payload of `psn` but where later packets have landed. Answers whether all of it did.
fn land_under(
    beyond: &Beyond,
    psn: Psn,
    payload: &Payload<'_>,
    spans: &SpanList,
    memory: &dyn Memory,
) -> Result<bool, Unmapped> {
    if !psn.next().before(beyond.end) {
        // None is later.
        payload.land(memory, spans)?;
        return Ok(true);
    }
    let parts: SmallVec<[Span; 4]> = spans.iter().flat_map(|span| beyond.covered(psn, *span)).collect();
    if parts.is_empty() {
        payload.land(memory, spans)?;
        return Ok(true);
    }
    let mut bytes = vec![0; payload.len()];
    payload.read(&mut bytes)?;
    let mut bytes = bytes.as_slice();
    for span in spans {
        let (mine, rest) = bytes.split_at((span.len as usize).min(bytes.len()));
        bytes = rest;
        let end = span.at + mine.len() as u64;
        let mut at = span.at;
        let until = |at: u64, to: u64| mine.get((at - span.at) as usize..(to - span.at) as usize);
        for part in beyond.covered(psn, *span) {
            if at < part.at
                && let Some(free) = until(at, part.at.min(end))
            {
                memory.write(at, free)?;
            }
            at = at.max(part.at + part.len);
        }
        if at < end
            && let Some(free) = until(at, end)
        {
            memory.write(at, free)?;
        }
    }
    Ok(false)
}
