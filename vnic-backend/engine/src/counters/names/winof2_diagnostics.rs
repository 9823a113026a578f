//! What went wrong, by adapter.

use super::Source::{Is, NotModelled};
use super::Term::{Drop, Link, Queue};
use super::reasons as r;
use super::terms::{self as t, is, rdma};
use super::{Family, Instance, Set, counter, gauge};
use crate::counters::{LinkCounter as L, QueueCounter as Q};

/// `WinOF-2 Congestion Control`.
pub static CONGESTION_CONTROL: Set = Set {
    title: "WinOF-2 Congestion Control",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter(
            "NotificationPointCNPsSentSuccessfully",
            "packets",
            Is(t::CNP_SENT),
        ),
        counter(
            "NotificationPointRoCEv2ECNMarkedPackets",
            "packets",
            Is(t::ECN_MARKED),
        ),
        counter(
            "ReactionPointSuccessfullyHandledCNPPackets",
            "packets",
            Is(t::CNP_HANDLED),
        ),
        counter("ReactionPointIgnoredCNPPackets", "packets", Is(t::CNP_IGNORED)),
        gauge("ReactionPointCurrentNumberofFlows", "flows", Is(t::FLOWS)),
        gauge("ReactionPointAIFactorValue", "Mbit/s", r::NO_PROGRAMMABLE),
        gauge("ReactionPointGFactorValue", "1/1024", r::NO_PROGRAMMABLE),
        gauge("ReactionPointRTTValueinMicrosec", "us", r::RTT),
        counter(
            "ReactionPointNumberofAIFactorDecreased",
            "events",
            r::NO_PROGRAMMABLE,
        ),
        counter(
            "ReactionPointNumberofAIFactorIncreased",
            "events",
            r::NO_PROGRAMMABLE,
        ),
        counter(
            "ReactionPointNumberofGFactorDecreased",
            "events",
            r::NO_PROGRAMMABLE,
        ),
        counter(
            "ReactionPointNumberofGFactorIncreased",
            "events",
            r::NO_PROGRAMMABLE,
        ),
        counter(
            "ReactionPointNumberofQPsUnderCCDecreased",
            "events",
            is(&[rdma("rp_flows_ended")]),
        ),
        counter(
            "ReactionPointNumberofQPsUnderCCIncreased",
            "events",
            is(&[rdma("rp_flows_started")]),
        ),
    ],
};

