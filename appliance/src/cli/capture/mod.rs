//! `vnicctl capture`.

use std::io::Write;
use std::path::Path;

use vnic_control::v1;

use super::args::{CaptureVerb, FilterArgs};
use super::client::{Client, resource};
use super::output::{Output, print};
use super::text::{self, Facts};
use super::{Failure, paging};
use crate::logging::say;
use crate::names::{self, CAPTURES};

mod check;
mod summary;

/// Runs a command.
pub async fn run(verb: CaptureVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    match verb {
        CaptureVerb::Live { write, filter } => live(write.as_deref(), &filter, client).await,
        CaptureVerb::Check {
            file,
            at,
            no_cnp,
            cnp_interval,
        } => {
            let asked = check::Asked {
                any: !no_cnp,
                interval: u64::from(cnp_interval) * 1000,
            };
            check::run(&file, at.as_deref(), &asked, out)
        }
        CaptureVerb::Start {
            name,
            max_bytes,
            filter,
        } => {
            let request = v1::CreateCaptureRequest {
                capture_id: name.unwrap_or_default(),
                filter: Some(message(&filter, client).await?),
                max_bytes: max_bytes.unwrap_or(0),
            };
            let capture = client.captures().await?.create_capture(request).await?;
            out.answer("Capture", capture, facts)
        }
        CaptureVerb::List => {
            let mut service = client.captures().await?;
            let all = paging::list(&mut service, v1::ListCapturesRequest::default()).await?;
            out.message("ListCapturesResponse", &all, || table(&all.captures))
        }
        CaptureVerb::Stop { name } => {
            let request = v1::StopCaptureRequest {
                name: resource(CAPTURES, &name),
            };
            out.answer(
                "Capture",
                client.captures().await?.stop_capture(request).await?,
                facts,
            )
        }
    }
}

async fn message(filter: &FilterArgs, client: &Client) -> Result<v1::CaptureFilter, Failure> {
    Ok(v1::CaptureFilter {
        owners: client.owners(&filter.owners).await?,
        snaplen: filter.snaplen.unwrap_or(0),
        drops_only: filter.drops_only,
        max_frames: filter.count.unwrap_or(0),
        max_duration: filter.seconds.map(|s| prost_types::Duration {
            seconds: i64::from(s),
            nanos: 0,
        }),
    })
}

/// Destination of the frames of a live capture.
enum Target {
    /// A pcapng file.
    File(Box<dyn Write>),
    /// Lines of text.
    Lines(summary::Lines),
}

impl Target {
    fn new(write: Option<&Path>) -> Result<Target, Failure> {
        Ok(match write {
            None => Target::Lines(summary::Lines::default()),
            Some(path) if path == Path::new("-") => Target::File(Box::new(std::io::stdout())),
            Some(path) => {
                let file = std::fs::File::create(path)
                    .map_err(|e| Failure::Failed(format!("cannot write {}: {e}", path.display())))?;
                Target::File(Box::new(file))
            }
        })
    }

    fn chunk(&mut self, pcapng: &[u8]) -> Result<(), Failure> {
        match self {
            Target::File(file) => {
                file.write_all(pcapng)?;
                file.flush()?;
                Ok(())
            }
            Target::Lines(lines) => print(&lines.chunk(pcapng)?),
        }
    }
}

async fn live(write: Option<&Path>, filter: &FilterArgs, client: &Client) -> Result<(), Failure> {
    let request = v1::StreamCaptureRequest {
        filter: Some(message(filter, client).await?),
    };
    let mut service = client.captures().await?;
    let mut stream = service.stream_capture(request).await?.into_inner();
    let mut target = Target::new(write)?;
    let mut frames = 0;
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    loop {
        let chunk = tokio::select! {
            chunk = stream.message() => chunk?,
            _ = &mut interrupt => break,
        };
        let Some(chunk) = chunk else { break };
        frames = chunk.frames;
        target.chunk(&chunk.pcapng)?;
    }
    say(format_args!("{frames} frames"));
    Ok(())
}

fn state(c: &v1::Capture) -> String {
    let word = text::word(c.state().as_str_name(), "STATE_");
    word.to_lowercase().replace('_', " ")
}

fn owners(c: &v1::Capture) -> String {
    let owners = c.filter.as_ref().map(|f| f.owners.as_slice()).unwrap_or_default();
    if owners.is_empty() {
        "all".to_owned()
    } else {
        let short: Vec<&str> = owners.iter().map(|o| names::last(o)).collect();
        short.join(",")
    }
}

fn table(captures: &[v1::Capture]) -> String {
    text::table! { c in captures, "no captures";
        "NAME": names::last(&c.name),
        "STATE": state(c),
        "OF": owners(c),
        ">FRAMES": text::count(c.frames),
        ">SIZE": text::bytes(c.bytes),
        "STARTED": text::time(c.start_time),
        "FILE": c.path,
    }
}

fn facts(c: &v1::Capture) -> String {
    let drops_only = c.filter.as_ref().is_some_and(|f| f.drops_only);
    let mut facts = Facts::default();
    facts
        .add("name", names::last(&c.name))
        .add("state", state(c))
        .add("error", c.error.clone())
        .add("of", owners(c))
        .add("only", if drops_only { "dropped frames" } else { "" })
        .add("file", c.path.clone())
        .add("frames", c.frames.to_string())
        .add(
            "size",
            format!("{} of at most {}", text::bytes(c.bytes), text::bytes(c.max_bytes)),
        )
        .add("started", text::time(c.start_time))
        .add("ended", text::time(c.end_time));
    facts.finish()
}
