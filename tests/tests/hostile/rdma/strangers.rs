//! Whoever guesses the number of a QP, its PSN and a key, and takes the address of its peer, is still another adapter.

use anyhow::{Result, ensure};
use vnic_backend::MacAddr;
use vnic_device::command::Opcode;
use vnic_device::command::device::GidRecord;
use vnic_device::command::qp::AddressVector;
use vnic_device::queue::Operation;
use vnic_device::verbs::{CompletionStatus as Status, QpType};
use vnic_tests::driver::rdma::{Link, Qp, Side, World, Wr, link};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_wire::gid::Gid;
use vnic_wire::opcode::{Opcode as Bth, Operation as Packet, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{self, Network, Path};
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{EtherType, aeth, bth, ethernet, reth};

/// Where the attacker has the address of `a`.
const STOLEN: u16 = 40;
/// The PSN that is next in both directions.
const PSN: u32 = 0xff_fff0;

/// Two adapters, `a` and `b`, and one that wants to be taken for `a`.
struct Scene {
    world: World,
    a: Side,
    b: Side,
    evil: Side,
    queue: Guest,
    /// Records of `a` and `b`, and the attacker's own.
    gids: [GidRecord; 3],
}

impl Scene {
    fn new() -> Result<Scene> {
        let mut world = World::new(1, &["a", "b"])?;
        world.add_with("evil", |spec| spec.anti_spoofing = true)?;
        for name in ["a", "b"] {
            let mut settings = world.rig.nic.adapter(name)?.settings;
            settings.congestion.enable = 0xff;
            world.rig.nic.configure_adapter(name, &settings)?;
        }
        let (mut a, mut b, mut evil) = (world.side("a")?, world.side("b")?, world.side("evil")?);
        let queue = world.rig.attach("evil", Options::default())?;
        let gids = [a.d.gid(), b.d.gid(), evil.d.gid()];
        let stolen = GidRecord {
            index: STOLEN,
            mac: [0; 6],
            ..gids[0]
        };
        // Any guest may have any address.
        evil.d
            .ask::<_, [u8; 0]>(Opcode::SetGid, &stolen, &[])
            .expect("SET_GID");
        Ok(Scene {
            world,
            a,
            b,
            evil,
            queue,
            gids,
        })
    }

    fn heard_nothing(&self) -> u64 {
        self.world.rig.counter("b", "drop_bad_gid")
    }

    /// By the attacker's own RDMA function, from one of its addresses.
    fn by_verbs(&mut self, qb: &Qp, sgid_index: u16) -> Result<()> {
        let qp_type = qb.qp_type;
        let to_b = AddressVector {
            dgid: self.gids[1].gid,
            dmac: self.gids[1].mac,
            sgid_index,
            hop_limit: 64,
            ..AddressVector::default()
        };
        let evil = &mut self.evil;
        for psn in [PSN, PSN + 1] {
            let mut qp = evil.qp(qp_type);
            let way = Link {
                sq_psn: psn,
                retry: 1,
                // (Long enough that both requests are posted before the first one is sent again.)
                timeout: 14,
                ..link(to_b, qb.number)
            };
            evil.d.up(&qp, &way);
            let local = evil.at(0, 64);
            evil.mr.area.write(0, &[0xee; 64]);
            let wrs = [
                Wr::new(1, Operation::Write, &[local]).remote(self.b.mr.iova, self.b.mr.rkey),
                Wr::send(2, &[local]),
            ];
            for wr in &wrs {
                evil.post(&mut qp, wr);
            }
            let ends = [evil.cq.wait().status(), evil.cq.wait().status()];
            let expected = match qp_type {
                QpType::Rc => [Status::RetryExceeded, Status::FlushError],
                _ => [Status::Success; 2],
            };
            ensure!(ends == expected, "{qp_type:?}: {ends:?}");
        }
        evil.d.sync();
        Ok(())
    }

    /// A frame from the attacker to `b` as `a` would send it, but for the Ethernet source.
    fn frame(&self, source: MacAddr, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let path = Path {
            eth: ethernet::Header {
                destination: MacAddr(self.gids[1].mac),
                source,
                ethertype: EtherType::IPV6,
            },
            vlan: None,
            network: Network::v2(Gid(self.gids[0].gid), Gid(self.gids[1].gid)),
            source_port: 0xc000,
        };
        let mut frame = Vec::new();
        roce::build(&path, headers, payload, &mut frame).expect("a sound packet");
        frame
    }

    /// By its Ethernet queue.
    fn by_frames(&mut self, qb: &Qp) {
        let transport = match qb.qp_type {
            QpType::Rc => Transport::Rc,
            _ => Transport::Uc,
        };
        let headers = |operation, extended| Headers {
            bth: bth::Header {
                ack_request: true,
                ..bth::Header::new(Bth::new(transport, operation), qb.number, Psn::new(PSN))
            },
            xrceth: None,
            dceth: None,
            extended,
        };
        let write = reth::Header {
            va: self.b.mr.iova,
            rkey: self.b.mr.rkey,
            len: 64,
        };
        let nak = aeth::Header {
            syndrome: aeth::Syndrome::Nak(aeth::NakCode::RemoteAccess),
            msn: 0,
        };
        let all = [
            (headers(Packet::WriteOnly, Extended::Reth(write)), 64),
            (headers(Packet::SendOnly, Extended::None), 64),
            (headers(Packet::Acknowledge, Extended::Aeth(nak)), 0),
            (Headers::cnp(qb.number), 0),
        ];
        let own = MacAddr(self.gids[2].mac);
        for (headers, len) in all {
            if transport == Transport::Uc && matches!(headers.extended, Extended::Aeth(_)) {
                continue;
            }
            // From the address of `a` as well: the switch takes no such frame.
            for source in [own, MacAddr(self.gids[0].mac)] {
                let frame = self.frame(source, &headers, &[0xee; 64][..len]);
                self.queue.send_wait(0, &frame, NetHdr::default());
            }
        }
    }
}

#[test]
fn strangers_are_not_heard() -> Result<()> {
    let mut scene = Scene::new()?;
    for (qp_type, ignored) in [(QpType::Rc, 1), (QpType::Uc, 2)] {
        let (mut qa, mut qb) = {
            let Scene { a, b, .. } = &mut scene;
            a.pair(b, qp_type)
        };
        let before = scene.b.mr.area.bytes(0, 256 << 10);
        let receive = scene.b.at(128, 100);
        scene.b.receive(&mut qb, 1, &[receive]);
        let unheard = scene.heard_nothing();
        // From its own address, then from that of the peer.
        let own = scene.gids[2].index;
        for sgid_index in [own, STOLEN] {
            scene.by_verbs(&qb, sgid_index)?;
        }
        // By two addresses, with two PSNs, two requests; a reliable one is sent twice. Counters are seen a while later.
        let dropped = unheard + if qp_type == QpType::Rc { 16 } else { 8 };
        let seen = wait_for(|| scene.heard_nothing() == dropped);
        ensure!(seen, "{qp_type:?}: {} dropped", scene.heard_nothing() - unheard);
        scene.by_frames(&qb);
        let wrong = if qp_type == QpType::Rc { 3 } else { 2 };
        ensure!(
            wait_for(|| scene.heard_nothing() == dropped + wrong),
            "{qp_type:?}: {} of {wrong} frames were somebody's",
            scene.heard_nothing() - dropped
        );
        let rig = &scene.world.rig;
        ensure!(wait_for(|| rig.counter("b", "rp_cnp_ignored") == ignored));
        ensure!(rig.counter("b", "rp_cnp_handled") == 0);
        scene.b.d.sync();
        ensure!(
            scene.b.cq.poll().is_none() && scene.b.mr.area.bytes(0, 256 << 10) == before,
            "{qp_type:?}"
        );
        // Its peer is heard, with the PSN that all the others tried.
        let Scene { a, b, .. } = &mut scene;
        let wr = Wr::new(4, Operation::Write, &[a.at(64, 64)]).remote(b.mr.iova + 64, b.mr.rkey);
        a.mr.area.write(64, &[0x55; 64]);
        a.done(&mut qa, &wr);
        a.done(&mut qa, &Wr::send(5, &[a.at(0, 100)]));
        b.cq.good(1);
        ensure!(b.mr.area.bytes(64, 64) == [0x55; 64], "{qp_type:?}");
        b.mr.area.write(64, &before[64..128]);
    }
    drop(scene.queue);
    scene.world.finish()
}

/// Two adapters that do the same, and one that does it again after a reset, get other numbers and keys.
#[test]
fn numbers_begin_anywhere() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let mut seen = std::collections::BTreeSet::new();
    for name in ["a", "b", "a", "b"] {
        let mut side = world.side(name)?;
        let qp = side.qp(QpType::Rc);
        seen.insert((qp.number, side.mr.rkey));
    }
    let (numbers, keys): (Vec<u32>, Vec<u32>) = seen.iter().copied().unzip();
    let apart = |of: &[u32]| of.iter().collect::<std::collections::BTreeSet<_>>().len();
    // (Two of four are equal once in a million runs.)
    ensure!(apart(&numbers) == 4 && apart(&keys) == 4, "{seen:x?}");
    world.finish()
}
