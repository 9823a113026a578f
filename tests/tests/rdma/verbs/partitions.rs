//! Partitions of adapters, as programs and operators see them.

use vnic_backend::{NicEventKind, PkeyTable};

use super::*;

fn set(rig: &Rig, name: &str, pkeys: &[u16]) -> Result<()> {
    let spec = AdapterSpec {
        pkeys: PkeyTable::new(pkeys)?,
        ..rig.nic.adapter(name)?.wanted
    };
    rig.nic.update_adapter(spec)?;
    Ok(())
}

/// Connects two ends at an index of their tables, so that they soon give up.
fn connect_at(a: &QueuePair<Rc>, b: &QueuePair<Rc>, (at_a, at_b): (u16, u16)) -> Result<(), Error> {
    let options = |pkey_index| ConnectOptions {
        pkey_index,
        timeout: 12,
        retry_count: 1,
        ..ConnectOptions::default()
    };
    a.connect(&b.endpoint(1)?, &options(at_a))?;
    b.connect(&a.endpoint(1)?, &options(at_b))
}

/// How a write of the first side ends on a new queue pair.
fn write(pair: &Pair, at: (u16, u16)) -> Result<CompletionStatus> {
    let Pair { a, b, .. } = pair;
    // An answer that comes late on a busy machine is no refusal of the other side: then it is tried again.
    let mut status = CompletionStatus::RetryExceeded;
    let dropped = b.context.query_port()?.bad_pkeys;
    for _ in 0..20 {
        let (qa, qb) = (a.rc()?, b.rc()?);
        connect_at(&qa, &qb, at)?;
        let data = Data::inline(b"across");
        qa.post_send(&[SendWr::write(data, b.region.addr(), b.region.rkey()).signaled()])?;
        status = take(&a.cq)?.status();
        if status == CompletionStatus::Success || b.context.query_port()?.bad_pkeys != dropped {
            break;
        }
    }
    Ok(status)
}

#[test]
fn an_operator_parts_two_adapters_and_joins_them_again_under_traffic() -> Result<()> {
    let mut pair = pair()?;
    let port = pair.b.context.query_port()?;
    ensure!((port.pkeys(), port.bad_pkeys) == (&[0xffff][..], 0));
    ensure!(write(&pair, (0, 0))? == CompletionStatus::Success);
    // An entry that is not there.
    let (qa, qb) = (pair.a.rc()?, pair.b.rc()?);
    let refused = connect_at(&qa, &qb, (1, 0)).err().and_then(|e| e.status());
    ensure!(refused == Some(CommandStatus::OutOfRange), "{refused:?}");

    set(&pair.rig, "b", &[0x8001, 0x0002])?;
    let told = pair.b.context.wait_async_event(Some(PATIENCE))?;
    ensure!(told == Some(AsyncEvent::PkeyChange), "{told:?}");
    ensure!(pair.b.context.query_port()?.pkeys() == [0x8001, 0x0002]);
    ensure!(write(&pair, (0, 0))? == CompletionStatus::RetryExceeded);
    ensure!(pair.b.context.query_port()?.bad_pkeys > 0);
    ensure!(pair.a.context.query_port()?.bad_pkeys == 0);
    let b_gid = pair.b.context.gids()?.first().context("a GID")?.gid;
    pair.rig.wait_event("b", |kind| {
        matches!(kind, NicEventKind::BadPkey(v) if v.pkey == 0xffff && v.own == 0x8001 && v.packets > 0
            && v.source.0 != b_gid.0)
    })?;

    // Members of the other partition speak with each other, but not two limited ones.
    set(&pair.rig, "a", &[0xffff, 0x8002])?;
    ensure!(write(&pair, (1, 1))? == CompletionStatus::Success);
    ensure!(write(&pair, (1, 0))? == CompletionStatus::RetryExceeded);
    set(&pair.rig, "a", &[0xffff, 0x0002])?;
    ensure!(write(&pair, (1, 1))? == CompletionStatus::RetryExceeded);
    // The adapter keeps them over a restart and for the next driver.
    pair.rig.nic.restart_adapter("a")?;
    let Pair { rig, a, b } = pair;
    drop((a, b));
    let (a, b) = (Side::new(&rig, "a")?, Side::new(&rig, "b")?);
    ensure!(a.context.query_port()?.pkeys() == [0xffff, 0x0002]);
    set(&rig, "b", &[0x8002])?;
    let again = Pair { rig, a, b };
    ensure!(write(&again, (1, 0))? == CompletionStatus::Success);
    let query = again.a.rc()?;
    connect_at(&query, &again.b.rc()?, (1, 0))?;
    ensure!(query.query()?.attributes.pkey_index == 1);
    Ok(())
}
