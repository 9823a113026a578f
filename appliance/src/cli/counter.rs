//! `vnicctl counter`.

pub mod histogram;
mod shapes;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use vnic_control::v1;
use vnic_control::v1::counter_set::Family;

use super::client::Client;
use super::output::Output;
use super::text;
use super::{Failure, paging};
use crate::check;
use crate::logging::say;
use crate::names;
use crate::same::same;
use view::View;

/// `vnicctl counter`.
#[derive(Debug, clap::Subcommand)]
pub enum CounterVerb {
    /// List the NIC's own counters, as Prometheus has them
    #[command(
        after_help = "Examples:\n  vnicctl counter list vf0 --nonzero\n  vnicctl counter list cores/1\n  vnicctl \
                      counter list --name drops --nonzero\n\nThese values only grow: counter reset does not change \
                      them."
    )]
    List {
        /// Only counters of this adapter, port or core: vf0, ports/p0, cores/1
        owner: Option<String>,
        /// Only counters of this name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Leave out counters that are zero
        #[arg(long)]
        nonzero: bool,
    },
    /// List times and depths of the data path: how long what takes, and for how many
    #[command(
        after_help = "Examples:\n  vnicctl counter histogram\n  vnicctl counter histogram vf0\n  vnicctl counter histogram \
                      cores/1\n\nA percentile is a value that so many of a hundred do not exceed, as near as the bucket tells \
                      that it is in: bounds of buckets are powers of two. -o json has the buckets."
    )]
    Histogram {
        /// Only histograms of this adapter or core: vf0, cores/1
        owner: Option<String>,
    },
    /// List the sets of names, or the names of one
    #[command(
        after_help = "Examples:\n  vnicctl counter sets\n  vnicctl counter sets \"WinOF-2 Port Traffic\"\n  vnicctl \
                      counter sets --names ethtool"
    )]
    Sets {
        /// The set to look into: its title or its id
        set: Option<String>,
        /// Only sets of these names
        #[arg(long, value_name = "NAMES", conflicts_with = "set")]
        names: Option<Names>,
    },
    /// Show counters by the names that you know; since the last reset, if there was one
    #[command(
        after_help = "Examples:\n  vnicctl counter show vf0 --set \"WinOF-2 Port Traffic\"\n  vnicctl counter show \
                      vf0 --names ethtool     as ethtool -S\n  vnicctl counter show vf0 --names mlx5        as \
                      rdma statistic\n  vnicctl counter show vf0 --names winof2 --sample 1s\n  vnicctl counter \
                      show ports/p0 --names ethtool"
    )]
    Show {
        /// An adapter, port or core: vf0, ports/p0, cores/1
        owner: String,
        #[command(flatten)]
        which: Which,
        /// Leave out counters that are zero
        #[arg(long)]
        nonzero: bool,
        /// Also names that have no value here, and why
        #[arg(long)]
        all: bool,
        /// Take two samples this far apart, for rates: 100 ms to 10 s
        #[arg(long, value_name = "SPAN", value_parser = span)]
        sample: Option<Duration>,
        #[command(flatten)]
        view: ViewArgs,
    },
    /// Let your view of counters begin at zero; nobody else's changes
    #[command(
        after_help = "Examples:\n  vnicctl counter reset vf0\n  vnicctl counter reset vf0 --undo\n  vnicctl counter \
                      reset vf0 --view before.view; vnicctl counter show vf0 --view before.view\n\nThe counters \
                      themselves live on: counter list, Prometheus and other users see no reset. What is needed to \
                      show the difference is kept in a file of yours, below $XDG_STATE_HOME or ~/.local/state."
    )]
    Reset {
        /// An adapter, port or core: vf0, ports/p0, cores/1
        owner: String,
        /// Forget the reset
        #[arg(long)]
        undo: bool,
        /// Keep the view in this file
        #[arg(long, value_name = "FILE")]
        view: Option<PathBuf>,
    },
    /// Follow counters, with what they grow by in a second
    #[command(
        after_help = "Examples:\n  vnicctl counter watch vf0 --interval 1s\n  vnicctl counter watch vf0 --name rx_frames \
                      --name tx_frames\n  vnicctl counter watch vf0 --set \"WinOF-2 VF Port Traffic\"\n  vnicctl \
                      -o json counter watch vf0 --on-change --count 10"
    )]
    Watch {
        /// An adapter, port or core: vf0, ports/p0, cores/1
        owner: String,
        /// The set; the NIC's own counters when absent
        #[arg(long, value_name = "SET")]
        set: Option<String>,
        /// Only counters of this name; may be given several times
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
        /// Time between samples: 100 ms to 1 hour
        #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
        interval: Duration,
        /// Only what changed, when something did
        #[arg(long)]
        on_change: bool,
        /// End after N samples
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
        #[command(flatten)]
        view: ViewArgs,
    },
}

