//! Counters of Windows itself, and of WinOF, the driver of older cards.

use super::Source::{Is, Rate};
use super::Term::{Drop, Link, Queue};
use super::reasons as r;
use super::terms::{self as t, is, rdma};
use super::{Family, Instance, Set, counter, gauge};
use crate::counters::{LinkCounter as L, QueueCounter as Q};

/// `Windows RDMA Activity`.
pub static RDMA_ACTIVITY: Set = Set {
    title: "Windows RDMA Activity",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("RDMAAcceptedConnections", "connections", r::CM),
        gauge("RDMAActiveConnections", "connections", r::CM),
        counter("RDMACompletionQueueErrors", "errors", is(&[rdma("cq_overrun")])),
        counter("RDMAConnectionErrors", "errors", r::CM),
        counter("RDMAFailedConnectionAttempts", "attempts", r::CM),
        counter("RDMAInitiatedConnections", "connections", r::CM),
        gauge("RDMAInboundBytesPersec", "bytes/s", Rate(t::RDMA_RX_BYTES)),
        gauge("RDMAInboundFramesPersec", "frames/s", Rate(t::RDMA_RX_PACKETS)),
        gauge("RDMAOutboundBytesPersec", "bytes/s", Rate(t::RDMA_TX_BYTES)),
        gauge("RDMAOutboundFramesPersec", "frames/s", Rate(t::RDMA_TX_PACKETS)),
    ],
};

/// `Windows SMB Direct Connection`.
pub static SMB_DIRECT: Set = Set {
    title: "Windows SMB Direct Connection",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        gauge("BytesRDMAReadPersec", "per second", r::SMB),
        gauge("BytesRDMAWrittenPersec", "per second", r::SMB),
        gauge("BytesReceivedPersec", "per second", r::SMB),
        gauge("BytesSentPersec", "per second", r::SMB),
        gauge("MemoryRegions", "regions", r::SMB),
        gauge("RCQNotificationEventsPersec", "per second", r::SMB),
        gauge("RDMARegistrationsPersec", "per second", r::SMB),
        gauge("ReceivesPersec", "per second", r::SMB),
        gauge("RemoteInvalidationsPersec", "per second", r::SMB),
        gauge("SCQNotificationEventsPersec", "per second", r::SMB),
        gauge("SendsPersec", "per second", r::SMB),
        gauge("StallsRDMAReadPersec", "per second", r::SMB),
        gauge("StallsRDMARegistrationsPersec", "per second", r::SMB),
        gauge("StallsSendCreditPersec", "per second", r::SMB),
        gauge("StallsSendQueuePersec", "per second", r::SMB),
    ],
};

/// `WinOF (mlx4) Adapter QoS - congestion part`.
pub static WINOF_QOS: Set = Set {
    title: "WinOF (mlx4) Adapter QoS - congestion part",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        gauge("RequesterAllocatedRateLimiters", "", Is(t::FLOWS)),
        counter(
            "RequesterTotalAllocatedRateLimiters",
            "",
            is(&[rdma("rp_flows_started")]),
        ),
        gauge("RequesterCurrentTotalRate", "", r::RATES),
        gauge("RequesterAverageTotalRate", "", r::RATES),
        gauge("RequesterTrafficRateHighPeak", "", r::RATES),
        gauge("RequesterTrafficRateLowPeak", "", r::RATES),
        counter(
            "RequesterSuccessfullyHandledLimitationRequest",
            "",
            Is(t::CNP_HANDLED),
        ),
        counter("RequesterIgnoredLimitationRequest", "", Is(t::CNP_IGNORED)),
        gauge("ResponderActiveCNP", "", r::NO_CNP_CONTEXT),
        counter("ResponderCNPSentSuccessfully", "", Is(t::CNP_SENT)),
        counter("ResponderECNHandledSuccessfully", "", Is(t::ECN_HANDLED)),
        counter("ResponderIgnoredECN", "", is(&[rdma("np_ecn_ignored")])),
        counter(
            "ResponderIgnoredECNdueCNPcoalesce",
            "",
            is(&[rdma("np_ecn_coalesced")]),
        ),
        counter("SentDiscardFrames", "", is(t::OUTBOUND_DISCARDED)),
    ],
};

/// `WinOF (mlx4) Adapter Diagnostics - dropless/stall part`.
pub static WINOF_DIAGNOSTICS: Set = Set {
    title: "WinOF (mlx4) Adapter Diagnostics - dropless/stall part",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("DroplessModeEntries", "events", is(&[Queue(Q::DroplessEntries)])),
        counter("DroplessModeExits", "events", is(&[Queue(Q::DroplessExits)])),
        counter("Devicedetectedstalledstate", "", is(&[Link(L::PauseStormErrors)])),
        counter(
            "Packetdetectedasstalled",
            "",
            is(&[Drop("head_of_queue"), Drop("class_stalled")]),
        ),
        counter(
            "PacketsdiscardedduetoHeadOfQueuelifetimelimit",
            "",
            is(&[Drop("head_of_queue")]),
        ),
        counter(
            "PacketsdiscardedduetoTCinstalledstate",
            "",
            is(&[Drop("class_stalled")]),
        ),
        counter("TXRingIsFullPackets", "", r::DRIVER),
        counter("TXCopiedPackets", "", r::ALL_COPIED),
    ],
};
