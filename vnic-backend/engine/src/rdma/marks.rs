//! Coverage marks: one counter for each path of the protocol that only a fault, a race or a hostile peer takes.
//!
//! The engine has no log. A simulation whose marks are all above zero has taken every path; one with a mark at zero
//! proves little. A mark costs one addition on a rare path, so marks are always on.

use core::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A path of the protocol. Section numbers are those of IBTA volume 1.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Mark {
            $($(#[$doc])* $name,)*
        }

        impl Mark {
            /// Every mark.
            pub const ALL: &'static [Mark] = &[$(Mark::$name,)*];

            /// Name of the mark.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mark::$name => stringify!($name),)*
                }
            }
        }
    };
}

marks! {
    // Requester: what makes it send again or wait.
    /// The ACK timer ran out and packets are sent again (9.7.6.1.3).
    AckTimeout,
    /// The adaptive ACK timer ran out before the queue pair's own (zero touch RoCE, `AdpRetrans`).
    AdaptiveTimeout,
    /// The adaptive ACK timer was doubled (RFC 6298, 5.5).
    AdaptiveBackoff,
    /// A round trip was not measured, because its packet was sent again (Karn).
    KarnSkipped,
    /// A queue pair without a limited rate restarted with a small window (zero touch RoCE, `SlowStart`).
    SlowRestarted,
    /// It did so after an idle time.
    IdleRestarted,
    /// A packet waited because as many as allowed were unacknowledged (zero touch RoCE, `TxWindow`).
    WindowClosed,
    /// A NAK for a sequence error came (9.7.5.2.8).
    SequenceNakReceived,
    /// A NAK for a sequence error told again what is sent again already.
    SequenceNakRepeated,
    /// An RNR NAK came, and the requester waits for its time (9.7.5.2.8).
    RnrNakReceived,
    /// The first packet after an RNR wait was sent.
    RnrRetried,
    /// The RNR retries are used up: RNR retry exceeded (9.9.2.4.1).
    RnrRetryExceeded,
    /// The retries are used up: transport retry exceeded (9.9.2.4.1).
    RetryExceeded,
    /// A response passed over an outstanding READ or atomic: its own response was lost (9.7.5.1.1, 9.9.2.2.2).
    ImpliedNak,
    /// A NAK said what has come behind a missing packet, and packets are sent again one by one (selective repeat).
    SelectiveNakReceived,
    /// Packets were lost again that were sent again one by one.
    RepeatedOften,
    /// The last packet of the window was sent behind those that were sent again.
    RepeatProved,
    /// Nothing came for some round trips, and the last packet that was under way was sent again (selective repeat).
    EndSentAgain,
    /// Nothing came for some round trips, and the last response of a READ was asked for (selective repeat).
    EndAskedFor,
    /// A request that has to come in its turn waited for packets that are under way on others' ways (multipath).
    SpreadWaited,
    /// Nothing came by one of the ways of a queue pair, and it rests.
    WayRested,
    /// A response landed before others that are missing.
    FetchedAhead,
    /// It did so by one of several ways, or in its turn while others were missing.
    ScatterAwaited,
    /// Missing responses were asked for again, and no others.
    ReadGapAsked,
    /// Responses that were asked for again did not come in time.
    FetchedLate,
    /// A READ was asked for again from the middle, behind the responses that had come (9.7.4.4).
    ReadRetryPartial,
    /// A send queue came back to a message that had been sent in part, and went on inside it.
    ResendMidMessage,
    /// The PSN of the send queue went from 0xffffff to 0.
    PsnWrap,
    /// A fenced request waited for READs and atomics before it (10.8.3.3).
    FenceWaited,
    /// A READ or atomic waited because as many as allowed were outstanding (9.7.3.1).
    ReadAtomicWaited,
    /// A SEND waited for end-to-end credits, or was sent as the one that probes without any (9.7.7.2).
    CreditWaited,
    /// The sink was not ready while something could be sent.
    SinkFull,
    /// Something could be sent, and its priority was closed.
    PriorityClosed,
    /// A QP had sent as much as its rate allows, and waited.
    Paced,
    /// A request failed on its own keys before anything of it was sent.
    LocalProtection,
    /// A request failed on its own keys or memory in the middle of its message.
    LocalProtectionMidMessage,

    // Requester: what comes back.
    /// One ACK completed several requests (9.7.5.1.2).
    AckCoalesced,
    /// A response to something that was acknowledged before: ignored (9.7.5.1.1, "duplicate").
    StaleAck,
    /// A response to something that was never sent: ignored (9.7.5.1.1, "ghost").
    GhostAck,
    /// The response of a READ or atomic that was sent again came twice, and the second was ignored.
    DuplicateResponse,
    /// NAK for an invalid request received.
    InvalidRequestReceived,
    /// NAK for an access error received.
    RemoteAccessReceived,
    /// NAK for an operational error received.
    RemoteOperationReceived,
    /// A response that does not fit the request: bad response error.
    BadResponse,
    /// The destination of a READ or atomic could not be written.
    ReadScatterFailed,

    // Responder.
    /// NAK for a sequence error sent (9.7.5.2.8).
    SequenceNakSent,
    /// Another packet out of sequence, for which no NAK was sent because one is outstanding.
    SequenceNakHeld,
    /// RNR NAK sent (9.7.5.2.8).
    RnrNakSent,
    /// A SEND that was carried out before came again: acknowledged, not carried out (9.7.5.1.3).
    DuplicateSend,
    /// A WRITE that was carried out before came again: acknowledged, not carried out.
    DuplicateWrite,
    /// A READ that was answered before came again: answered again (9.7.5.1.3).
    DuplicateRead,
    /// A READ was asked for again from the middle.
    ReadReplayPartial,
    /// A response of a READ took another way than the queue pair's own (multipath).
    ResponseScattered,
    /// A part of a READ was answered again, before what else was due.
    ReadGapAnswered,
    /// A WRITE packet landed before others that are missing.
    LandedAhead,
    /// A part of a READ that was asked for again came before one that was asked for earlier: that one is lost once more.
    FetchedOvertaken,
    /// A READ or an atomic came before others that are missing, and waits for its turn.
    KeptAhead,
    /// Its turn came.
    KeptCarriedOut,
    /// A request that came before others is none that may be carried out before its turn: dropped.
    NotAhead,
    /// A WRITE packet came when later ones had landed in the same place: they stay.
    LandedUnder,
    /// The last request that was missing came.
    GapsClosed,
    /// An atomic that was carried out before came again: answered from the history (9.7.5.1.3).
    AtomicReplay,
    /// An atomic came again that the history no longer has: silently dropped.
    DuplicateForgotten,
    /// A READ response was dropped in the middle because a NAK or a duplicate superseded it.
    ReadResponseAborted,
    /// NAK for an invalid request sent: opcode sequence, length, too many READs (9.7.4.1).
    InvalidRequestNak,
    /// NAK for an access error sent: key, right, bounds, domain (9.7.4.1.5).
    RemoteAccessNak,
    /// NAK for an operational error sent (9.7.5.2.5).
    RemoteOperationalNak,
    /// A message longer than its receive buffer (9.7.4.1.6 and 9.9.3).
    ReceiveTooShort,
    /// One ACK stood for several requests at the responder.
    AckHeldBack,
    /// A SEND or WRITE found READ responses before its ACK and waited behind them.
    AckBehindRead,
    /// First packet on a QP in RTR: communication established (11.6.3.2).
    Established,

    // Unreliable services.
    /// The rest of a UC message was dropped after a gap (9.8.2.2).
    UcMessageDropped,
    /// A UC message arrived and no receive was posted: dropped (9.8.2.2.2).
    UcNoReceive,
    /// A UC WRITE without the right was dropped.
    UcAccessDropped,
    /// A datagram did not fit into its receive buffer.
    UdTooLong,
    /// A datagram found no receive posted: dropped (9.8.3.2).
    UdNoReceive,
    /// A datagram with a wrong queue key (9.8.3.2).
    QkeyViolation,
    /// A datagram to a multicast group reached its members.
    Multicast,

    // Dynamically connected transport (DC).
    /// An initiator waited until all was answered, before it turned to another target.
    DcTurnWaited,
    /// An initiator disconnected, to turn to another target.
    DcLeft,
    /// An initiator that was idle disconnected.
    DcIdleLeft,
    /// An initiator turned to a target of another priority, and its turn was over.
    DcPriorityChanged,
    /// A request failed because its address handle was destroyed before it began.
    DcNoHandle,
    /// An initiator sent its CONNECT again.
    DcConnectedAgain,
    /// An initiator that has heard nothing for long did not connect again.
    DcDistrusted,
    /// A CONNECT was answered before a request was sent behind it.
    DcAnsweredFirst,
    /// A target refused a CONNECT with another access key.
    DcKeyRefused,
    /// A CONNECT found no room.
    DcNoRoom,
    /// More CONNECTs were refused than a target answers at a time.
    DcRefusalsFull,
    /// A connection that was closed made room for another.
    DcRoomOfClosed,
    /// A connection that was not heard of for long made room for another.
    DcRoomOfForgotten,
    /// A CONNECT of a connection that is there, or was, came again.
    DcConnectRepeated,
    /// A CONNECT came that is older than the connection: ignored.
    DcConnectLate,
    /// An initiator connected anew without a DISCONNECT before.
    DcConnectedAnew,
    /// A DISCONNECT came that is not for the connection that is there: ignored.
    DcDisconnectLate,
    /// A target forgot a connection that it heard nothing of.
    DcForgotten,
    /// A connection ended in the middle of a message.
    DcEndedMidMessage,
    /// A request of a connection that is not there: dropped.
    DcUnknown,
    /// A request of a connection by another way than that of its CONNECT: dropped.
    DcWrongWay,
    /// A CONNECT that did not come to the address that the target answers from: dropped.
    DcWrongAddress,
    /// A target closed a connection behind the NAK that ended it.
    DcEndedByNak,

    // Queues, keys, states.
    /// A shared receive queue went below its limit (10.2.9.1.4).
    SrqLimit,
    /// A QP in error took its last receive from a shared receive queue (10.2.9.4).
    LastWqe,
    /// A completion queue overran (11.6.3.1).
    CqOverrun,
    /// A completion queue was resized with completions in it.
    CqResizedBusy,
    /// A window was bound (10.6.7.2).
    WindowBound,
    /// A window could not be bound.
    WindowBindFailed,
    /// A peer invalidated a key by SEND with invalidate (9.4.1.1.1).
    InvalidateRemote,
    /// A key was invalidated locally (10.6.5).
    InvalidateLocal,
    /// A peer asked to invalidate a key that it may not invalidate.
    InvalidateRefused,
    /// A send queue drained (10.3.1.5).
    SendQueueDrained,
    /// An unreliable QP entered SQE (10.3.1.6).
    SendQueueError,
    /// Requests were flushed because their QP went to error.
    Flushed,
    /// A QP was destroyed or reset with requests in it.
    DestroyedBusy,

    // Packets.
    /// A packet for a QP that does not exist or is of another type or state: dropped.
    NoSuchQp,
    /// A packet from an address that is not the peer's: dropped (9.6.1.2.2, annex A17.4.5).
    WrongPeer,
    /// A packet of another partition: dropped (9.6.1.1.3).
    WrongPartition,
    /// A packet marked CE by the network.
    EcnMarked,
    /// A congestion notification came (annex A17.9).
    CnpReceived,
}

