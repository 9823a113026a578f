//! `vnic.v1.CaptureService`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};
use vnic_backend::CaptureSpec;
use vnic_control::v1;

use super::errors::{Violations, blocking, from_nic, invalid, shutting_down, status};
use super::{convert, paging::Page};
use crate::capture::{CaptureError, End, Info, Limits, Session, State};
use crate::daemon::Context;
use crate::names;

/// The service.
pub struct Captures(pub Arc<Context>);

/// Largest frame that is kept: a segmentation request of 64 KiB with its headers fits.
const SNAPLEN_MAX: u32 = 262_144;
/// Size of a file where none is given, in bytes.
const FILE_DEFAULT: u64 = 256 << 20;
/// Smallest size of a file that can be asked for, in bytes.
const FILE_MIN: u64 = 4096;
/// Chunks that wait for a client.
const UNREAD_CHUNKS: usize = 4;

/// The path in a request of a field of [`CaptureSpec`].
fn field(name: &str) -> String {
    format!("filter.{name}")
}

/// What a filter asks for. May block.
fn filter(
    context: &Context,
    filter: Option<&v1::CaptureFilter>,
    wrong: &mut Violations,
) -> Option<(CaptureSpec, Limits)> {
    let absent = v1::CaptureFilter::default();
    let filter = filter.unwrap_or(&absent);
    let mut owners = Vec::new();
    if !filter.owners.is_empty() {
        let adapters: BTreeSet<String> = context.nic.adapters().into_iter().map(|a| a.spec.name).collect();
        let ports: BTreeSet<String> = context.nic.ports().into_iter().map(|p| p.spec.name).collect();
        for (i, owner) in filter.owners.iter().enumerate() {
            let field = format!("filter.owners[{i}]");
            let adapter = names::id(names::ADAPTERS, owner).map(|id| (id, adapters.contains(id)));
            let port = names::id(names::PORTS, owner).map(|id| (id, ports.contains(id)));
            match adapter.or(port) {
                Some((id, true)) => owners.push(id.to_owned()),
                Some((_, false)) => wrong.add(field, format!("{owner} does not exist")),
                None => wrong.add(
                    field,
                    format!("{owner:?} is not of the form adapters/{{adapter}} or ports/{{port}}"),
                ),
            }
        }
    }
    if filter.snaplen > SNAPLEN_MAX {
        wrong.add(
            "filter.snaplen",
            format!("{} is out of range: 0 to {SNAPLEN_MAX} bytes", filter.snaplen),
        );
    }
    let duration = match filter.max_duration {
        None => None,
        Some(d) => match Duration::try_from(d) {
            Ok(d) if d > Duration::ZERO => Some(d),
            _ => {
                wrong.add("filter.max_duration", "must be more than zero");
                None
            }
        },
    };
    Some((
        CaptureSpec {
            owners,
            snaplen: if filter.snaplen == 0 {
                SNAPLEN_MAX
            } else {
                filter.snaplen
            },
            drops_only: filter.drops_only,
        },
        Limits {
            frames: (filter.max_frames > 0).then_some(filter.max_frames),
            duration,
            bytes: None,
        },
    ))
}

/// A capture to a file as a message.
fn message(context: &Context, info: &Info) -> v1::Capture {
    let ports: BTreeSet<String> = context.nic.ports().into_iter().map(|p| p.spec.name).collect();
    let owner = |name: &String| {
        let collection = if ports.contains(name) {
            names::PORTS
        } else {
            names::ADAPTERS
        };
        names::of(collection, name)
    };
    let (state, error) = match &info.state {
        State::Running => (v1::capture::State::Running, String::new()),
        State::Stopped => (v1::capture::State::Stopped, String::new()),
        State::LimitReached => (v1::capture::State::LimitReached, String::new()),
        State::Failed(error) => (v1::capture::State::Failed, error.clone()),
    };
    v1::Capture {
        name: names::of(names::CAPTURES, &info.id),
        filter: Some(v1::CaptureFilter {
            owners: info.spec.owners.iter().map(owner).collect(),
            snaplen: info.spec.snaplen,
            drops_only: info.spec.drops_only,
            max_frames: info.limits.frames.unwrap_or(0),
            max_duration: info.limits.duration.map(convert::duration),
        }),
        max_bytes: info.limits.bytes.unwrap_or(0),
        path: info.path.display().to_string(),
        state: state.into(),
        frames: info.frames,
        bytes: info.bytes,
        start_time: Some(convert::timestamp(info.start)),
        end_time: info.end.map(convert::timestamp),
        error,
    }
}

fn refused(error: CaptureError) -> Status {
    let text = error.to_string();
    match error {
        CaptureError::Nic(error) => from_nic(error, field),
        CaptureError::Exists { id, .. } => status(Code::AlreadyExists, "NAME_TAKEN", text, [("name", id)]),
        CaptureError::TooMany => status(Code::ResourceExhausted, "LIMIT_REACHED", text, []),
        CaptureError::File { source, .. } => status(
            Code::FailedPrecondition,
            "REFUSED_BY_SYSTEM",
            text,
            source.raw_os_error().map(|errno| ("errno", errno.to_string())),
        ),
        CaptureError::NotFound(id) => status(Code::NotFound, "NOT_FOUND", text, [("name", id)]),
    }
}

