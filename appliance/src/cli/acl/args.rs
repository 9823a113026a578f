//! Command line of `vnicctl acl`.

use clap::{Args, Subcommand, ValueEnum};
use vnic_control::v1;

/// Verbs of access lists.
#[derive(Debug, Subcommand)]
pub enum AclVerb {
    /// List the access lists of all adapters
    #[command(after_help = "Example:\n  vnicctl acl list")]
    List,
    /// Show the rules of an adapter, with their hits
    #[command(after_help = "Example:\n  vnicctl acl show vf0")]
    Show {
        /// Name of the adapter
        name: String,
    },
    /// Add a rule, behind the others or at a place; it acts at once and is stored
    #[command(
        after_help = "Examples:\n  vnicctl acl add vf0 tx deny --protocol tcp --to-port 25\n  vnicctl acl add vf0 rx permit --from \
                      10.0.0.0/24 --at 1\n  vnicctl acl add vf0 tx deny --protocol udp --to-port 4791\n\nThe first rule that matches \
                      decides. Ports of fragments cannot be seen: a rule with ports that denies matches all of them, one that permits \
                      none."
    )]
    Add(AclAdd),
    /// Remove rules by their numbers
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl acl remove vf0 2 3"
    )]
    Remove {
        /// Name of the adapter
        name: String,
        /// Numbers of the rules, as shown
        #[arg(value_name = "RULE", required = true)]
        rules: Vec<usize>,
    },
    /// Set what becomes of frames that no rule matches
    #[command(after_help = "Example:\n  vnicctl acl set vf0 --rx deny --tx permit")]
    Set {
        /// Name of the adapter
        name: String,
        /// Frames to the guest
        #[arg(long, value_name = "ACTION", required_unless_present = "tx")]
        rx: Option<Default>,
        /// Frames from the guest
        #[arg(long, value_name = "ACTION")]
        tx: Option<Default>,
    },
    /// Take the list of an adapter away: all frames pass
    #[command(visible_alias = "clear", after_help = "Example:\n  vnicctl acl reset vf0")]
    Reset {
        /// Name of the adapter
        name: String,
    },
}

/// What becomes of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Default {
    /// They pass
    Permit,
    /// They are dropped
    Deny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Way {
    Rx,
    Tx,
}

/// Options of `acl add`.
#[derive(Debug, Args)]
pub struct AclAdd {
    /// Name of the adapter
    pub name: String,
    /// rx: frames to the guest; tx: frames from it
    #[arg(value_name = "WAY")]
    way: Way,
    /// What becomes of them
    #[arg(value_name = "ACTION")]
    action: Default,
    /// Number that the rule gets [default: behind the others]
    #[arg(long, value_name = "RULE")]
    pub at: Option<usize>,
    /// Source of an IP packet or of RoCEv1: an address or prefix
    #[arg(long, value_name = "PREFIX")]
    from: Option<String>,
    /// Destination of an IP packet or of RoCEv1
    #[arg(long, value_name = "PREFIX")]
    to: Option<String>,
    /// Protocol above IP: tcp, udp, icmp, icmpv6 or a number
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u32>,
    /// Source port of TCP or UDP, or FIRST-LAST
    #[arg(long, value_name = "PORTS", value_parser = ports)]
    from_port: Option<v1::PortRange>,
    /// Destination port of TCP or UDP, or FIRST-LAST
    #[arg(long, value_name = "PORTS", value_parser = ports)]
    to_port: Option<v1::PortRange>,
    /// EtherType behind the tags, such as 0x0806
    #[arg(long, value_name = "NUMBER", value_parser = ethertype)]
    ethertype: Option<u32>,
    /// VLAN of the frame's tag; 0: it has none
    #[arg(long, value_name = "VLAN")]
    vlan: Option<u32>,
    /// Ethernet source
    #[arg(long, value_name = "MAC")]
    from_mac: Option<String>,
    /// Ethernet destination
    #[arg(long, value_name = "MAC")]
    to_mac: Option<String>,
}

impl AclAdd {
    /// The rule that the options describe.
    pub fn rule(&self) -> v1::AccessRule {
        let way = match self.way {
            Way::Rx => v1::access_rule::Way::Rx,
            Way::Tx => v1::access_rule::Way::Tx,
        };
        let action = match self.action {
            Default::Permit => v1::access_rule::Action::Permit,
            Default::Deny => v1::access_rule::Action::Deny,
        };
        v1::AccessRule {
            way: way.into(),
            action: action.into(),
            source_mac: self.from_mac.clone().unwrap_or_default(),
            destination_mac: self.to_mac.clone().unwrap_or_default(),
            vlan: self.vlan,
            ethertype: self.ethertype,
            source: self.from.clone().unwrap_or_default(),
            destination: self.to.clone().unwrap_or_default(),
            protocol: self.protocol,
            source_ports: self.from_port,
            destination_ports: self.to_port,
            hits: 0,
        }
    }
}

fn protocol(text: &str) -> Result<u32, String> {
    match text {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "icmpv6" => Ok(58),
        _ => text
            .parse()
            .map_err(|_| "tcp, udp, icmp, icmpv6 or a number is allowed".to_owned()),
    }
}

fn ports(text: &str) -> Result<v1::PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse().map_err(|_| format!("{text:?} is no port"));
    Ok(v1::PortRange {
        first: port(first)?,
        last: port(last)?,
    })
}

fn ethertype(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x");
    let number = digits.map_or_else(|| text.parse(), |digits| u32::from_str_radix(digits, 16));
    number.map_err(|_| format!("{text:?} is no EtherType"))
}
