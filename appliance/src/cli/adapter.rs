//! `vnicctl adapter`.

mod args;

use vnic_control::v1;

use super::client::{Client, resource};
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, adapter_mac, paging, vlan};
use crate::json;
use crate::names::{self, ADAPTERS};
pub use args::AdapterVerb;

/// Runs a command.
pub async fn run(verb: AdapterVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.adapters().await?;
    match verb {
        AdapterVerb::List => {
            let all = list(client).await?;
            out.message("ListAdaptersResponse", &all, || table(&all.adapters))
        }
        AdapterVerb::Show { name } => {
            let name = resource(ADAPTERS, &name);
            let answer = service.get_adapter(v1::GetAdapterRequest { name }).await?;
            out.answer("Adapter", answer, facts)
        }
        AdapterVerb::Add(add) => out.answer("Adapter", service.create_adapter(add.request()?).await?, facts),
        AdapterVerb::Set(set) => {
            let mut answer = service.update_adapter(set.request()?).await?;
            if set.restart && !answer.get_ref().pending.is_empty() {
                let name = answer.into_inner().name;
                answer = service
                    .restart_adapter(v1::RestartAdapterRequest { name })
                    .await?;
            }
            out.answer("Adapter", answer, facts)
        }
        AdapterVerb::Remove { name } => {
            let name = resource(ADAPTERS, &name);
            service
                .delete_adapter(v1::DeleteAdapterRequest {
                    name,
                    etag: String::new(),
                })
                .await?;
            Ok(())
        }
        AdapterVerb::Restart { name } => {
            let name = resource(ADAPTERS, &name);
            let answer = service
                .restart_adapter(v1::RestartAdapterRequest { name })
                .await?;
            out.answer("Adapter", answer, facts)
        }
        AdapterVerb::PrepareMigration(prepare) => {
            let answer = service.prepare_migration(prepare.request()?).await?;
            out.answer("Adapter", answer, facts)
        }
        AdapterVerb::ExportMigration { name } => {
            let name = resource(ADAPTERS, &name);
            let answer = service
                .begin_migration(v1::BeginMigrationRequest { name })
                .await?;
            out.answer("MigrationDocument", answer, |document| {
                let json = json::of("MigrationDocument", document).unwrap_or_default();
                format!("{json}\n")
            })
        }
        AdapterVerb::HandOver { name } => {
            let name = resource(ADAPTERS, &name);
            let answer = service.hand_over(v1::HandOverRequest { name }).await?;
            out.answer("Adapter", answer, facts)
        }
        AdapterVerb::CancelMigration { name } => {
            let name = resource(ADAPTERS, &name);
            let answer = service
                .cancel_migration(v1::CancelMigrationRequest { name })
                .await?;
            out.answer("Adapter", answer, facts)
        }
        AdapterVerb::Mac(verb) => adapter_mac::run(verb, client, out).await,
        AdapterVerb::Watch { name } => {
            let name = name.map(|n| resource(ADAPTERS, &n)).unwrap_or_default();
            let stream = service
                .watch_adapters(v1::WatchAdaptersRequest { name })
                .await?
                .into_inner();
            out.follow("WatchAdaptersResponse", stream, line).await
        }
    }
}

/// All adapters, page by page.
pub async fn list(client: &Client) -> Result<v1::ListAdaptersResponse, Failure> {
    let mut service = client.adapters().await?;
    paging::list(&mut service, v1::ListAdaptersRequest::default()).await
}

/// State of an adapter for a column.
pub fn state(adapter: &v1::Adapter) -> &'static str {
    match adapter.state() {
        v1::adapter::State::Unspecified => "",
        v1::adapter::State::Detached => "detached",
        v1::adapter::State::Attached => "attached",
        v1::adapter::State::Up => "up",
        v1::adapter::State::Failed => "failed",
    }
}

/// Whether an adapter or port exists after a restart of the daemon.
pub fn kept(lifetime: v1::Lifetime) -> &'static str {
    match lifetime {
        v1::Lifetime::Configured => "configured",
        v1::Lifetime::Stored => "stored",
        v1::Lifetime::UntilDaemonEnds | v1::Lifetime::Unspecified => "no",
    }
}

fn queues(adapter: &v1::Adapter) -> String {
    format!("{}/{}", adapter.queue_pairs_enabled, adapter.queue_pairs)
}

fn table(adapters: &[v1::Adapter]) -> String {
    text::table! { a in adapters, "no adapters";
        let traffic = a.traffic.unwrap_or_default();
        "NAME": names::last(&a.name),
        "STATE": state(a),
        "RDMA": a.rdma.as_ref().map_or("none", rdma_word),
        "MAC": first_mac(a),
        ">MTU": a.mtu,
        ">QUEUES": queues(a),
        ">CORE": a.data_core.map(|c| c.to_string()).unwrap_or_default(),
        ">RX FRAMES": text::count(traffic.rx_frames),
        ">TX FRAMES": text::count(traffic.tx_frames),
        ">RDMA RX": text::count(traffic.rdma_rx_packets),
        ">RDMA TX": text::count(traffic.rdma_tx_packets),
        ">DROPS": text::count(traffic.drops),
        "KEPT": kept(a.lifetime()),
        "SOCKET": a.eth_socket,
    }
}

