//! The command line of `vnicctl qos`.

use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use vnic_control::v1;
use vnic_control::v1::qos::{Algorithm, Color, Trust};

use crate::check::Checked;
use crate::check::qos::{self as read, MapOrder, ProfileOrder, TagOrder};

#[derive(Debug, Subcommand)]
pub enum QosVerb {
    /// Show the quality of service of an adapter or a port, in the shape of mlnx_qos, and what waits there now
    #[command(
        after_help = "Examples:\n  vnicctl qos show vf0\n  vnicctl -o json qos show vf0 | jq .state.queued_bytes"
    )]
    Show {
        /// Name of the adapter or port
        name: String,
    },
    /// List all adapters and ports with the most important of it
    #[command(
        after_help = "Example:\n  vnicctl -o json qos list | jq '.qos[] | select(.state.storm_prevention) | .name'"
    )]
    List,
    /// Change what is given, at once; it is stored. What has a registry key is written there
    #[command(
        after_help = "Examples:\n  vnicctl qos set vf0 --trust dscp --pfc 0,0,0,1,0,0,0,0\n  vnicctl qos set p0 --rate 10G -s \
                      ets,ets,strict,vendor,vendor,vendor,vendor,vendor -t 50,50,0,0,0,0,0,0\n  vnicctl qos set p0 -r \
                      5G,0,0,0,0,0,0,500M\n  vnicctl qos set vf0 --dscp2prio set,30,5 --dscp2prio del,12,3\n  vnicctl qos \
                      set vf0 --traffic-class 106\n  vnicctl qos set p0 --ecn 3=5000:200000:1 --ecn 0=off\n\nLists have eight values separated by commas, one for each priority \
                      (pfc, prio-tc) or traffic class (tsa, tcbw, ratelimit), from 0 to 7. Rates are in bit/s, or have k, M \
                      or G behind them; 0 is no limit. Underscores as in mlnx_qos are taken, too (--prio_tc)."
    )]
    Set(Box<QosSet>),
    /// Limits and guarantees of a virtual machine by traffic class (hardware QoS offload: its schedule queue)
    #[command(
        after_help = "Examples:\n  vnicctl qos limit vf0 --max 5G\n  vnicctl qos limit vf0 --max 5G --min 1G --tc 3=2G:500M\n  \
                      vnicctl qos limit vf0 --none\n\n--max and --min count for each traffic class of *QosOffloadSupportedTCs; \
                      all of them have a maximum, or none."
    )]
    Limit(QosLimit),
    /// Rules for what a guest sends, as New-NetQosPolicy has them: priority and DSCP
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Limit what one queue pair of an adapter sends, until it is destroyed (it is not stored); or list those with a rate
    #[command(
        after_help = "Examples:\n  vnicctl qos pacing vf0 17 2G\n  vnicctl qos pacing vf0 17 0   (no limit)\n  vnicctl \
                      qos pacing vf0        (list)"
    )]
    Pacing {
        /// Name of the adapter
        adapter: String,
        /// Number of the queue pair
        #[arg(value_name = "QPN", value_parser = clap::value_parser!(u32).range(0..=0xff_ffff), requires = "rate")]
        queue_pair: Option<u32>,
        /// Most that it sends, such as 2G; 0: no limit
        #[arg(value_parser = read::rate)]
        rate: Option<u64>,
    },
    /// Read or write registers of the cards by field, as mlxreg does
    #[command(
        after_help = "Examples:\n  vnicctl qos mlxreg p0 --reg_name CWTP --get --indexes local_port=0,pnat=2,traffic_class=5\n  \
                      vnicctl qos mlxreg p0 --reg_name CWTP --indexes local_port=0,pnat=2,traffic_class=5 --set \
                      mode=0,profile1_min=0x380,profile1_max=0x2740,profile1_percent=20\n  vnicctl qos mlxreg p0 --reg_name \
                      CWTPM --indexes local_port=0,pnat=2,traffic_class=5 --set ee=1,ew=0\n  vnicctl qos mlxreg vf0 --reg_name ROCE_ACCL \
                      --set roce_slow_restart_idle_en=1\n  vnicctl qos mlxreg p0 --reg_name PFCC --set \
                      critical_stall_mask=1,device_stall_critical_watermark=0x64\n  vnicctl qos mlxreg p0 --show_reg \
                      QETCR\n\nThresholds are in cells of 128 \
                      bytes, or with mode=1 in per cent of the port's buffer. local_port and pnat are taken and say nothing: NAME \
                      is the port. Profile 1 is for green packets, 2 for yellow and 3 for red ones (qos set --tag2color). Fields \
                      that are not named stay, and a field whose mask is named as 0."
    )]
    Mlxreg(Mlxreg),
    /// Let what is stored act again (Enable-NetAdapterQos)
    #[command(after_help = "Example:\n  vnicctl qos enable vf0")]
    Enable {
        /// Name of the adapter or port
        name: String,
    },
    /// Set priorities, traffic classes, PFC, policies, marks and lifetimes aside; they stay stored (Disable-NetAdapterQos)
    #[command(after_help = "Example:\n  vnicctl qos disable vf0")]
    Disable {
        /// Name of the adapter or port
        name: String,
    },
    /// Put everything back to what it is while nobody has configured anything
    #[command(after_help = "Example:\n  vnicctl qos reset vf0")]
    Reset {
        /// Name of the adapter or port
        name: String,
    },
}