/// Which names.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The set: its title or its id
    #[arg(long, value_name = "SET", conflicts_with = "names")]
    set: Option<String>,
    /// Whose names
    #[arg(long, value_name = "NAMES", default_value = "native")]
    names: Names,
}

/// Since when.
#[derive(Debug, clap::Args)]
pub struct ViewArgs {
    /// Since the owner was made, whatever was reset
    #[arg(long)]
    total: bool,
    /// Since the reset that this file is of
    #[arg(long, value_name = "FILE", conflicts_with = "total")]
    view: Option<PathBuf>,
}

/// Whose names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Names {
    /// The NIC's own
    Native,
    /// WinOF-2's and Windows'
    Winof2,
    /// Those of sysfs and `rdma statistic`
    Mlx5,
    /// Those of `ethtool -S`
    Ethtool,
    /// `node_exporter`'s
    #[value(name = "node")]
    NodeExporter,
}

same! { fn family(Names) -> Family { Native, Winof2, Mlx5, Ethtool, NodeExporter } }

fn span(text: &str) -> Result<Duration, String> {
    check::fault::span(text)
}

/// Runs a command.
pub async fn run(verb: CounterVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    match verb {
        CounterVerb::List { owner, name, nonzero } => list(owner, name, nonzero, client, out).await,
        CounterVerb::Histogram { owner } => histogram::run(owner, client, out).await,
        CounterVerb::Sets { set, names } => sets(set, names, client, out).await,
        CounterVerb::Show {
            owner,
            which,
            nonzero,
            all,
            sample,
            view,
        } => {
            let owner = client.owner(&owner).await?;
            let request = v1::ReadCounterSetsRequest {
                counter_set: which.set.clone().unwrap_or_default(),
                family: family(which.names).into(),
                baseline: baseline(&view, client, &owner)?,
                sampling_period: sample.map(wire_span).transpose()?,
                owner: owner.clone(),
            };
            let mut service = client.counters().await?;
            let mut answer = service.read_counter_sets(request).await?.into_inner();
            since(&answer, &owner);
            if nonzero {
                for set in &mut answer.sets {
                    set.values.retain(|v| v.value != Some(0));
                }
            }
            // A named set is shown with its names without a value: the user may look for one of these.
            let all = all || which.set.is_some();
            out.message("ReadCounterSetsResponse", &answer, || {
                match (which.set.is_none(), which.names) {
                    (true, Names::Ethtool) if !all => shapes::ethtool(&answer.sets),
                    (true, Names::Mlx5) if !all => shapes::rdma_statistic(&answer.sets),
                    _ => shapes::tables(&answer.sets, all),
                }
            })
        }
        CounterVerb::Reset { owner, undo, view } => {
            let owner = client.owner(&owner).await?;
            let view = View::find(view.as_deref(), client, &owner)?;
            if undo {
                let there = view.forget()?;
                let said = match there {
                    true => format!(
                        "counters of {} count from when it was made\n",
                        names::last(&owner)
                    ),
                    false => format!("counters of {} were not reset\n", names::last(&owner)),
                };
                return out.value(&serde_json::json!({"owner": owner, "undone": there}), || said);
            }
            let request = v1::SnapshotCountersRequest { owner: owner.clone() };
            let answer = client.counters().await?.snapshot_counters(request).await?;
            let answer = answer.into_inner();
            view.keep(&answer.baseline)?;
            let value = serde_json::json!({
                "owner": owner,
                "time": text::time(answer.time),
                "view": view.path(),
            });
            out.value(&value, || {
                format!(
                    "counter show and counter watch of {} begin at zero now, for you alone.\nThe counters themselves \
                     live on: see counter list, or --total. Kept in {}\n",
                    names::last(&owner),
                    view.path().display()
                )
            })
        }
        CounterVerb::Watch {
            owner,
            set,
            name,
            interval,
            on_change,
            count,
            view,
        } => {
            let owner = client.owner(&owner).await?;
            let request = v1::WatchCountersRequest {
                counter_set: set.unwrap_or_default(),
                counter_names: name,
                interval: Some(wire_span(interval)?),
                on_change,
                baseline: baseline(&view, client, &owner)?,
                owner,
            };
            let mut service = client.counters().await?;
            let mut stream = service.watch_counters(request).await?.into_inner();
            let mut left = count.unwrap_or(u64::MAX);
            while left > 0
                && let Some(message) = stream.message().await?
            {
                left -= 1;
                out.streamed("WatchCountersResponse", &message, || shapes::sample(&message))?;
            }
            Ok(())
        }
    }
}

