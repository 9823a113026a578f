//! RDMA writers beside the Ethernet guests.

use anyhow::{Result, ensure};
use vnic_backend::Nic;
use vnic_backend::counters::RDMA_COUNTERS;
use vnic_verbs::{
    Access, CompletionQueue, ConnectOptions, Context, Device, DeviceAddress, MemoryRegion, ProtectionDomain,
    QueuePair, Rc, SendWr, WorkCompletion,
};

use super::super::product::Product;
use super::traffic::{Extra, WIRE};

/// Bytes of a message.
const MESSAGE: usize = 64 << 10;
/// Messages under way.
const WINDOW: usize = 16;
/// DSCP of its packets, ECN-capable not.
pub const DSCP: u8 = 26;

struct Side {
    _device: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

/// Writes without end from one adapter to another.
pub struct Writer {
    nic: Nic,
    stream: usize,
    from: String,
    sides: [Side; 2],
    qps: [QueuePair<Rc>; 2],
    posted: usize,
    completed: usize,
}

impl Writer {
    /// Connects it.
    pub fn new(product: &Product, nic: &Nic, from: usize, to: usize, stream: usize) -> Result<Writer> {
        let side = |i: usize| -> Result<Side> {
            let device = Device::open(&DeviceAddress::Socket(product.rdma_socket(i)))?;
            let pd = device.alloc_pd()?;
            let cq = device.create_cq(4 * WINDOW as u32)?;
            let region = pd.allocate(WINDOW * MESSAGE, Access::REMOTE_ALL | Access::LOCAL_WRITE)?;
            Ok(Side {
                _device: device,
                pd,
                cq,
                region,
            })
        };
        let sides = [side(from)?, side(to)?];
        let make = |s: &Side| s.pd.qp::<Rc>(&s.cq, &s.cq).max_send_wr(WINDOW as u32).build();
        let qps = [make(&sides[0])?, make(&sides[1])?];
        let options = ConnectOptions {
            gid_index: 1,
            traffic_class: DSCP << 2,
            ..ConnectOptions::default()
        };
        qps[0].connect(&qps[1].endpoint(1)?, &options)?;
        qps[1].connect(&qps[0].endpoint(1)?, &options)?;
        Ok(Writer {
            nic: nic.clone(),
            stream,
            from: format!("vf{from}"),
            sides,
            qps,
            posted: 0,
            completed: 0,
        })
    }

    fn sent(&self, name: &str) -> u64 {
        let values = self.nic.counter_values().adapters;
        let place = RDMA_COUNTERS.iter().position(|def| def.name == name);
        let of = |a: &vnic_backend::counters::AdapterValues| Some(a.rdma.as_ref()?[place?]);
        let adapter = values.iter().find(|a| a.name == self.from);
        adapter.and_then(of).unwrap_or_default()
    }
}

impl Extra for Writer {
    fn turn(&mut self) -> Result<()> {
        let [near, far] = &self.sides;
        let mut done = [WorkCompletion::default(); WINDOW];
        let n = near.cq.poll(&mut done)?;
        for c in &done[..n] {
            c.ok()?;
        }
        self.completed += n;
        while self.posted - self.completed < WINDOW {
            let at = self.posted % WINDOW * MESSAGE;
            let remote = far.region.addr() + at as u64;
            let write = SendWr::write(near.region.slice(at..at + MESSAGE), remote, far.region.rkey());
            self.qps[0].post_send(&[write.signaled()])?;
            self.posted += 1;
        }
        ensure!(self.posted < usize::MAX, "counted to the end");
        Ok(())
    }

    fn count(&self, bytes: &mut [u64]) {
        // Nothing is lost, or sent twice, on the way.
        bytes[self.stream] =
            self.sent("tx_vport_rdma_unicast_bytes") + WIRE * self.sent("tx_vport_rdma_unicast_packets");
    }
}

impl Extra for Vec<Writer> {
    fn turn(&mut self) -> Result<()> {
        self.iter_mut().try_for_each(Extra::turn)
    }

    fn count(&self, bytes: &mut [u64]) {
        for writer in self {
            writer.count(bytes);
        }
    }
}
