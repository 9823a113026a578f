//! `vnicctl trace`: where would a frame go, and why would it be dropped?

use clap::Args;
use vnic_backend::MacAddr;
use vnic_control::v1;

use super::Failure;
use super::client::Client;
use super::oid::{self, Bytes};
use super::output::Output;
use super::text;
use crate::check;
use crate::names::{self, ADAPTERS};

/// The frame.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Adapter or port that the frame comes from
    from: String,
    /// Destination: an adapter, a MAC address, or `broadcast`
    #[arg(
        long,
        value_name = "WHERE",
        required_unless_present = "frame",
        conflicts_with = "frame"
    )]
    to: Option<String>,
    /// Source address [default: the adapter's own]
    #[arg(long, value_name = "MAC", conflicts_with = "frame")]
    source: Option<String>,
    /// VLAN of the frame's tag [default: no tag]
    #[arg(long, value_name = "VLAN", conflicts_with = "frame", value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
    /// What the frame carries
    #[arg(long, value_enum, default_value = "ipv4", conflicts_with = "frame")]
    protocol: Protocol,
    /// Length of the frame in bytes, without its FCS [default: 60]
    #[arg(long, value_name = "BYTES")]
    length: Option<u32>,
    /// The frame's first bytes in hexadecimal, from the destination address on, such as a capture shows them
    #[arg(long, value_name = "HEX", value_parser = oid::bytes)]
    frame: Option<Bytes>,
}

/// Protocol of a made-up frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    /// IPv4, TCP
    Ipv4,
    /// IPv6, TCP
    Ipv6,
    /// ARP
    Arp,
    /// RoCEv2 over IPv4
    Roce,
    /// RoCEv1
    Rocev1,
    /// Flow control, which only links speak
    Pause,
}

impl Protocol {
    /// EtherType and first bytes of the payload: no more than by which the NIC decides.
    fn bytes(self) -> Vec<u8> {
        let ipv4 = |protocol: u8, port: u16| {
            let mut packet = vec![0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            packet.extend([0; 8]);
            packet.extend([0xc0, 0]);
            packet.extend(port.to_be_bytes());
            packet
        };
        match self {
            Protocol::Ipv4 => ipv4(6, 80),
            Protocol::Roce => ipv4(17, 4791),
            Protocol::Ipv6 => [&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64][..], &[0; 32]].concat(),
            Protocol::Arp => [&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1][..], &[0; 20]].concat(),
            Protocol::Rocev1 => vec![0x89, 0x15, 0x60, 0, 0, 0],
            Protocol::Pause => vec![0x88, 0x08, 0, 1],
        }
    }
}

/// Runs the command.
pub async fn run(args: TraceArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    let owner = client.owner(&args.from).await?;
    let head = match &args.frame {
        Some(bytes) => bytes.0.clone(),
        None => head(&args, &owner, client).await?,
    };
    let request = v1::TraceFrameRequest {
        owner,
        head,
        length: args.length.unwrap_or(0),
    };
    let mut service = client.switch().await?;
    let answer = service.trace_frame(request).await?;
    out.answer("TraceFrameResponse", answer, words)
}

/// The frame of the options.
async fn head(args: &TraceArgs, owner: &str, client: &Client) -> Result<Vec<u8>, Failure> {
    let destination = match args.to.as_deref().unwrap_or_default() {
        "broadcast" => MacAddr::BROADCAST,
        to => match to.parse() {
            Ok(mac) => mac,
            Err(_) => first_mac(to, client).await?,
        },
    };
    let source = match &args.source {
        Some(text) => {
            check::mac(text).map_err(|wrong| Failure::Usage(format!("--source {text}: {wrong}")))?
        }
        None if owner.starts_with(ADAPTERS) => first_mac(names::last(owner), client).await?,
        None => {
            let problem = format!("a frame from {} needs a --source", args.from);
            return Err(Failure::Usage(problem));
        }
    };
    let mut head = [destination.0, source.0].concat();
    if let Some(vlan) = args.vlan {
        head.extend([0x81, 0x00]);
        head.extend(vlan.to_be_bytes());
    }
    head.extend(args.protocol.bytes());
    Ok(head)
}

/// The address that the guest of an adapter is given.
async fn first_mac(adapter: &str, client: &Client) -> Result<MacAddr, Failure> {
    let name = names::of(ADAPTERS, names::last(adapter));
    let adapter = client
        .adapters()
        .await?
        .get_adapter(v1::GetAdapterRequest { name })
        .await?;
    let macs = adapter.into_inner().macs;
    let mac = macs.first().and_then(|mac| mac.parse().ok());
    mac.ok_or_else(|| Failure::Failed("the adapter has no address".to_owned()))
}

fn words(trace: &v1::TraceFrameResponse) -> String {
    let mut lines = String::new();
    for step in &trace.steps {
        lines += &format!("{:<18} {}\n", step.name, step.text);
    }
    if !trace.dropped.is_empty() {
        return lines + &format!("{:<18} {}\n", "DROPPED", trace.dropped);
    }
    let table = text::table! { r in &trace.receivers, "nobody gets it";
        "RECEIVER": names::last(&r.owner),
        "TAKES IT": r.function,
        "TAG": r.tag,
        "DROPPED": r.dropped,
        "FAULT RULES": r.fault_rules.join(" "),
    };
    lines + "\n" + &table
}