/// `WinOF-2 Diagnostics`.
pub static DIAGNOSTICS: Set = Set {
    title: "WinOF-2 Diagnostics",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("AsyncEQOverrun", "events", r::NO_EQ),
        counter("CompletionEQOverrun", "events", r::NO_EQ),
        counter("CQOverflow", "events", is(&[rdma("cq_overrun")])),
        counter("BadChecksumPacketsInSlowPath", "packets", r::NO_SLOW_PATH),
        counter("CorrectChecksumPacketsInSlowPath", "packets", r::NO_SLOW_PATH),
        counter(
            "UndeterminedChecksumPacketsInSlowPath",
            "packets",
            r::NO_SLOW_PATH,
        ),
        counter("CopiedSendPackets", "packets", r::ALL_COPIED),
        counter("QueuedSendPackets", "packets", r::DRIVER),
        gauge("CPUMEMPages4KMappedByTPTForCQ", "4K pages", r::NO_TRANSLATION),
        gauge("CPUMEMPages4KMappedByTPTForEQ", "4K pages", r::NO_TRANSLATION),
        gauge("CPUMEMPages4KMappedByTPTForMR", "4K pages", r::NO_TRANSLATION),
        gauge("CPUMEMPages4KMappedByTPTForQP", "4K pages", r::NO_TRANSLATION),
        gauge("MTTEntriesUsedForCQ", "entries", r::NO_TRANSLATION),
        gauge("MTTEntriesUsedForEQ", "entries", r::NO_TRANSLATION),
        gauge("MTTEntriesUsedForMR", "entries", r::NO_TRANSLATION),
        gauge("MTTEntriesUsedForQP", "entries", r::NO_TRANSLATION),
        counter(
            "CriticalStallWatermarkReached",
            "events",
            is(&[Link(L::PauseStormErrors)]),
        ),
        counter(
            "MinorStallWatermarkReached",
            "events",
            is(&[Link(L::PauseStormWarnings)]),
        ),
        counter(
            "HeadofQueuetimeoutPacketdiscarded",
            "packets",
            is(&[Drop("head_of_queue")]),
        ),
        counter(
            "StalledStatePacketdiscarded",
            "packets",
            is(&[Drop("class_stalled")]),
        ),
        counter("DroplessModeEntries", "events", is(&[Queue(Q::DroplessEntries)])),
        counter("DroplessModeExits", "events", is(&[Queue(Q::DroplessExits)])),
        counter("DumpMeNowCalls", "events", r::NO_FIRMWARE),
        counter("ResetRequests", "events", r::DRIVER),
        gauge("WatchDogExpiredPerSec", "1/s", r::DRIVER),
        counter("TransmissionEngineHangEvents", "events", r::DRIVER),
        counter("LinkStateChangeEvents", "events", r::LINK_EVENTS),
        counter("LinkStateChangeDownEvents", "events", r::LINK_EVENTS),
        counter(
            "PacketsReceivedSteeringDropped",
            "packets",
            is(&[rdma("drop_bad_gid")]),
        ),
        counter(
            "PacketsReceivedWQEtoosmall",
            "packets",
            is(&[Drop("rx_buffer_too_small")]),
        ),
        gauge("Currentqueuesunderprocessorhandle", "queues", r::NO_SCHEDULER),
        gauge("Totalqueuesunderprocessorhandle", "queues", r::NO_SCHEDULER),
        gauge("Sendqueuespriority", "value", r::NO_SEND_PRIORITY),
        gauge("ReceiveCompletionsinPassivePerSec", "1/s", r::DRIVER),
        gauge("SendCompletionsinPassivePerSec", "1/s", r::DRIVER),
        counter(
            "ReceivedRDMAReadrequests",
            "requests",
            is(&[rdma("rx_read_requests")]),
        ),
        counter(
            "ReceivedRDMAWriterequests",
            "requests",
            is(&[rdma("rx_write_requests")]),
        ),
        counter(
            "ImpliedNAKSequenceErrors",
            "events",
            is(&[rdma("implied_nak_seq_err")]),
        ),
        counter(
            "LocalOperationErrors",
            "errors",
            is(&[rdma("req_local_qp_operation_error")]),
        ),
        counter("RequesterBadResponse", "errors", is(&[rdma("req_bad_response")])),
        counter(
            "RequesterCQEsflushedwitherror",
            "CQEs",
            is(&[rdma("req_cqe_flush_error")]),
        ),
        counter("RequesterCQEswithError", "CQEs", is(&[rdma("req_cqe_error")])),
        counter(
            "RequesterLocalLengthErrors",
            "errors",
            is(&[rdma("req_local_length_error")]),
        ),
        counter(
            "RequesterLocalProtectionErrors",
            "errors",
            is(&[rdma("req_local_protection_error")]),
        ),
        counter(
            "RequesterMemoryWindowBindingErrors",
            "errors",
            is(&[rdma("req_mw_bind_error")]),
        ),
        counter(
            "RequesterOutofOrderSequenceNAK",
            "NAKs",
            is(&[rdma("packet_seq_err")]),
        ),
        counter(
            "RequesterQPTransportRetriesExceededErrors",
            "errors",
            is(&[rdma("req_transport_retries_exceeded")]),
        ),
        counter(
            "RequesterRemoteAccessErrors",
            "errors",
            is(&[rdma("req_remote_access_errors")]),
        ),
        counter(
            "RequesterRemoteInvalidRequestErrors",
            "errors",
            is(&[rdma("req_remote_invalid_request")]),
        ),
        counter(
            "RequesterRemoteOperationErrors",
            "errors",
            is(&[rdma("req_remote_operation_errors")]),
        ),
        counter(
            "RequesterRetryExceededErrors",
            "errors",
            is(&[rdma("req_transport_retries_exceeded")]),
        ),
        counter("RequesterRNRNAK", "NAKs", is(&[rdma("rnr_nak_retry_err")])),
        counter(
            "RequesterRNRNAKRetriesExceededError",
            "errors",
            is(&[rdma("req_rnr_retries_exceeded")]),
        ),
        counter(
            "RequesterTimeoutReceived",
            "timeouts",
            is(&[rdma("local_ack_timeout_err")]),
        ),
        counter(
            "ResponderCQEsflushedwitherror",
            "CQEs",
            is(&[rdma("resp_cqe_flush_error")]),
        ),
        counter("ResponderCQEswithError", "CQEs", is(&[rdma("resp_cqe_error")])),
        counter(
            "ResponderDuplicateRequestReceived",
            "requests",
            is(&[rdma("duplicate_request")]),
        ),
        counter(
            "ResponderLocalLengthErrors",
            "errors",
            is(&[rdma("resp_local_length_error")]),
        ),
        counter(
            "ResponderLocalProtectionErrors",
            "errors",
            is(&[rdma("resp_local_protection_error")]),
        ),
        counter(
            "ResponderLocalQPOperationErrors",
            "errors",
            is(&[rdma("resp_local_qp_operation_error")]),
        ),
        counter(
            "ResponderOutofOrderSequenceReceived",
            "packets",
            is(&[rdma("out_of_sequence")]),
        ),
        counter(
            "ResponderRemoteAccessErrors",
            "errors",
            is(&[rdma("resp_remote_access_errors")]),
        ),
        counter(
            "ResponderRemoteInvalidRequestErrors",
            "errors",
            is(&[rdma("resp_remote_invalid_request")]),
        ),
        counter("ResponderRNRNAK", "NAKs", is(&[rdma("resp_rnr_nak")])),
    ],
};