fn capture_id(text: &str) -> Result<Option<String>, String> {
    let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest = |b: u8| first(b) || b == b'-' || b == b'_';
    match text.as_bytes() {
        [] => Ok(None),
        [head, tail @ ..] if tail.len() <= 62 && first(*head) && tail.iter().all(|b| rest(*b)) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is not a name: 1 to 63 of a-z, 0-9, '-' and '_', beginning with a letter or digit"
        )),
    }
}

#[tonic::async_trait]
impl v1::capture_service_server::CaptureService for Captures {
    type StreamCaptureStream = ReceiverStream<Result<v1::StreamCaptureResponse, Status>>;

    async fn stream_capture(
        &self,
        request: Request<v1::StreamCaptureRequest>,
    ) -> Result<Response<Self::StreamCaptureStream>, Status> {
        let request = request.into_inner();
        let context = self.0.clone();
        let (session, capture) = blocking(move || {
            let mut wrong = Violations::default();
            let asked = filter(&context, request.filter.as_ref(), &mut wrong);
            let (spec, limits) = wrong.finish(asked)?;
            let session = Session::new(context.nic.clone(), spec.owners.clone(), spec.snaplen, limits);
            let capture = context.nic.capture(spec).map_err(|e| from_nic(e, field))?;
            Ok::<_, Status>((session, capture))
        })
        .await??;

        let (sender, receiver) = tokio::sync::mpsc::channel(UNREAD_CHUNKS);
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let (done, finished) = tokio::sync::oneshot::channel::<()>();
        let (client, ended) = (sender.clone(), self.0.ended());
        tokio::spawn(async move {
            tokio::select! {
                () = client.closed() => {}
                () = ended => {}
                // The capture ended by itself; the stream ends when this task's sender is gone, too.
                _ = finished => {}
            }
            drop(stop);
        });
        tokio::task::spawn_blocking(move || {
            let end = session.run(&capture.frames, &stopped, |pcapng, frames| {
                sender
                    .blocking_send(Ok(v1::StreamCaptureResponse { pcapng, frames }))
                    .is_ok()
            });
            drop((capture, done));
            let last = match end {
                End::Limit | End::ReaderGone => return,
                End::Stopped => shutting_down(),
                End::Failed(error) => {
                    tracing::error!("a capture failed by a bug: {error}");
                    status(Code::Internal, "BUG", error.to_string(), [])
                }
            };
            let _ = sender.blocking_send(Err(last));
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn create_capture(
        &self,
        request: Request<v1::CreateCaptureRequest>,
    ) -> Result<Response<v1::Capture>, Status> {
        let request = request.into_inner();
        let context = self.0.clone();
        blocking(move || {
            let mut wrong = Violations::default();
            let id = wrong.check("capture_id", capture_id(&request.capture_id));
            let bytes = match request.max_bytes {
                0 => FILE_DEFAULT,
                n if n < FILE_MIN => {
                    wrong.add(
                        "max_bytes",
                        format!("{n} is out of range: 0, or {FILE_MIN} and more"),
                    );
                    n
                }
                n => n,
            };
            let asked = filter(&context, request.filter.as_ref(), &mut wrong);
            let (id, (spec, limits)) = wrong.finish(id.zip(asked))?;
            let limits = Limits {
                bytes: Some(bytes),
                ..limits
            };
            let info = context
                .captures
                .create(&context.nic, id, spec, limits)
                .map_err(refused)?;
            Ok(Response::new(message(&context, &info)))
        })
        .await?
    }

    async fn list_captures(
        &self,
        request: Request<v1::ListCapturesRequest>,
    ) -> Result<Response<v1::ListCapturesResponse>, Status> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token, 100, 1000)?;
        let context = self.0.clone();
        let captures: Vec<v1::Capture> = blocking(move || {
            let all = context.captures.list();
            all.iter().map(|info| message(&context, info)).collect()
        })
        .await?;
        let (captures, next_page_token) = page.cut(captures, |c: &v1::Capture| {
            let start = c.start_time.unwrap_or_default();
            format!("{:020}.{:09} {}", start.seconds, start.nanos, c.name)
        });
        Ok(Response::new(v1::ListCapturesResponse {
            captures,
            next_page_token,
        }))
    }

    async fn stop_capture(
        &self,
        request: Request<v1::StopCaptureRequest>,
    ) -> Result<Response<v1::Capture>, Status> {
        let name = request.into_inner().name;
        let id = names::id(names::CAPTURES, &name)
            .ok_or_else(|| {
                invalid(
                    "name",
                    format!("{name:?} is not of the form captures/{{capture}}"),
                )
            })?
            .to_owned();
        let context = self.0.clone();
        blocking(move || {
            let info = context.captures.stop(&id).map_err(refused)?;
            Ok(Response::new(message(&context, &info)))
        })
        .await?
    }
}
