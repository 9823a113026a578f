//! The inside of a chip: nearly nothing of it is here.

use super::Term::Priority;
use super::reasons as r;
use super::terms::is;
use super::{Family, Instance, Set, counter, gauge};
use crate::counters::PriorityCounter as C;

/// `WinOF-2 Device Diagnostics`.
pub static DEVICE_DIAGNOSTICS: Set = Set {
    title: "WinOF-2 Device Diagnostics",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        gauge("AvailableDynamicMSIXCount", "vectors", r::NO_PCIE),
        gauge("TotalDynamicMSIXCount", "vectors", r::NO_PCIE),
        gauge("NictemperatureinCelsiusdegreesunit", "degrees C", r::NO_PHY),
        counter("CQslicesbusytime", "clocks/events", r::NO_CHIP),
        counter("EQslicesbusytime", "clocks/events", r::NO_CHIP),
        counter("MSIXslicesbusytime", "clocks/events", r::NO_CHIP),
        counter("InternalRQoutofbuffer", "clocks/events", r::NO_CHIP),
        counter("L0MPThit", "clocks/events", r::NO_TRANSLATION),
        counter("L0MPTmiss", "clocks/events", r::NO_TRANSLATION),
        counter("L1MPThit", "clocks/events", r::NO_TRANSLATION),
        counter("L1MPTmiss", "clocks/events", r::NO_TRANSLATION),
        counter("L0MTThit", "clocks/events", r::NO_TRANSLATION),
        counter("L0MTTmiss", "clocks/events", r::NO_TRANSLATION),
        counter("L1MTThit", "clocks/events", r::NO_TRANSLATION),
        counter("L1MTTmiss", "clocks/events", r::NO_TRANSLATION),
        gauge("L0MPThitPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L0MPTmissPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L1MPThitPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L1MPTmissPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L0MTThitPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L0MTTmissPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L1MTThitPerSec", "clocks/events", r::NO_TRANSLATION),
        gauge("L1MTTmissPerSec", "clocks/events", r::NO_TRANSLATION),
        counter("ReceiveWQEcachehit", "clocks/events", r::NO_CHIP),
        counter("ReceiveWQEcachemiss", "clocks/events", r::NO_CHIP),
        counter("FastpacketshitinLDBL1cache", "clocks/events", r::NO_CHIP),
        counter("FastpacketsmissinLDBL1cache", "clocks/events", r::NO_CHIP),
        counter("SlowpacketshitinLDBL1cache", "clocks/events", r::NO_CHIP),
        counter("SlowpacketsmissinLDBL1cache", "clocks/events", r::NO_CHIP),
        counter("PacketshitinLDBL2cache", "clocks/events", r::NO_CHIP),
        counter("PacketsmissinLDBL2cache", "clocks/events", r::NO_CHIP),
        counter("FastpacketshitinREQSLL1", "clocks/events", r::NO_CHIP),
        counter("FastpacketsmissinREQSLL1", "clocks/events", r::NO_CHIP),
        counter("SlowpacketshitinREQSLL1", "clocks/events", r::NO_CHIP),
        counter("SlowpacketsmissinREQSLL1", "clocks/events", r::NO_CHIP),
        counter("PacketshitinREQSLL2", "clocks/events", r::NO_CHIP),
        counter("PacketsmissinREQSLL2", "clocks/events", r::NO_CHIP),
        counter("Fastpathpacketssliceload", "clocks/events", r::NO_CHIP),
        counter("Slowpathpacketssliceload", "clocks/events", r::NO_CHIP),
        counter("NoPXTcreditstime", "clocks/events", r::NO_CHIP),
        counter("Nosendcreditsforschedulingtime", "clocks/events", r::NO_CHIP),
        counter(
            "Noslowpathsendcreditsforschedulingtime",
            "clocks/events",
            r::NO_CHIP,
        ),
        counter("PacketssentbySXWtoSXP", "clocks/events", r::NO_CHIP),
        counter("QPdoneduetodesched", "clocks/events", r::NO_CHIP),
        counter("QPdoneduetoE2Ecredits", "clocks/events", r::NO_CHIP),
        counter("QPdoneduetolimited", "clocks/events", r::NO_CHIP),
        counter("QPdoneduetoVLlimited", "clocks/events", r::NO_CHIP),
        counter("QPdoneduetoworkdone", "clocks/events", r::NO_CHIP),
        counter("RXSnofastpathcredits", "clocks/events", r::NO_CHIP),
        counter("RXSnoslowpathcredits", "clocks/events", r::NO_CHIP),
        counter("RXTnofastpathcredits", "clocks/events", r::NO_CHIP),
        counter("RXTnoslowpathcredits", "clocks/events", r::NO_CHIP),
        counter("Steeringhit", "clocks/events", r::NO_CHIP),
        counter("Steeringmiss", "clocks/events", r::NO_CHIP),
        counter("Steeringpipe0processingtime", "clocks/events", r::NO_CHIP),
        counter("Steeringpipe1processingtime", "clocks/events", r::NO_CHIP),
        counter("Steeringprocessingtime", "clocks/events", r::NO_CHIP),
        counter("TPTindirectmemorykeyaccess", "clocks/events", r::NO_TRANSLATION),
        counter("WQEaddresstranslationbackpressure", "clocks/events", r::NO_CHIP),
    ],
};