/// Parser of the trust state: words of the generated enum, with their help texts.
fn trust() -> impl TypedValueParser<Value = Trust> {
    let words = [
        ("port", "None: all have the default priority"),
        ("pcp", "The priority code point of a tag"),
        ("dscp", "The DSCP"),
        (
            "both",
            "The DSCP of IP packets, the priority code point of others",
        ),
    ];
    let words = words.map(|(word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words).try_map(|word| {
        let name = format!("TRUST_{}", word.to_ascii_uppercase());
        Trust::from_str_name(&name).ok_or(name)
    })
}

/// Which way global pause works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pause {
    /// Not at all
    Off,
    /// It is sent
    Tx,
    /// It is obeyed
    Rx,
    /// It is sent and obeyed
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

// clap cannot parse a list from one word: the type has all eight values.
type Eight<T> = Arc<[T; 8]>;

fn eight<T: Copy>(
    read: impl Fn(&str) -> Checked<[T; 8]> + Clone,
) -> impl Fn(&str) -> Checked<Eight<T>> + Clone {
    move |text| read(text).map(Into::into)
}

fn by_priority(text: &str) -> Checked<[bool; 8]> {
    read::switches(text, "priority")
}

fn by_class(text: &str) -> Checked<[bool; 8]> {
    read::switches(text, "traffic class")
}

/// Transmission selection algorithms of the traffic classes.
fn tsa(text: &str) -> Checked<[i32; 8]> {
    read::eight(text, "traffic class", |word| match word {
        "vendor" => Ok(Algorithm::Vendor.into()),
        "strict" => Ok(Algorithm::Strict.into()),
        "ets" => Ok(Algorithm::Ets.into()),
        _ => Err(format!("{word:?}: vendor, strict and ets are allowed")),
    })
}

/// Traffic class (ToS byte), or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forced(pub Option<u32>);

fn traffic_class(text: &str) -> Result<Forced, String> {
    match text {
        "-1" | "none" => Ok(Forced(None)),
        _ => read::up_to(text, 255)
            .map(|class| Forced(Some(class)))
            .map_err(|e| format!("{e}, or -1 for none")),
    }
}

fn tag_priority(text: &str) -> Result<TagOrder<u32>, String> {
    read::tag_order(text, |word| read::up_to(word, 7))
}

fn tag_color(text: &str) -> Result<TagOrder<i32>, String> {
    read::tag_order(text, read::color)
}

/// Color of a tag while nobody has set it.
fn default_color(element: usize) -> i32 {
    let color = if element % 2 == 1 {
        Color::Yellow
    } else {
        Color::Green
    };
    color.into()
}

/// Color of a DSCP; `None`: all are green.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DscpColor(Option<(usize, i32)>);

fn dscp_color(text: &str) -> Result<DscpColor, String> {
    if text == "flush" {
        return Ok(DscpColor(None));
    }
    let (dscp, color) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?}: DSCP=COLOR (such as 28=yellow) and flush are allowed"))?;
    let dscp = read::up_to(dscp.trim(), 63).map_err(|e| format!("DSCP {e}"))?;
    Ok(DscpColor(Some((dscp as usize, read::color(color.trim())?))))
}

