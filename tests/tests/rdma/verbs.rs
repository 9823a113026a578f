//! guest-lib as a process of the host, against the RDMA function of an in-process NIC: programs as people write
//! them.

mod administration;
mod frames;
mod life;
mod outcomes;
mod partitions;
mod posts;
mod queue_pairs;
mod raw;
mod segments;
mod traffic;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use vnic_backend::AdapterSpec;
use vnic_tests::driver::rig::{PATIENCE, Rig, wait_for};
use vnic_verbs::{
    Access, AddressVector, AsyncEvent, CommandStatus, CompletionKind, CompletionQueue, CompletionStatus,
    ConnectOptions, Context, CqBuilder, Data, Device, DeviceAddress, Endpoint, Error, GidKind, MemoryRegion,
    MwType, PostReason, ProtectionDomain, QpState, QueuePair, Rc, RecvWr, Reregister, SendWr, Uc, Ud,
    WorkCompletion,
};

/// A NIC with adapters `a` and `b`, and a driver at each.
struct Pair {
    rig: Rig,
    a: Side,
    b: Side,
}

/// A driver, with what most tests need.
struct Side {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

const LEN: usize = 1 << 20;

fn rdma_socket(rig: &Rig, name: &str) -> PathBuf {
    rig.dir().join(format!("{name}-rdma.sock"))
}

fn add(rig: &mut Rig, name: &str) -> Result<()> {
    add_with(rig, name, |_| {})
}

fn add_with(rig: &mut Rig, name: &str, change: impl FnOnce(&mut AdapterSpec)) -> Result<()> {
    let socket = rdma_socket(rig, name);
    rig.add_with(name, |spec| {
        spec.rdma_socket = Some(socket);
        change(spec);
    })?;
    Ok(())
}

/// Opens the RDMA function of an adapter; after another driver has left it, as soon as the daemon has noticed.
fn open(rig: &Rig, name: &str) -> Result<Context> {
    let address = DeviceAddress::Socket(rdma_socket(rig, name));
    let mut opened = Err(Error::Setup("never tried".into()));
    wait_for(|| {
        opened = Device::open(&address);
        opened.is_ok()
    });
    Ok(opened?)
}

impl Side {
    fn new(rig: &Rig, name: &str) -> Result<Side> {
        let context = open(rig, name)?;
        let pd = context.alloc_pd()?;
        Ok(Side {
            cq: context.create_cq(1024)?,
            region: pd.allocate(LEN, Access::REMOTE_ALL | Access::MW_BIND)?,
            pd,
            context,
        })
    }

    fn rc(&self) -> Result<QueuePair<Rc>> {
        Ok(self
            .pd
            .qp::<Rc>(&self.cq, &self.cq)
            .max_send_sge(4)
            .max_inline(200)
            .build()?)
    }

    /// Takes a completion, and it must be a success.
    fn done(&self) -> Result<WorkCompletion> {
        let wc = take(&self.cq)?;
        wc.ok()?;
        Ok(wc)
    }
}

/// Takes one completion.
fn take(cq: &CompletionQueue) -> Result<WorkCompletion> {
    let end = Instant::now() + PATIENCE;
    let mut one = [WorkCompletion::default()];
    while cq.poll(&mut one)? == 0 {
        ensure!(Instant::now() < end, "no completion");
        std::thread::yield_now();
    }
    Ok(one[0])
}

fn quiet(cq: &CompletionQueue) -> Result<()> {
    let mut one = [WorkCompletion::default()];
    ensure!(cq.poll(&mut one)? == 0, "an unexpected completion: {one:?}");
    Ok(())
}

fn pair() -> Result<Pair> {
    pair_on(1)
}

/// On so many data cores, the adapters on different ones if there are two.
fn pair_on(cores: usize) -> Result<Pair> {
    let mut rig = Rig::new(cores)?;
    add(&mut rig, "a")?;
    add(&mut rig, "b")?;
    Ok(Pair {
        a: Side::new(&rig, "a")?,
        b: Side::new(&rig, "b")?,
        rig,
    })
}

/// Connects two ends.
fn connect<K: vnic_verbs::qp::Connected, L: vnic_verbs::qp::Connected>(
    a: &QueuePair<K>,
    b: &QueuePair<L>,
) -> Result<()> {
    // An ACK may take seconds on a busy machine.
    let options = ConnectOptions {
        timeout: 20,
        ..ConnectOptions::default()
    };
    // As text, as programs exchange it.
    let (at_a, at_b) = (a.endpoint(1)?.to_string(), b.endpoint(1)?.to_string());
    a.connect(&at_b.parse::<Endpoint>()?, &options)?;
    b.connect(&at_a.parse::<Endpoint>()?, &options)?;
    Ok(())
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// Nothing is left of a driver that has gone.
fn nothing_left(rig: &Rig, name: &str) -> Result<()> {
    let context = open(rig, name)?;
    for resource in context.resources()? {
        ensure!(
            // A driver that has just begun has one doorbell ring, and the adapter its GIDs.
            resource.used == 0
                || ["gid", "doorbells", "extents"]
                    .iter()
                    .any(|n| resource.name.contains(n)),
            "{} {} left",
            resource.used,
            resource.name
        );
    }
    Ok(())
}
