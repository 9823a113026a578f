//! `vnic.v1.CaptureService`.

use std::sync::Arc;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response};
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{OWNER, form, id, shutting_down};
use super::looks::{self, resource};
use super::paging::page;
use crate::access::{blocking, status};
use crate::capture::{End, Info, State};
use crate::check::Violations;
use crate::control::{self, Asked, Control};
use crate::names;
use crate::stored::values;

/// The service.
pub struct Captures(pub Arc<Control>);

/// Number of chunks that wait for a client.
const UNREAD_CHUNKS: usize = 4;

/// Reads a filter. May block.
fn filter(control: &Control, filter: Option<v1::CaptureFilter>, wrong: &mut Violations) -> Asked {
    let filter = filter.unwrap_or_default();
    let mut owners = Vec::new();
    if !filter.owners.is_empty() {
        let (adapters, ports) = (control.adapter_names(), control.port_names());
        for (i, owner) in filter.owners.iter().enumerate() {
            let field = format!("filter.owners[{i}]");
            let adapter = names::id(names::ADAPTERS, owner).map(|id| (id, adapters.contains(id)));
            let port = names::id(names::PORTS, owner).map(|id| (id, ports.contains(id)));
            match adapter.or(port) {
                Some((id, true)) => owners.push(id.to_owned()),
                Some((_, false)) => wrong.add(field, format!("{owner} does not exist")),
                None => wrong.add(field, form(owner, OWNER)),
            }
        }
    }
    Asked {
        owners,
        snaplen: filter.snaplen,
        drops_only: filter.drops_only,
        frames: filter.max_frames,
        // A negative duration becomes zero, which is refused.
        duration: filter.max_duration.map(|d| values::span(d).unwrap_or_default()),
    }
}

/// A capture to a file as a message.
fn message(control: &Control, info: &Info) -> v1::Capture {
    let ports = control.port_names();
    let owner = |name: &String| names::owner(&ports, name);
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
            max_duration: info.limits.duration.map(values::duration),
        }),
        max_bytes: info.limits.bytes.unwrap_or(0),
        path: info.path.display().to_string(),
        state: state.into(),
        frames: info.frames,
        bytes: info.bytes,
        start_time: Some(values::timestamp(info.start)),
        end_time: info.end.map(values::timestamp),
        error,
    }
}

/// Captures to files. May block.
fn all(control: &Control) -> Vec<v1::Capture> {
    let all = control.captures.list();
    all.iter().map(|info| message(control, info)).collect()
}

resource!(Capture, WatchCapturesResponse { capture }: |control| {
    let quiet = |capture| v1::Capture { frames: 0, bytes: 0, ..capture };
    all(control).into_iter().map(quiet).collect()
});

#[tonic::async_trait]
impl v1::capture_service_server::CaptureService for Captures {
    type StreamCaptureStream = Stream<v1::StreamCaptureResponse>;

    async fn stream_capture(
        &self,
        request: Request<v1::StreamCaptureRequest>,
    ) -> Answer<Self::StreamCaptureStream> {
        let request = request.into_inner();
        let control = self.0.clone();
        let (session, capture) = blocking(move || {
            let mut wrong = Violations::default();
            let asked = filter(&control, request.filter, &mut wrong);
            control::Captures(&control).stream(asked, wrong)
        })
        .await??;

        let (sender, receiver) = tokio::sync::mpsc::channel(UNREAD_CHUNKS);
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let (done, finished) = tokio::sync::oneshot::channel::<()>();
        let (client, ended) = (sender.clone(), self.0.life.ended());
        tokio::spawn(async move {
            tokio::select! {
                () = client.closed() => {}
                () = ended => {}
                // The capture has ended; the stream ends when this task drops its sender.
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

    async fn create_capture(&self, request: Request<v1::CreateCaptureRequest>) -> Answer<v1::Capture> {
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let mut wrong = Violations::default();
            let asked = filter(control, request.filter, &mut wrong);
            let info =
                control::Captures(control).create(&request.capture_id, asked, request.max_bytes, wrong)?;
            Ok(message(control, &info))
        })
        .await
    }

    async fn list_captures(
        &self,
        request: Request<v1::ListCapturesRequest>,
    ) -> Answer<v1::ListCapturesResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListCaptures", [100, 1000])?;
        let control = self.0.clone();
        let captures = blocking(move || all(&control)).await?;
        let (captures, next_page_token) = page.cut(captures, |c: &v1::Capture| {
            let start = c.start_time.unwrap_or_default();
            format!("{:020}.{:09} {}", start.seconds, start.nanos, c.name)
        });
        Ok(Response::new(v1::ListCapturesResponse {
            captures,
            next_page_token,
        }))
    }

    async fn stop_capture(&self, request: Request<v1::StopCaptureRequest>) -> Answer<v1::Capture> {
        let id = id(names::CAPTURES, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let info = control::Captures(control).stop(&id)?;
            Ok(message(control, &info))
        })
        .await
    }

    type WatchCapturesStream = Stream<v1::WatchCapturesResponse>;

    async fn watch_captures(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchCapturesStream> {
        looks::watch::<v1::Capture>(&self.0, request.into_inner(), |name| {
            id(names::CAPTURES, "name", name).map(drop)
        })
        .await
    }
}