impl DscpColor {
    fn put(self, map: &mut Vec<i32>) {
        let Some((dscp, color)) = self.0 else {
            map.clear();
            return;
        };
        map.resize(64, Color::Green.into());
        if let Some(place) = map.get_mut(dscp) {
            *place = color;
        }
    }
}

/// Priorities by a socket's priority, or none.
fn sockets(text: &str) -> Checked<Arc<Vec<u32>>> {
    match text {
        "flush" => Ok(Arc::default()),
        _ => read::sixteen(text, "socket priority", 7).map(Into::into),
    }
}

/// Entries of an arbitration table.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<[v1::VlWeight]>);

fn lanes(text: &str) -> Result<Lanes, String> {
    if text == "none" {
        return Ok(Lanes(Arc::default()));
    }
    let entry = |text: &str| {
        let both = text.split_once(':');
        let both =
            both.and_then(|(lane, weight)| Some((lane.trim().parse().ok()?, weight.trim().parse().ok()?)));
        let both = both.map(|(lane, weight)| v1::VlWeight { lane, weight });
        both.ok_or_else(|| format!("{text:?} is no entry: TC:WEIGHT"))
    };
    text.split(',').map(entry).collect::<Result<_, _>>().map(Lanes)
}

impl Lanes {
    /// Makes it one of the tables. Tables without entries are none.
    fn put(
        &self,
        now: &mut Option<v1::VlArbitration>,
        table: impl Fn(&mut v1::VlArbitration) -> &mut Vec<v1::VlWeight>,
    ) {
        let mut tables = now.take().unwrap_or_default();
        *table(&mut tables) = self.0.to_vec();
        *now = Some(tables).filter(|tables| !(tables.high.is_empty() && tables.low.is_empty()));
    }
}

/// Classes of the upper service levels, or none.
#[derive(Debug, Clone)]
pub struct Upper(Arc<[u32]>);

fn upper(text: &str) -> Result<Upper, String> {
    match text {
        "none" => Ok(Upper(Arc::default())),
        _ => Ok(Upper(read::classes(text)?.into())),
    }
}

/// Classes of what came by an adapter or a port, or none.
#[derive(Debug, Clone)]
pub struct ByPort(Arc<str>, Option<Arc<[u32]>>);

fn by_port(text: &str) -> Result<ByPort, String> {
    let wrong = || format!("{text:?} is not NAME=LIST, or NAME=none");
    let (source, table) = text.split_once('=').ok_or_else(wrong)?;
    let table = match table {
        "none" => None,
        table => Some(read::levels(table)?.into()),
    };
    Ok(ByPort(source.trim().into(), table))
}

impl ByPort {
    /// Makes it that of its adapter or port.
    fn put(&self, all: &mut Vec<v1::TcByPort>) {
        all.retain(|of| *of.source != *self.0);
        all.extend(self.1.as_ref().map(|table| v1::TcByPort {
            source: self.0.to_string(),
            priority_to_tc: table.to_vec(),
        }));
    }
}

/// Sizes of the receive buffers, or none.
#[derive(Debug, Clone)]
pub struct Sizes(Option<Eight<u32>>);

fn buffer_sizes(text: &str) -> Result<Sizes, String> {
    match text {
        "none" => Ok(Sizes(None)),
        _ => read::sizes(text).map(|sizes| Sizes(Some(sizes.into()))),
    }
}

impl Sizes {
    fn put(&self, now: &mut Option<v1::ReceiveBuffers>) {
        *now = self.0.as_ref().map(|sizes| v1::ReceiveBuffers {
            sizes: sizes.to_vec(),
            priority_to_buffer: match now {
                Some(now) => now.priority_to_buffer.clone(),
                None => vec![0; 8],
            },
        });
    }
}

