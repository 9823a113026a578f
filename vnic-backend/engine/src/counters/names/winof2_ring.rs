//! Queues.

use super::Source::Mean;
use super::Term::{Cpu, Queue};
use super::reasons as r;
use super::terms::{self as t, is};
use super::{Family, Instance, Set, counter, gauge};
use crate::counters::QueueCounter as Q;

/// `WinOF-2 Receive Datapath Counters`.
pub static RECEIVE_DATAPATH: Set = Set {
    title: "WinOF-2 Receive Datapath Counters",
    family: Family::WinOf2,
    instance: Instance::Queue,
    names: &[
        gauge("CpuNumber", "cpu", is(&[Cpu])),
        gauge(
            "Averagepacketcountperindicate",
            "packets",
            Mean(t::sum(&[Queue(Q::RxFrames)]), t::RX_BATCHES),
        ),
        counter("Consumedmaxreceives", "events", r::DRIVER),
        counter("DpcWatchDogSingleDpcStarvation", "events", r::DRIVER),
        counter("DpcWatchDogTotalDpcStarvation", "events", r::DRIVER),
        counter("Dropsduetocompletionqueueerrors", "packets", r::DROPS_OF_ADAPTER),
        counter("Dropsduetoinvalidpacketsize", "packets", r::DROPS_OF_ADAPTER),
        counter("EcnMarkedPacketsIpv4", "packets", r::MARKED),
        counter("EcnMarkedPacketsIpv6", "packets", r::MARKED),
        counter("Interruptsonincorrectcpu", "interrupts", r::NO_AFFINITY),
        counter(
            "Numberofinterrupts",
            "interrupts",
            is(&[Queue(Q::RxNotifications)]),
        ),
        counter("Numberofreceivebuffersposted", "buffers", r::DRIVER),
        counter("Numberoftrafficprofiletransitions", "events", r::DRIVER),
        counter("Packetsinlowresourcemode", "packets", r::DRIVER),
        counter("Packetsprocessedininterruptmode", "packets", r::DRIVER),
        counter("PacketsprocessedinNDISpollmode", "packets", r::DRIVER),
        counter("Packetsprocessedinpollingmode", "packets", r::DRIVER),
        counter("StridedWqes", "WQEs", r::MLX5_QUEUE),
    ],
};

/// `WinOF-2 Transmit Datapath Counters`.
pub static TRANSMIT_DATAPATH: Set = Set {
    title: "WinOF-2 Transmit Datapath Counters",
    family: Family::WinOf2,
    instance: Instance::Queue,
    names: &[
        gauge("CpuNumber", "cpu", is(&[Cpu])),
        gauge("Averagepacketcountperindicate", "packets", r::DRIVER),
        counter("Dropsduetocompletionqueueerrors", "packets", r::DROPS_OF_ADAPTER),
        counter("Dropsduetoinvalidpacketsize", "packets", r::DROPS_OF_ADAPTER),
        counter("Interruptsonincorrectcpu", "interrupts", r::NO_AFFINITY),
        counter("Numberofpacketscompleted", "packets", is(&[Queue(Q::TxFrames)])),
        counter("Numberofpacketsposted", "packets", r::DRIVER),
        counter("Numberofpacketspostedinbypassmode", "packets", r::DRIVER),
        counter("Numberoftrafficprofiletransitions", "events", r::DRIVER),
        counter("OScalltobuildSGLfailed", "events", r::DRIVER),
        counter("Packetsprocessedininterruptmode", "packets", r::DRIVER),
        counter("PacketsprocessedinNDISpollmode", "packets", r::DRIVER),
        counter("Packetsprocessedinpollingmode", "packets", r::DRIVER),
        counter("Transmitcopypackets", "packets", r::DRIVER),
        counter("Transmitringisfull", "events", r::DRIVER),
    ],
};

/// `WinOF-2 RSS Counters`.
pub static RSS: Set = Set {
    title: "WinOF-2 RSS Counters",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("RssIPv4Only", "packets", r::HASH_CLASS),
        counter("RssIPv4PerTcp", "packets", r::HASH_CLASS),
        counter("RssIPv4PerUdp", "packets", r::HASH_CLASS),
        counter("RssIPv6Only", "packets", r::HASH_CLASS),
        counter("RssIPv6PerTcp", "packets", r::HASH_CLASS),
        counter("RssIPv6PerUdp", "packets", r::HASH_CLASS),
        counter("RssMisc", "packets", r::HASH_CLASS),
        counter("NonRssIPv4Only", "packets", r::HASH_CLASS),
        counter("NonRssIPv4PerTcp", "packets", r::HASH_CLASS),
        counter("NonRssIPv4PerUdp", "packets", r::HASH_CLASS),
        counter("NonRssIPv6Only", "packets", r::HASH_CLASS),
        counter("NonRssIPv6PerTcp", "packets", r::HASH_CLASS),
        counter("NonRssIPv6PerUdp", "packets", r::HASH_CLASS),
        counter("NonRssMisc", "packets", r::HASH_CLASS),
        counter("EncapsulatedRssIPv4Only", "packets", r::NO_TUNNEL),
        counter("EncapsulatedRssIPv4PerTcp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedRssIPv4PerUdp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedRssIPv6Only", "packets", r::NO_TUNNEL),
        counter("EncapsulatedRssIPv6PerTcp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedRssIPv6PerUdp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedRssMisc", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssIPv4Only", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssIPv4PerTcp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssIPv4PerUdp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssIPv6Only", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssIPv6PerTcp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssIPv6PerUdp", "packets", r::NO_TUNNEL),
        counter("EncapsulatedNonRssMisc", "packets", r::NO_TUNNEL),
    ],
};
