//! `vnic.v1.EventService`.

use std::sync::Arc;
use std::time::SystemTime;

use tonic::{Code, Request, Response, Status};
use vnic_control::v1;
use vnic_control::v1::event::Severity;

use super::answer::{Answer, Sender, Stream, hear, send_all, send_now, stream};
use super::paging::page;
use crate::access::{blocking, status};
use crate::check::Violations;
use crate::control::Control;
use crate::events::{EventLog, Following, NotKept, Part, kinds, severity};
use crate::names;
use crate::store::StoreError;

/// The service.
pub struct Events(pub Arc<Control>);

/// Number of unread events at which a client's stream ends.
const UNREAD_MAX: usize = 1024;

/// Filter of a request.
struct Filter {
    adapter: String,
    port: String,
    id: u32,
    kind: String,
    min: i32,
    since: Option<SystemTime>,
}

impl Filter {
    fn new(filter: Option<v1::EventFilter>) -> Result<Filter, Status> {
        let f = filter.unwrap_or_default();
        let mut wrong = Violations::default();
        let name = |collection: &str, field: &str, name: &str, wrong: &mut Violations| {
            if !name.is_empty() && names::id(collection, name).is_none() {
                wrong.add(field, format!("{name:?} is not of the form {collection}/NAME"));
            }
        };
        name(names::ADAPTERS, "filter.adapter", &f.adapter, &mut wrong);
        name(names::PORTS, "filter.port", &f.port, &mut wrong);
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
        let lists = "ListEventKinds (`vnicctl event kinds`) tells those that there are";
        if !f.kind.is_empty() && kinds::named(&f.kind).is_none() {
            wrong.add(
                "filter.kind",
                format!("{:?} is no kind of event: {lists}", f.kind),
            );
        }
        if f.id != 0 && kinds::KINDS.iter().all(|kind| kind.id != f.id) {
            wrong.add("filter.id", format!("no event has number {}: {lists}", f.id));
        }
        let since = f.since.map(SystemTime::try_from).transpose();
        if since.is_err() {
            wrong.add("filter.since", "not a time");
        }
        let filter = Filter {
            adapter: f.adapter,
            port: f.port,
            id: f.id,
            kind: f.kind,
            min: f.min_severity,
            since: since.ok().flatten(),
        };
        Ok(wrong.finish(Some(filter))?)
    }

    fn wants(&self, e: &v1::Event) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.adapter, &e.adapter)
            && is(&self.port, &e.port)
            && is(&self.kind, &e.kind)
            && (self.id == 0 || self.id == e.id)
            && e.severity >= self.min
            && self.since.is_none_or(|since| {
                let time = e.time.and_then(|time| SystemTime::try_from(time).ok());
                time.is_some_and(|time| time >= since)
            })
    }
}

/// Number of events that are read at a time for a stream.
const READ: usize = 500;

/// Error of a log that cannot be read.
fn unreadable(error: &StoreError) -> Status {
    status(Code::DataLoss, "EVENTS_UNREADABLE", error.to_string(), [])
}

fn not_kept(after: u64, why: NotKept) -> Status {
    let (text, metadata) = match why {
        NotKept::Gone(oldest) => (
            format!("events after {after} are no longer kept: the oldest is {oldest}"),
            ("oldest_revision", oldest),
        ),
        NotKept::Ahead(last) => (
            format!("there has been no event {after} in this log: the last one is {last}"),
            ("last_revision", last),
        ),
    };
    let metadata = [(metadata.0, metadata.1.to_string())];
    status(Code::OutOfRange, "EVENTS_GONE", text, metadata)
}

/// Reads a part of the log on a thread for blocking calls.
async fn read(
    log: &Arc<EventLog>,
    after: u64,
    up_to: u64,
    most: usize,
    filter: &Arc<Filter>,
) -> Result<Part, Status> {
    let (log, filter) = (log.clone(), filter.clone());
    let part = blocking(move || log.read(after, up_to, most, |e| filter.wants(e))).await?;
    part.map_err(|e| unreadable(&e))
}

/// Sends the past events, waiting for the client, and then new ones, without waiting.
async fn follow(
    log: Arc<EventLog>,
    filter: Arc<Filter>,
    after: Option<u64>,
    Following { last, mut news }: Following,
    sender: Sender<v1::FollowEventsResponse>,
) -> Result<(), Status> {
    let response = |event: &Arc<v1::Event>| v1::FollowEventsResponse {
        event: Some(v1::Event::clone(event)),
    };
    let mut after = after.unwrap_or(last);
    // A client that wants all kept events does not miss those that were pruned before.
    let missed = if after == 0 { log.gone() } else { 0 };
    while after < last {
        // The events of a client that reads slowly may be pruned meanwhile.
        log.keeps(after, missed).map_err(|why| not_kept(after, why))?;
        let part = read(&log, after, last, READ, &filter).await?;
        if !send_all(&sender, part.events.iter().map(response)).await {
            return Ok(());
        }
        after = part.up_to;
    }
    let mut there = true;
    while there {
        let event = hear(&mut news).await?;
        there = !filter.wants(&event) || send_now(&sender, response(&event))?;
    }
    Ok(())
}

#[tonic::async_trait]
impl v1::event_service_server::EventService for Events {
    async fn list_events(&self, request: Request<v1::ListEventsRequest>) -> Answer<v1::ListEventsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListEvents", [100, 1000])?;
        let after = page.after_number()?;
        let filter = Arc::new(Filter::new(request.filter)?);
        // One more event tells whether there is another page.
        let part = read(&self.0.hub.log, after, u64::MAX, page.size() + 1, &filter).await?;
        let mut events: Vec<v1::Event> = part.events.into_iter().map(Arc::unwrap_or_clone).collect();
        let mut next_page_token = String::new();
        if events.len() > page.size() {
            events.truncate(page.size());
            next_page_token = events.last().map_or_else(String::new, |e| page.token(e.revision));
        }
        Ok(Response::new(v1::ListEventsResponse {
            events,
            next_page_token,
        }))
    }

    type FollowEventsStream = Stream<v1::FollowEventsResponse>;

    async fn follow_events(
        &self,
        request: Request<v1::FollowEventsRequest>,
    ) -> Answer<Self::FollowEventsStream> {
        let request = request.into_inner();
        let filter = Arc::new(Filter::new(request.filter)?);
        let after = request.after_revision;
        let log = self.0.hub.log.clone();
        // Followed before the past events are read, so that no event is missed between the two.
        let following = log.follow();
        if let Some(after) = after {
            log.keeps(after, 0).map_err(|why| not_kept(after, why))?;
        }
        let follow = |sender| follow(log, filter, after, following, sender);
        Ok(Response::new(stream(&self.0, UNREAD_MAX, follow)))
    }

    async fn list_event_kinds(
        &self,
        _request: Request<v1::ListEventKindsRequest>,
    ) -> Answer<v1::ListEventKindsResponse> {
        let kind = |k: &&kinds::Kind| v1::EventKind {
            id: k.id,
            kind: k.name.to_owned(),
            severities: k.levels.iter().map(|l| severity(*l).into()).collect(),
            meaning: k.meaning.to_owned(),
        };
        Ok(Response::new(v1::ListEventKindsResponse {
            kinds: kinds::KINDS.iter().map(kind).collect(),
        }))
    }
}