fn put_buffers(buffers: &Eight<u32>, now: &mut Option<v1::ReceiveBuffers>) -> Result<(), String> {
    let parts = now
        .as_mut()
        .ok_or("there is one buffer for all: give their sizes, too (--buffer-sizes)")?;
    parts.priority_to_buffer = buffers.to_vec();
    Ok(())
}

/// Options that are fields of the message: for each the option, its type, its fields, and how a value that is given is written into them.
/// The options' type gets `put`, which writes the given options into a message and returns the names of the fields.
macro_rules! flags {
    (|$now:ident, $value:ident| $options:ident { $($(#[$attribute:meta])* $option:ident: $type:ty $(=> $($field:ident),+ { $write:expr })?;)+ }) => {
        #[derive(Debug, Args)]
        pub struct $options {
            $($(#[$attribute])* pub $option: $type,)+
        }

        impl $options {
            /// Writes the given options into the settings; returns the names of the fields.
            pub fn put(&self, $now: &mut v1::Qos) -> Result<Vec<&'static str>, String> {
                let mut fields = Vec::new();
                $($(
                    let written = self.$option.iter().try_for_each(|$value| -> Result<(), String> {
                        $write;
                        Ok(())
                    });
                    written.map_err(|e| format!("--{}: {e}", stringify!($option)))?;
                    if self.$option.iter().next().is_some() {
                        fields.extend([$(stringify!($field)),+]);
                    }
                )?)+
                Ok(fields)
            }
        }
    };
}

flags! { |now, v|
    // Wide: each field is an option of the command.
    QosSet {
        /// Name of the adapter or port
        name: String;

        /// Which field of a packet names its priority
        #[arg(long, value_name = "FIELD", value_parser = trust(), help_heading = "Priorities")]
        trust: Option<Trust> => trust { now.trust = (*v).into() };
        /// Priority by DSCP: set,DSCP,PRIORITY; del,DSCP,PRIORITY; flush. Again for further ones
        #[arg(long, value_name = "ORDER", value_parser = read::map_order, help_heading = "Priorities")]
        dscp2prio: Vec<MapOrder> => dscp_to_priority { v.put(&mut now.dscp_to_priority)? };
        /// Priority by a tag: PCP=PRIORITY, or with the drop eligible indicator PCP.DEI=PRIORITY; flush. Again for further ones
        #[arg(long, value_name = "ORDER", value_parser = tag_priority, help_heading = "Priorities")]
        tag2prio: Vec<TagOrder<u32>> => tag_to_priority { v.put(&mut now.tag_to_priority, |i| i as u32 / 2) };
        /// Color by a tag: PCP=COLOR or PCP.DEI=COLOR, of green, yellow and red; flush. Again for further ones
        #[arg(long, value_name = "ORDER", value_parser = tag_color, help_heading = "Priorities")]
        tag2color: Vec<TagOrder<i32>> => tag_to_color { v.put(&mut now.tag_to_color, default_color) };
        /// Color by DSCP: DSCP=COLOR; flush. Again for further ones
        #[arg(long, value_name = "ORDER", value_parser = dscp_color, help_heading = "Priorities")]
        dscp2color: Vec<DscpColor> => dscp_to_color { v.put(&mut now.dscp_to_color) };
        /// Priority code point by priority, in tags that the NIC writes and in pause frames: eight of 0 to 7
        #[arg(long, value_name = "LIST", value_parser = eight(read::eighths), help_heading = "Priorities")]
        prio2pcp: Option<Eight<u32>> => priority_to_pcp { now.priority_to_pcp = v.to_vec() };
        /// Priority by a socket's priority (kernel priority), of RDMA packets whose program names no service level: sixteen of 0 to 7, as
        /// tc_wrap has it; flush
        #[arg(short = 'u', long, value_name = "LIST", value_parser = sockets, help_heading = "Priorities")]
        skprio_up: Option<Arc<Vec<u32>>> => skprio_to_priority { now.skprio_to_priority = v.to_vec() };
        /// EtherType that says "tag" on a port's wire, such as 0x88a8 or 0x9100; 0x8100 within the NIC
        #[arg(long, value_name = "TPID", value_parser = read::ethertype, help_heading = "Priorities")]
        tpid: Option<u32> => tpid { now.tpid = *v };
        /// Priority of packets that say nothing, 0 to 7
        #[arg(long, alias = "default_priority", value_name = "PRIORITY", value_parser = clap::value_parser!(u32).range(0..8), help_heading = "Priorities")]
        default_priority: Option<u32> => default_priority { now.default_priority = *v };
        /// RDMA packets all get this traffic class (ToS byte), 0 to 255; -1: their own
        #[arg(long, alias = "traffic_class", value_name = "TOS", value_parser = traffic_class, allow_hyphen_values = true, help_heading = "Priorities")]
        traffic_class: Option<Forced> => forced_traffic_class { now.forced_traffic_class = v.0 };

        /// Traffic class by priority: eight of 0 to 7; of a port with --vlarb-low virtual lanes, 0 to 14
        #[arg(short = 'p', long, alias = "prio_tc", value_name = "LIST", value_parser = eight(read::classes), help_heading = "Traffic classes")]
        prio_tc: Option<Eight<u32>> => priority_to_tc { now.priority_to_tc = v.to_vec() };
        /// Traffic class by service level 8 to 15 of RDMA, as --prio-tc; none: that of the level less 8
        #[arg(long, value_name = "LIST", value_parser = upper, help_heading = "Traffic classes")]
        upper_sl_tc: Option<Upper> => upper_sl_to_tc { now.upper_sl_to_tc = v.0.to_vec() };
        /// Of a port: traffic class by priority, or by 16 service levels, of what came by one adapter or port, NAME=LIST, in place of
        /// --prio-tc and --upper-sl-tc; NAME=none
        #[arg(long, value_name = "NAME=LIST", value_parser = by_port, help_heading = "Traffic classes")]
        prio_tc_from: Vec<ByPort> => priority_to_tc_by_port { v.put(&mut now.priority_to_tc_by_port) };
        /// How each traffic class gets its turn: eight of vendor, strict, ets
        #[arg(short = 's', long, value_name = "LIST", value_parser = eight(tsa), help_heading = "Traffic classes")]
        tsa: Option<Eight<i32>> => tc_algorithm { now.tc_algorithm = v.to_vec() };
        /// Per cent of each ets class, 0 for all others; together 100
        #[arg(short = 't', long, value_name = "LIST", value_parser = eight(read::percents), help_heading = "Traffic classes")]
        tcbw: Option<Eight<u32>> => tc_bandwidth_percent { now.tc_bandwidth_percent = v.to_vec() };
        /// Shares need not add up to 100: less counts as weights
        #[arg(long, help_heading = "Traffic classes")]
        weights: bool;
        /// Virtual lanes of high priority, in their turns: TC:WEIGHT,... with weights of 64 bytes, 0 to 255; none. Each traffic class in use
        /// needs a weight here or in --vlarb-low, which take the place of --tsa and --tcbw
        #[arg(long, value_name = "TABLE", value_parser = lanes, help_heading = "Traffic classes")]
        vlarb_high: Option<Lanes> => vl_arbitration { v.put(&mut now.vl_arbitration, |tables| &mut tables.high) };
        /// Virtual lanes of low priority, likewise
        #[arg(long, value_name = "TABLE", value_parser = lanes, help_heading = "Traffic classes")]
        vlarb_low: Option<Lanes> => vl_arbitration { v.put(&mut now.vl_arbitration, |tables| &mut tables.low) };
        /// Units of 4096 bytes of high priority after which low priority may send a packet: 0 to 255; 255: no limit
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255), help_heading = "Traffic classes")]
        vl_high_limit: Option<u32> => vl_arbitration { now.vl_arbitration.as_mut().ok_or("there are no tables: give them, too (--vlarb-high, --vlarb-low)")?.high_limit = *v };
        /// Most that each traffic class sends: eight rates, such as 5G; 0: no limit
        #[arg(short = 'r', long, value_name = "LIST", value_parser = eight(read::rates), help_heading = "Traffic classes")]
        ratelimit: Option<Eight<u64>> => tc_rate_limit_bps { now.tc_rate_limit_bps = v.to_vec() };
        /// Speed of the link, such as 10G; 0: not limited
        #[arg(long, value_name = "RATE", value_parser = read::rate, help_heading = "Traffic classes")]
        rate: Option<u64> => rate_bps { now.rate_bps = *v };
        /// A send queue for each priority of the guest (SendQueuePerPrio)
        #[arg(long, value_name = "SWITCH", help_heading = "Traffic classes")]
        send_queue_per_prio: Option<OnOff> => send_queue_per_priority { now.send_queue_per_priority = *v == OnOff::On };

        /// Marks and early drops of a traffic class: TC=MIN:MAX:PERCENT in bytes (or per cent of the buffer, with %), and
        /// :yellow=MIN:MAX:PERCENT, :red=..., :wred, :drop, :enqueue, :average=N; TC=off. Again for further ones
        #[arg(long, value_name = "PROFILE", value_parser = read::profile, help_heading = "Congestion")]
        ecn: Vec<ProfileOrder> => ecn { v.put(&mut now.ecn) };

        /// Priorities with priority flow control: eight of 0 and 1
        #[arg(short = 'f', long, value_name = "LIST", value_parser = eight(by_priority), help_heading = "Flow control")]
        pfc: Option<Eight<bool>> => pfc { now.pfc = v.to_vec() };
        /// Global pause (*FlowControl); without effect while PFC is on
        #[arg(long, value_name = "WAY", help_heading = "Flow control")]
        pause: Option<Pause> => pause_tx, pause_rx { (now.pause_tx, now.pause_rx) = (matches!(v, Pause::Tx | Pause::Both), matches!(v, Pause::Rx | Pause::Both)) };
        /// Bytes of frames that wait, headroom excluded
        #[arg(long, alias = "buffer_size", value_name = "BYTES", help_heading = "Flow control")]
        buffer_size: Option<u32> => buffer_size { now.buffer_size = *v };
        /// Part of what is left of the buffer that one sender and priority may have, in per cent: 1 to 6400
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=6400), help_heading = "Flow control")]
        beta: Option<u32> => buffer_beta_percent { now.buffer_beta_percent = *v };
        /// Receive buffers: eight sizes in bytes, together at most the buffer; none: one for all
        #[arg(long, value_name = "LIST", value_parser = buffer_sizes, help_heading = "Flow control")]
        buffer_sizes: Option<Sizes> => receive_buffers { v.put(&mut now.receive_buffers) };
        /// Receive buffer by priority: eight of 0 to 7
        #[arg(long, value_name = "LIST", value_parser = eight(read::eighths), help_heading = "Flow control")]
        prio2buffer: Option<Eight<u32>> => receive_buffers { put_buffers(v, &mut now.receive_buffers)? };
        /// Bytes of one sender and priority from which on it is told to wait
        #[arg(long, value_name = "BYTES", help_heading = "Flow control")]
        xoff: Option<u32> => buffer_xoff { now.buffer_xoff = *v };
        /// Bytes at which it is told to go on
        #[arg(long, value_name = "BYTES", help_heading = "Flow control")]
        xon: Option<u32> => buffer_xon { now.buffer_xon = *v };
        /// Bytes that fit above xoff, for what is under way
        #[arg(long, value_name = "BYTES", help_heading = "Flow control")]
        headroom: Option<u32> => buffer_headroom { now.buffer_headroom = *v };
        /// Metres of cable, from which the headroom follows
        #[arg(long, alias = "cable_len", value_name = "METRES", value_parser = clap::value_parser!(u32).range(0..256), help_heading = "Flow control")]
        cable_len: Option<u32> => cable_length_m { now.cable_length_m = *v };
        /// Milliseconds of standstill after which pause stops: 80 to 8000; 0: never; auto: 100, default: 8000
        #[arg(long, alias = "pfc_stall_prevention", value_name = "MS", value_parser = read::watermark, help_heading = "Flow control")]
        storm_critical: Option<u32> => storm_critical_ms { now.storm_critical_ms = *v };
        /// Milliseconds of standstill after which that is told; 0: never
        #[arg(long, value_name = "MS", help_heading = "Flow control")]
        storm_minor: Option<u32> => storm_minor_ms { now.storm_minor_ms = *v };
        /// How long a frame may wait at the head of its class, as log2 of 4.096 us: 0 to 20; 20: for ever
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=20), help_heading = "Flow control")]
        hol_lifetime: Option<u32> => hol_lifetime { now.hol_lifetime = *v };
        /// Drops in a row after which a class is stalled: 0 to 7; 0: never
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=7), help_heading = "Flow control")]
        hol_stall_count: Option<u32> => hol_stall_count { now.hol_stall_count = *v };
        /// Traffic classes whose frames have a lifetime: eight of 0 and 1
        #[arg(long, value_name = "LIST", value_parser = eight(by_class), help_heading = "Flow control")]
        hol_classes: Option<Eight<bool>> => hol_lifetime_classes { now.hol_lifetime_classes = v.to_vec() };
    }
}

