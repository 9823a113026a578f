//! RDMA.

use super::super::Scopes;
use super::{KeyDef, field};

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::one_of("roce_mode", &[(0, "RoCEv1"), (2, "RoCEv2"), (4, "no RoCE")])
        .acts(field!(roce_mode))
        .default(2)
        .scopes(Scopes::ADAPTER.union(Scopes::DRIVER))
        .help("Protocol of RDMA packets. What is stored for the adapter wins over what is stored for the driver.")
        .note("1 and 3 are not defined and not allowed.")
        .source("WinOF-2 Ethernet Network, Configuring the RoCE Mode"),
    KeyDef::switch("*NetworkDirect")
        .acts(field!(network_direct))
        .default(1)
        .sz()
        .help("The adapter has RDMA.")
        .note("Recommended off where the switches mark no congestion and have no priority flow control.")
        .source("WinOF-2 Ethernet Network, RoCE Configuration"),
    KeyDef::switch("EceSupportEnabled")
        .acts(field!(ece))
        .default(1)
        .help("RDMA connections exchange what their ends can do (IBTA 1.4, enhanced connection establishment).")
        .note(
            "The section also speaks of switching ECE on by firmware settings; those settings (selective repeat, \
             programmable congestion control) are other features. When it acts is not documented.",
        )
        .source("WinOF-2 Ethernet Network, Enhanced Connection Establishment"),
    KeyDef::switch("EnableGpuDirect")
        .acts(field!(gpu_direct))
        .default(0)
        .help("Processes of the host may register dma-bufs (ibv_reg_dmabuf_mr), of up to 4 GiB each.")
        .note(
            "The exporter must let its memory be mapped, as udmabuf does; that of most GPUs cannot be. Its driver says how long \
             an access may take, and the data core waits: switch the key on for drivers that you trust. Anonymous files \
             (memfd_create) need no key.",
        )
        .source("WinOF-2 Ethernet Network, GPUDirect"),
];