/// `WinOF-2 Diagnostics Ext 1`.
pub static DIAGNOSTICS_EXT_1: Set = Set {
    title: "WinOF-2 Diagnostics Ext 1",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter(
            "ChecksumcalculatedbySWPerPacket",
            "packets",
            is(&[Queue(Q::ChecksumFinished)]),
        ),
        counter("CMDREQ", "messages", r::CM),
        counter("CQOverrun", "events", is(&[rdma("cq_overrun")])),
        counter("RoCEAdaptiveRetransmission", "events", r::ZTR),
        counter("RoCEadaptiveretransmissiontimeouts", "timeouts", r::ZTR),
        counter("RoCESlowRestart", "events", is(&[rdma("roce_slow_restart")])),
        counter(
            "RoCESlowRestartCNPs",
            "packets",
            is(&[rdma("roce_slow_restart_cnps")]),
        ),
        counter(
            "RoCESlowRestartTransmission",
            "events",
            is(&[rdma("roce_slow_restart_trans")]),
        ),
        counter(
            "Generated Packets dropped due to steering failure",
            "packets",
            is(&[Drop("no_destination")]),
        ),
        counter(
            "Handled Packets dropped due to steering failure",
            "packets",
            is(&[rdma("drop_bad_gid")]),
        ),
    ],
};

/// `WinOF-2 VF Diagnostics`.
pub static VF_DIAGNOSTICS: Set = Set {
    title: "WinOF-2 VF Diagnostics",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("AsyncEQOverrun", "events", r::NO_EQ),
        counter("CompletionEQOverrun", "events", r::NO_EQ),
        counter("CQOverrun", "events", is(&[rdma("cq_overrun")])),
        gauge("Currentqueuesunderprocessorhandle", "queues", r::NO_SCHEDULER),
        gauge("Totalqueuesunderprocessorhandle", "queues", r::NO_SCHEDULER),
        counter("InvalidCommands", "commands", r::NO_BACKCHANNEL),
        counter("QuotaExceededCommand", "commands", r::NO_BACKCHANNEL),
        counter(
            "PacketsReceiveddroppedduetolackofreceiveWQEs",
            "packets",
            is(&[Drop("no_rx_buffer"), rdma("out_of_buffer")]),
        ),
        counter(
            "PacketsReceiveddroppedduetoSteering",
            "packets",
            is(&[rdma("drop_bad_gid")]),
        ),
        counter(
            "PacketsReceiveddroppedduetoVPortDown",
            "packets",
            NotModelled(
                "frames for an adapter that is down are counted where they come from: see `receiver_down`",
            ),
        ),
        counter(
            "PacketsTransmitteddroppedduetoVPortDown",
            "packets",
            NotModelled("an adapter that is down takes no frames from its guest"),
        ),
        counter(
            "PacketsReceivedWQEtoosmall",
            "packets",
            is(&[Drop("rx_buffer_too_small")]),
        ),
        counter("SendQueuePriorityUpdateFlow", "events", r::NO_SEND_PRIORITY),
    ],
};