/// Registers of the cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Register {
    /// Congestion WRED ECN TClass Profile: thresholds
    Cwtp,
    /// Congestion WRED ECN TClass and Pool Mapping: switches
    Cwtpm,
    /// RoCE accelerations: zero touch RoCE of an adapter
    #[value(name = "ROCE_ACCL")]
    RoceAccl,
    /// Port Flow Control Configuration: pause, PFC, storm prevention, cable
    Pfcc,
    /// QoS Priority Trust State: trust
    Qpts,
    /// QoS Port DSCP to Priority Mapping
    Qpdpm,
    /// QoS ETS Configuration: turns, shares and limits of traffic classes
    Qetcr,
    /// QoS Switch Traffic Class Table: traffic class by priority
    Qtct,
}

fn assignments(text: &str) -> Result<Arc<Vec<(String, u32)>>, String> {
    read::assignments(text).map(Into::into)
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("access").required(true))]
pub struct Mlxreg {
    /// Name of the adapter or port
    pub name: String,
    /// Which register
    #[arg(
        long = "reg_name",
        alias = "reg-name",
        value_name = "REGISTER",
        ignore_case = true,
        required_unless_present = "layout"
    )]
    pub register: Option<Register>,
    /// Show which fields a register has; nobody is asked
    #[arg(
        long = "show_reg",
        alias = "show-reg",
        value_name = "REGISTER",
        ignore_case = true,
        group = "access"
    )]
    pub layout: Option<Register>,
    /// Read it
    #[arg(long, group = "access")]
    pub get: bool,
    /// Write these fields, such as ee=1,ew=0; others stay
    #[arg(long, value_name = "FIELDS", value_parser = assignments, group = "access")]
    pub set: Option<Arc<Vec<(String, u32)>>>,
    /// traffic_class=0 to 7 (CWTP, CWTPM), switch_prio=0 to 7 (QTCT); local_port and pnat. The others need none
    #[arg(long, value_name = "FIELDS", value_parser = assignments)]
    pub indexes: Option<Arc<Vec<(String, u32)>>>,
    /// Taken, as mlxreg has it: nobody is asked
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// `TC=MAX[:MIN]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassLimit {
    pub class: usize,
    pub max: u64,
    pub min: Option<u64>,
}