/// How often each path was taken.
#[derive(Clone, PartialEq, Eq)]
pub struct Marks([u32; Mark::ALL.len()]);

impl Default for Marks {
    fn default() -> Marks {
        Marks([0; Mark::ALL.len()])
    }
}

impl Marks {
    /// Counts a path that is taken.
    #[inline]
    pub fn hit(&mut self, mark: Mark) {
        let count = &mut self.0[mark as usize];
        *count = count.saturating_add(1);
    }

    /// How often a path was taken.
    #[inline]
    pub fn get(&self, mark: Mark) -> u32 {
        self.0[mark as usize]
    }

    /// Every mark with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Mark, u32)> + '_ {
        Mark::ALL.iter().map(|mark| (*mark, self.get(*mark)))
    }

    /// Adds another device's marks.
    pub fn add(&mut self, other: &Marks) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().filter(|(_, n)| *n > 0).map(|(m, n)| (m.name(), n)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_has_its_own_counter() {
        let mut marks = Marks::default();
        for (i, mark) in Mark::ALL.iter().enumerate() {
            assert_eq!(*mark as usize, i, "{}", mark.name());
            marks.hit(*mark);
        }
        let mut twice = marks.clone();
        twice.add(&marks);
        assert!(twice.iter().all(|(_, n)| n == 2));
    }
}