async fn list(
    owner: Option<String>,
    name: Option<String>,
    nonzero: bool,
    client: &Client,
    out: &Output,
) -> Result<(), Failure> {
    let owner = match owner {
        None => String::new(),
        Some(name) => client.owner(&name).await?,
    };
    let mut service = client.counters().await?;
    let request = v1::ListCountersRequest {
        owner,
        counter_name: name.unwrap_or_default(),
        nonzero,
        ..Default::default()
    };
    let all = paging::list(&mut service, request).await?;
    out.message("ListCountersResponse", &all, || table(&all.counters))
}

fn table(counters: &[v1::Counter]) -> String {
    text::table! { c in counters, "no counters";
        let label = |key: &str| c.labels.get(key).cloned();
        let label = label("reason")
            .or_else(|| label("queue").map(|q| format!("queue {q}")))
            .or_else(|| label("priority").map(|p| format!("priority {p}")));
        "OWNER": c.owner,
        "COUNTER": c.name,
        "LABEL": label.unwrap_or_default(),
        ">VALUE": c.value,
        "MEANING": c.help,
    }
}

async fn sets(
    set: Option<String>,
    names: Option<Names>,
    client: &Client,
    out: &Output,
) -> Result<(), Failure> {
    let one = set.is_some();
    let request = v1::ListCounterSetsRequest {
        family: names.map_or(Family::Unspecified, family).into(),
        counter_set: set.unwrap_or_default(),
        with_counters: true,
    };
    let answer = client.counters().await?.list_counter_sets(request).await?;
    out.answer("ListCounterSetsResponse", answer, |answer| match one {
        true => shapes::names(&answer.counter_sets),
        false => shapes::sets(&answer.counter_sets),
    })
}

pub fn wire_span(span: Duration) -> Result<prost_types::Duration, Failure> {
    prost_types::Duration::try_from(span).map_err(|_| Failure::Usage(format!("{span:?} is too long")))
}

/// Baseline of the user's reset; empty without one.
fn baseline(args: &ViewArgs, client: &Client, owner: &str) -> Result<Vec<u8>, Failure> {
    if args.total {
        return Ok(Vec::new());
    }
    match &args.view {
        Some(file) => View::find(Some(file), client, owner)?.must_read(),
        // If the user has no state directory, there was no reset.
        None => match View::find(None, client, owner) {
            Ok(view) => view.read(),
            Err(_) => Ok(Vec::new()),
        },
    }
}

/// Prints to standard error since when the values count.
fn since(answer: &v1::ReadCounterSetsResponse, owner: &str) {
    if answer.baseline_outdated {
        let owner = names::last(owner);
        say(format_args!(
            "vnicctl: {owner} is new since the reset: values are since it was made"
        ));
    } else if answer.since.is_some() {
        let since = text::time(answer.since);
        say(format_args!(
            "vnicctl: values since {since} (counter reset); --total shows all"
        ));
    }
}