fn class_limit(text: &str) -> Result<ClassLimit, String> {
    let wrong = || format!("{text:?}: TC=MAX or TC=MAX:MIN is allowed, such as 3=2G:500M");
    let (class, rates) = text.split_once('=').ok_or_else(wrong)?;
    let class = read::up_to(class.trim(), 7).map_err(|e| format!("traffic class {e}"))?;
    let (max, min) = match rates.split_once(':') {
        Some((max, min)) => (max, Some(read::rate(min)?)),
        None => (rates, None),
    };
    Ok(ClassLimit {
        class: class as usize,
        max: read::rate(max)?,
        min,
    })
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct QosLimit {
    /// Name of the adapter
    pub name: String,
    /// Most that each supported traffic class sends, such as 5G; 0: no limit
    #[arg(long, value_name = "RATE", value_parser = read::rate, group = "what")]
    pub max: Option<u64>,
    /// What each supported traffic class is sure to get; 0: nothing
    #[arg(long, value_name = "RATE", value_parser = read::rate, group = "what")]
    pub min: Option<u64>,
    /// Another maximum, and minimum, for one traffic class. Again for further ones
    #[arg(long, value_name = "TC=MAX[:MIN]", value_parser = class_limit, group = "what")]
    pub tc: Vec<ClassLimit>,
    /// Delete the schedule queue: no limits and no guarantees
    #[arg(long, conflicts_with_all = ["max", "min", "tc"], group = "what")]
    pub none: bool,
}

#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Add a policy behind the others; the first that matches counts, and the default one last
    #[command(
        after_help = "Examples:\n  vnicctl qos policy add vf0 SMB --smb --priority 3\n  vnicctl qos policy add vf0 web --ports \
                      80-443 --protocol tcp --dscp 16\n  vnicctl qos policy add vf0 RDMA --net-direct --priority 3\n  vnicctl \
                      qos policy add vf0 SMBDirect --net-direct-port 445 --priority 3\n  vnicctl qos policy add vf0 DEFAULT --default --priority 1 --dscp 9"
    )]
    Add(PolicyAdd),
    /// Remove policies
    #[command(
        visible_alias = "delete",
        after_help = "Examples:\n  vnicctl qos policy remove vf0 SMB web\n  vnicctl qos policy remove vf0 --all"
    )]
    Remove {
        /// Name of the adapter
        adapter: String,
        /// Names of policies
        #[arg(
            value_name = "POLICY",
            required_unless_present = "all",
            conflicts_with = "all"
        )]
        policies: Vec<String>,
        /// Remove all policies
        #[arg(long)]
        all: bool,
    },
    /// List the policies of an adapter, in the order in which they are asked
    #[command(after_help = "Example:\n  vnicctl qos policy list vf0")]
    List {
        /// Name of the adapter
        adapter: String,
    },
}