/// `WinOF-2 PCI Device Diagnostics`.
pub static PCI_DEVICE_DIAGNOSTICS: Set = Set {
    title: "WinOF-2 PCI Device Diagnostics",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("AvailablePCIBW", "clocks", r::NO_PCIE),
        gauge("AvailablePCIBWPerSec", "clocks/s", r::NO_PCIE),
        counter("UsedPCIBW", "clocks", r::NO_PCIE),
        gauge("UsedPCIBWPerSec", "clocks/s", r::NO_PCIE),
        counter("PCIbackpressurecycles", "clocks", r::NO_PCIE),
        gauge("PCIbackpressurecyclesPerSec", "clocks/s", r::NO_PCIE),
        counter("PCIreadbackpressurecycles", "clocks", r::NO_PCIE),
        gauge("PCIreadbackpressurecyclesPerSec", "clocks/s", r::NO_PCIE),
        counter("PCIwritebackpressurecycles", "clocks", r::NO_PCIE),
        gauge("PCIwritebackpressurecyclesPerSec", "clocks/s", r::NO_PCIE),
        counter("PCIreadstucknoreceivebuffer", "clocks", r::NO_PCIE),
        gauge("PCIlinkspeed", "GT/s", r::NO_PCIE),
        gauge("PCIlinkwidth", "lanes", r::NO_PCIE),
        counter("RXPCIerrors", "errors", r::NO_PCIE),
        counter("TXPCIerrors", "errors", r::NO_PCIE),
        counter("TXPCIfatalerrors", "errors", r::NO_PCIE),
        counter("TXPCInonfatalerrors", "errors", r::NO_PCIE),
        counter(
            "RXPACKETDROPSPCIeBUFFERS",
            "packets",
            is(&[Priority(C::RxCongestionDiscards)]),
        ),
        counter(
            "RXPACKETMARKEDPCIeBUFFERS",
            "packets",
            is(&[Priority(C::RxMarked)]),
        ),
    ],
};

/// `WinOF-2 Port Diagnostics`.
pub static PORT_DIAGNOSTICS: Set = Set {
    title: "WinOF-2 Port Diagnostics",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("RXErrorLane0phy", "errors", r::NO_PHY),
        gauge("RXErrorLane0phyPerSec", "errors/s", r::NO_PHY),
        counter("RXErrorLane1phy", "errors", r::NO_PHY),
        gauge("RXErrorLane1phyPerSec", "errors/s", r::NO_PHY),
        counter("RXErrorLane2phy", "errors", r::NO_PHY),
        gauge("RXErrorLane2phyPerSec", "errors/s", r::NO_PHY),
        counter("RXErrorLane3phy", "errors", r::NO_PHY),
        gauge("RXErrorLane3phyPerSec", "errors/s", r::NO_PHY),
        counter("RXKbitsphy", "kbit", r::NO_PHY),
        gauge("RXKbitsphyPerSec", "kbit/s", r::NO_PHY),
        counter("RXPCSCorrectedBitsphy", "bits", r::NO_PHY),
        gauge("RXPCSCorrectedBitsphyPerSec", "bits/s", r::NO_PHY),
        counter("RXPCSSymbolErrorphy", "symbols", r::NO_PHY),
        gauge("RXPCSSymbolErrorphyPerSec", "symbols/s", r::NO_PHY),
    ],
};

/// `WinOF-2 ICMC Diag Counters Ext1`.
pub static ICMC: Set = Set {
    title: "WinOF-2 ICMC Diag Counters Ext1",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("ICMCCQHit", "events", r::NO_CHIP),
        counter("ICMCCQMiss", "events", r::NO_CHIP),
        counter("ICMCQPReceiveHit", "events", r::NO_CHIP),
        counter("ICMCQPReceiveMiss", "events", r::NO_CHIP),
        counter("ICMCQPSendHit", "events", r::NO_CHIP),
        counter("ICMCQPSendMiss", "events", r::NO_CHIP),
        counter("ICMCSRQHit", "events", r::NO_CHIP),
        counter("ICMCSRQMiss", "events", r::NO_CHIP),
    ],
};

/// `WinOF-2 SW Backchannel Diagnostics`.
pub static SW_BACKCHANNEL: Set = Set {
    title: "WinOF-2 SW Backchannel Diagnostics",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        gauge("CurrentlyActiveCapabilitiesBitmask", "OIDs", r::NO_BACKCHANNEL),
        gauge("SupportedCapabilitiesBitmask", "OIDs", r::NO_BACKCHANNEL),
        counter(
            "IllegalOrUnsupportedReadConfigBlockOIDs",
            "OIDs",
            r::NO_BACKCHANNEL,
        ),
        counter(
            "IllegalOrUnsupportedWriteConfigBlockOIDs",
            "OIDs",
            r::NO_BACKCHANNEL,
        ),
        counter("ReadConfigBlockOIDsFailedToApply", "OIDs", r::NO_BACKCHANNEL),
        counter("WriteConfigBlockOIDsFailedToApply", "OIDs", r::NO_BACKCHANNEL),
        gauge("ReadConfigBlockOIDsPerSec", "OIDs", r::NO_BACKCHANNEL),
        gauge("WriteConfigBlockOIDsPerSec", "OIDs", r::NO_BACKCHANNEL),
    ],
};

/// `WinOF-2 (later additions)`.
pub static LATER: Set = Set {
    title: "WinOF-2 (later additions)",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[gauge("Allocated Memory Pages", "pages", r::NO_FIRMWARE)],
};