/// The first address of an adapter, and the number of its others.
fn first_mac(a: &v1::Adapter) -> String {
    match (a.macs.as_slice(), a.additional_macs.len()) {
        ([], _) => String::new(),
        ([one], 0) => one.clone(),
        ([first, own @ ..], more) => format!("{first} +{}", own.len() + more),
    }
}

fn driver_addresses(driver: &v1::EthernetDriver) -> String {
    let own = (!driver.mac.is_empty()).then_some(&driver.mac);
    let all = own.into_iter().chain(&driver.unicast).chain(&driver.multicast);
    all.map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn driver_rss(driver: &v1::EthernetDriver) -> String {
    let types = driver.rss_hash_types.join(" ");
    match driver.rss_table.len() {
        0 => String::new(),
        n => format!("{types}, {n} entries over {} queue pairs", driver.queue_pairs),
    }
}

fn driver_coalescing(driver: &v1::EthernetDriver) -> String {
    let queue = |q: &v1::QueueCoalescing| format!("{} {} frames or {} us", q.queue, q.frames, q.micros);
    driver.coalescing.iter().map(queue).collect::<Vec<_>>().join(", ")
}

fn driver_commands(a: &v1::Adapter) -> String {
    let driver = a.driver.as_ref();
    driver.map_or_else(String::new, |d| {
        format!("{}, {} of them refused", d.commands, d.refused)
    })
}

fn facts(a: &v1::Adapter) -> String {
    let traffic = a.traffic.unwrap_or_default();
    let socket = match a.socket_role() {
        v1::adapter::SocketRole::Connect => format!("{} (the VMM listens)", a.eth_socket),
        _ => a.eth_socket.clone(),
    };
    let spoofing = match a.anti_spoofing {
        Some(true) => "on: frames from other addresses are dropped",
        Some(false) => "off",
        None => "",
    };
    let control = match a.control_queue {
        Some(true) => "its own: vhost-user-test-device-pci (virtio-id=1), User-Mode-Linux",
        Some(false) => "the VMM's",
        None => "",
    };
    let taken = match a.rdma_flows {
        Some(false) => "none: programs take no frames",
        _ => "",
    };
    let driver = a.driver.clone().unwrap_or_default();
    let flow = |frames, bytes| format!("{frames} frames, {}", text::bytes(bytes));
    let packets = |packets, bytes| format!("{packets} packets, {}", text::bytes(bytes));
    let mut facts = Facts::default();
    text::facts! { facts;
        "name": names::last(&a.name),
        "state": format!("{} since {}", state(a), text::time(a.state_time)),
        "migration": migration(a),
        "mac": a.macs.join(" "),
        "more macs": a.additional_macs.join(" "),
        "mtu": a.mtu,
        "queue pairs": format!("{} (enabled/offered)", queues(a)),
        "control queue": control,
        "driver receives": driver.receive_modes.join(" "),
        "driver addresses": driver_addresses(&driver),
        "driver vlans": driver.vlans.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
        "driver rss": driver_rss(&driver),
        "driver offloads": driver.offloads.join(" "),
        "driver coalescing": driver_coalescing(&driver),
        "driver commands": driver_commands(a),
        "vlan": vlan::words(a.vlan.as_ref()),
        "anti-spoofing": spoofing,
        "flows": taken,
        "allowed addresses": a.allowed_addresses.join(" "),
        "wake": &a.wake,
        "wake patterns": a.wake_patterns.join(" "),
        "data core": a.data_core.map(|c| c.to_string()).unwrap_or_default(),
        "socket": socket,
        "socket access": socket_access(a),
        "features": a.feature_names.join(" "),
        "guest memory": text::bytes(a.memory_bytes),
        "regions": of(a.regions, |n| n.to_string()),
        "descriptors": of(a.descriptors, |n| n.to_string()),
        "to the guest": flow(traffic.rx_frames, traffic.rx_bytes),
        "from the guest": flow(traffic.tx_frames, traffic.tx_bytes),
        "dropped": format!("{} frames", traffic.drops),
        "dropless mode": dropless(&a.dropless.unwrap_or_default()),
        "reserve": reserve(&a.reserve.unwrap_or_default()),
        "switch port": a.switch_port,
        "lifetime": lifetime(a.lifetime()),
        "after a restart": waiting(a, ""),
    }
    let Some(rdma) = &a.rdma else {
        let none = if a.rdma_enabled == Some(false) {
            "none"
        } else {
            "not running"
        };
        facts.add("rdma function", none);
        return facts.finish();
    };
    let used =
        |r: &v1::RdmaResource| (r.used > 0 && r.r#type != "gid").then(|| format!("{} {}", r.r#type, r.used));
    let used: Vec<String> = rdma.resources.iter().filter_map(used).collect();
    let owners: Vec<String> = rdma.owners.iter().map(super::qp::owner).collect();
    let function = match rdma.off.as_str() {
        "" => format!("{} since {}", rdma_state(rdma), text::time(rdma.state_time)),
        why => format!("off: {why}"),
    };
    text::facts! { facts;
        "daemon memory": of(rdma.daemon_memory, text::bytes),
        "rdma function": function,
        "rdma socket": rdma.socket,
        "p_keys": super::subnet::pkeys(&a.pkeys),
        "rdma received": packets(traffic.rdma_rx_packets, traffic.rdma_rx_bytes),
        "rdma sent": packets(traffic.rdma_tx_packets, traffic.rdma_tx_bytes),
        "rdma processes": owners.join(", "),
        "rdma memory": text::bytes(rdma.memory_bytes),
        "rdma objects": used.join(", "),
    }
    format!("{}\n{}", facts.finish(), super::rdma::table(&rdma.gids))
}

/// Part of an adapter in a migration, in words; empty: none.
fn migration(a: &v1::Adapter) -> String {
    let Some(m) = &a.migration else {
        return String::new();
    };
    let peer = match m.peer.as_str() {
        "" => "another daemon",
        peer => names::last(peer),
    };
    let here = if m.has_addresses { "here" } else { "not here" };
    let way = match m.part() {
        v1::adapter_migration::Part::Target => "from",
        _ => "to",
    };
    format!("{way} {peer}; the addresses are {here} now")
}

/// Settings that wait for a restart of the adapter, with their values; `before` stands in front of them.
fn waiting(a: &v1::Adapter, before: &str) -> String {
    let fields: Vec<String> = a
        .pending
        .iter()
        .map(|p| format!("{} {}", p.field, p.value))
        .collect();
    match fields.as_slice() {
        [] => String::new(),
        fields => format!("{before}{}", fields.join(", ")),
    }
}

/// Who may open an adapter's sockets, in words. The VMM's own sockets are the VMM's to give.
fn socket_access(a: &v1::Adapter) -> String {
    let number = |of: Option<u32>| of.map_or("the daemon's".to_owned(), |n| n.to_string());
    let users: Vec<String> = a.socket_users.iter().map(ToString::to_string).collect();
    let mut words = Vec::new();
    if a.socket_role() != v1::adapter::SocketRole::Connect {
        let (owner, group) = (number(a.socket_owner), number(a.socket_group));
        words.push(format!("mode {}, owner {owner}, group {group}", a.socket_mode));
    }
    if !users.is_empty() {
        words.push(format!("VMMs of users {} only", users.join(" ")));
    }
    words.join("; ")
}

/// Used part of a budget in words.
fn of(budget: Option<v1::Budget>, show: impl Fn(u64) -> String) -> String {
    let budget = budget.unwrap_or_default();
    format!("{} of {}", show(budget.used), show(budget.limit))
}

fn dropless(mode: &v1::DroplessMode) -> String {
    let state = if mode.on {
        let us = mode.timeout * 100;
        format!("on: frames wait up to {us} us; {} wait now", mode.waiting)
    } else {
        "off".to_owned()
    };
    match mode.timeouts {
        0 => state,
        n => format!("{state}; {n} times a frame waited too long"),
    }
}

fn reserve(reserve: &v1::BurstReserve) -> String {
    if !reserve.on {
        return "off".to_owned();
    }
    let (frames, bytes) = (reserve.frames, text::bytes(reserve.bytes));
    format!(
        "{frames} of {} frames, {bytes}; {} at most so far",
        reserve.limit, reserve.frames_max
    )
}

/// State of an RDMA function for a column.
pub fn rdma_word(rdma: &v1::RdmaFunction) -> &'static str {
    if rdma.off.is_empty() {
        rdma_state(rdma)
    } else {
        "off"
    }
}

fn rdma_state(rdma: &v1::RdmaFunction) -> &'static str {
    match rdma.state() {
        v1::rdma_function::State::Unspecified => "",
        v1::rdma_function::State::Detached => "detached",
        v1::rdma_function::State::Attached => "attached",
        v1::rdma_function::State::Up => "up",
        v1::rdma_function::State::Failed => "failed",
    }
}

/// Lifetime of an adapter in words.
pub fn lifetime(lifetime: v1::Lifetime) -> &'static str {
    match lifetime {
        v1::Lifetime::Unspecified => "",
        v1::Lifetime::Stored => "made at run time and stored: comes back when the daemon restarts",
        v1::Lifetime::Configured => "in the configuration: comes back when the daemon restarts",
        v1::Lifetime::UntilDaemonEnds => "until the daemon ends: not stored",
    }
}

fn line(message: &v1::WatchAdaptersResponse) -> String {
    use v1::watch_adapters_response::Change;
    let adapter = message.adapter.clone().unwrap_or_default();
    let what = match message.change() {
        Change::Unspecified => return String::new(),
        Change::Synced => return "-- changes from here on --\n".to_owned(),
        Change::Removed => "removed".to_owned(),
        Change::Added => format!("added, {}", state(&adapter)),
        Change::Updated => format!("changed{}", waiting(&adapter, "; a restart lets act: ")),
        Change::Existing | Change::State => state(&adapter).to_owned(),
    };
    format!(
        "{}  {:<15}  {what}\n",
        text::time(message.time),
        names::last(&adapter.name)
    )
}