/// Protocols that have ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    Tcp,
    Udp,
    Both,
}

/// Range of ports such as `80` or `80-443`.
fn ports(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |t: &str| read::up_to(t.trim(), 65_535).map_err(|e| format!("port {e}"));
    Ok((port(first)?, port(last)?))
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("match").required(true))]
#[command(group = clap::ArgGroup::new("action").required(true).multiple(true))]
pub struct PolicyAdd {
    /// Name of the adapter
    pub adapter: String,
    /// Name of the policy
    pub policy: String,

    /// All that no other policy is about
    #[arg(long, group = "match", help_heading = "What it is about, one of them")]
    pub default: bool,
    /// TCP
    #[arg(long, group = "match", help_heading = "What it is about, one of them")]
    pub tcp: bool,
    /// UDP
    #[arg(long, group = "match", help_heading = "What it is about, one of them")]
    pub udp: bool,
    /// To these ports, such as 80 or 80-443
    #[arg(long, group = "match", value_name = "PORTS", value_parser = ports, help_heading = "What it is about, one of them")]
    pub ports: Option<(u32, u32)>,
    /// SMB over TCP: to port 445
    #[arg(long, group = "match", help_heading = "What it is about, one of them")]
    pub smb: bool,
    /// RDMA of the adapter
    #[arg(long, group = "match", help_heading = "What it is about, one of them")]
    pub net_direct: bool,
    /// RDMA connections for a port, whichever end asked for them, that the adapter's communication management has made
    #[arg(
        long,
        group = "match",
        value_name = "PORT",
        value_parser = clap::value_parser!(u32).range(1..65_536),
        help_heading = "What it is about, one of them"
    )]
    pub net_direct_port: Option<u32>,
    /// With --ports: of which protocol [default: both]
    #[arg(long, requires = "ports", value_name = "PROTOCOL")]
    pub protocol: Option<Protocol>,

    /// IEEE 802.1p priority that these packets get, 0 to 7
    #[arg(long, group = "action", value_parser = clap::value_parser!(u32).range(0..8), help_heading = "What they get")]
    pub priority: Option<u32>,
    /// DSCP that these packets get, 0 to 63
    #[arg(long, group = "action", value_parser = clap::value_parser!(u32).range(0..64), help_heading = "What they get")]
    pub dscp: Option<u32>,
}
