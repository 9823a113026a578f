//! `vnic.v1.EventService`.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};
use vnic_control::v1;
use vnic_control::v1::event::Severity;

use super::errors::{Violations, shutting_down, status};
use super::watch::{finish, too_slow};
use super::{convert, paging::Page};
use crate::daemon::Context;
use crate::events::{Following, Level, Owner, Record};
use crate::names;

/// The service.
pub struct Events(pub Arc<Context>);

/// Events that a client may have unread before it is dropped.
const UNREAD_MAX: usize = 1024;

fn severity(level: Level) -> Severity {
    match level {
        Level::Info => Severity::Info,
        Level::Warn => Severity::Warning,
        Level::Error => Severity::Error,
    }
}

fn message(record: &Record) -> v1::Event {
    let (mut adapter, mut port) = (String::new(), String::new());
    match &record.owner {
        Owner::Nic => {}
        Owner::Adapter(name) => adapter = names::of(names::ADAPTERS, name),
        Owner::Port(name) => port = names::of(names::PORTS, name),
    }
    let parameters = record.parameters.iter();
    v1::Event {
        revision: record.revision,
        time: Some(convert::timestamp(record.time)),
        monotonic_ns: record.monotonic_ns,
        id: 0,
        severity: severity(record.level).into(),
        kind: record.kind.to_owned(),
        adapter,
        port,
        message: record.message.clone(),
        parameters: parameters.map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        suppressed: record.suppressed,
    }
}

/// Which events are wanted.
struct Filter {
    owner: Option<Owner>,
    kind: String,
    min: i32,
    since: Option<SystemTime>,
}

impl Filter {
    fn new(filter: Option<v1::EventFilter>) -> Result<Filter, Status> {
        let f = filter.unwrap_or_default();
        let mut wrong = Violations::default();
        let id = |collection: &str, field: &str, name: &str, wrong: &mut Violations| {
            if name.is_empty() {
                return None;
            }
            let id = names::id(collection, name).map(str::to_owned);
            if id.is_none() {
                wrong.add(field, format!("{name:?} is not of the form {collection}/NAME"));
            }
            id
        };
        let adapter = id(names::ADAPTERS, "filter.adapter", &f.adapter, &mut wrong);
        let port = id(names::PORTS, "filter.port", &f.port, &mut wrong);
        if !f.adapter.is_empty() && !f.port.is_empty() {
            wrong.add("filter.port", "an event is about an adapter or a port, not both");
        }
        if Severity::try_from(f.min_severity).is_err() {
            let problem = format!(
                "{} is no severity: SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_ERROR",
                f.min_severity
            );
            wrong.add("filter.min_severity", problem);
        }
        let since = f.since.map(SystemTime::try_from).transpose();
        if since.is_err() {
            wrong.add("filter.since", "not a time");
        }
        let filter = Filter {
            owner: adapter.map(Owner::Adapter).or(port.map(Owner::Port)),
            kind: f.kind,
            min: f.min_severity,
            since: since.ok().flatten(),
        };
        wrong.finish(Some(filter))
    }

    fn wants(&self, r: &Record) -> bool {
        self.owner.as_ref().is_none_or(|o| *o == r.owner)
            && (self.kind.is_empty() || self.kind == r.kind)
            && i32::from(severity(r.level)) >= self.min
            && self.since.is_none_or(|since| r.time >= since)
    }
}

type Stream = ReceiverStream<Result<v1::FollowEventsResponse, Status>>;
type Sender = mpsc::Sender<Result<v1::FollowEventsResponse, Status>>;

/// Sends what was, which waits for the client, and then what happens, which does not.
async fn follow(
    filter: Filter,
    Following { before, mut news }: Following,
    sender: &Sender,
) -> Result<(), Status> {
    let response = |r: &Record| {
        Ok(v1::FollowEventsResponse {
            event: Some(message(r)),
        })
    };
    for record in before.iter().filter(|r| filter.wants(r)) {
        if sender.send(response(record)).await.is_err() {
            return Ok(());
        }
    }
    drop(before);
    loop {
        let record = match news.recv().await {
            Ok(record) => record,
            Err(broadcast::error::RecvError::Lagged(_)) => return Err(too_slow()),
            Err(broadcast::error::RecvError::Closed) => return Err(shutting_down()),
        };
        if !filter.wants(&record) {
            continue;
        }
        match sender.try_send(response(&record)) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(too_slow()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
        }
    }
}

#[tonic::async_trait]
impl v1::event_service_server::EventService for Events {
    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token, 100, 1000)?;
        let filter = Filter::new(request.filter)?;
        let mut all = self.0.hub.log.all();
        all.retain(|r| filter.wants(r));
        let (records, next_page_token) = page.cut(all, |r| format!("{:020}", r.revision));
        Ok(Response::new(v1::ListEventsResponse {
            events: records.iter().map(|r| message(r)).collect(),
            next_page_token,
        }))
    }

    type FollowEventsStream = Stream;

    async fn follow_events(
        &self,
        request: Request<v1::FollowEventsRequest>,
    ) -> Result<Response<Stream>, Status> {
        let request = request.into_inner();
        let filter = Filter::new(request.filter)?;
        let after = request.after_revision;
        let following = self.0.hub.log.follow(after).map_err(|oldest| {
            let text = format!(
                "events after {} are no longer kept: the oldest is {oldest}",
                after.unwrap_or(0)
            );
            let metadata = [("oldest_revision", oldest.to_string())];
            status(Code::OutOfRange, "EVENTS_GONE", text, metadata)
        })?;
        let (sender, receiver) = mpsc::channel(UNREAD_MAX);
        let ended = self.0.ended();
        tokio::spawn(async move {
            tokio::select! {
                status = follow(filter, following, &sender) => {
                    if let Err(status) = status {
                        finish(&sender, status).await;
                    }
                }
                () = ended => finish(&sender, shutting_down()).await,
                () = sender.closed() => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
