//! Gate of all requests: the role of the method, limits, the deadline of calls, and their metrics.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::answers::{CALL, Call, bug, status};
use super::meter::{Meter, Metered};
use super::methods::Method;
use super::places::{Limits, Place, Places};
use super::retries::{self, REQUEST_ID, Retries};
use super::usage::InProgress;
use super::{Peer, Role, methods, rehearsals};
use crate::events::{ControlEvent, Tell};
use crate::{panics, traces};

/// Deadline of unary calls.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Limits of the streams of each role.
pub const STREAMS: Limits = Limits { total: 256, peer: 64 };

/// Limits of the calls of a role that are in progress. A call may hold a thread and use data cores. One viewer leaves
/// places to others; a client that may change settings may use all.
pub fn calls(role: Role) -> Limits {
    let total = 128;
    let peer = if role == Role::Viewer { total / 2 } else { total };
    Limits { total, peer }
}

/// Layer that puts the gate in front of a service.
#[derive(Clone)]
pub struct Gate {
    tell: Tell,
    meter: Arc<Meter>,
    /// Places of calls, by role.
    calls: [Arc<Places>; Role::ALL.len()],
    /// Places of streams, by role.
    streams: [Arc<Places>; Role::ALL.len()],
    retries: Arc<Retries>,
    deadline: Duration,
}

impl Gate {
    /// Makes a gate; `tell` gets an event for each refused client, `meter` counts all requests.
    pub fn new(tell: Tell, meter: Arc<Meter>) -> Gate {
        Gate {
            tell,
            meter,
            calls: Role::ALL.map(|role| Places::new("calls at a time", calls(role))),
            streams: Role::ALL.map(|_| Places::new("streams", STREAMS)),
            retries: Arc::default(),
            deadline: DEADLINE,
        }
    }

    /// Checks whether a peer may call the method of a path, with its row; returns its place among the streams or calls.
    fn admit(&self, peer: Option<&Peer>, path: &str, row: Option<&Method>) -> Result<Admitted, Status> {
        let needs = row.map_or(Role::Admin, |row| row.role);
        let (role, who) = peer.map_or((None, "an unknown client"), |peer| (peer.role, peer.who.as_str()));
        if let Some(limit) = peer.and_then(|peer| peer.over.as_deref()) {
            return Err(exhausted(
                "TOO_MANY_CONNECTIONS",
                &format!("{limit} are allowed: close one"),
            ));
        }
        let Some(role) = role.filter(|role| *role >= needs) else {
            let has = role.map_or("", Role::name);
            (self.tell)(ControlEvent::AccessRefused {
                by: who.to_owned(),
                // An unknown method's name is not logged: it may be any text of any length.
                method: row.map_or("an unknown method", |row| row.path).to_owned(),
                needs: needs.name(),
                has,
            });
            let shown = if has.is_empty() { "no role" } else { has };
            let text = format!("{path} takes the role {}; {who} has {shown}", needs.name());
            let metadata = [("needs", needs.name().to_owned()), ("has", has.to_owned())];
            return Err(status(Code::PermissionDenied, "ROLE_TOO_LOW", text, metadata));
        };
        let reached = |reason, limit| {
            let text = format!("{limit} are allowed: end one, or try again later");
            exhausted(reason, &text)
        };
        if row.is_some_and(|row| row.stream) {
            let place = self.streams[role as usize].take(who);
            return place
                .map(Admitted::Stream)
                .map_err(|limit| reached("TOO_MANY_STREAMS", limit));
        }
        let place = self.calls[role as usize].take(who);
        place
            .map(Admitted::Call)
            .map_err(|limit| reached("TOO_MANY_CALLS", limit))
    }
}

/// Place of an admitted request.
enum Admitted {
    Call(Place),
    Stream(Place),
}

fn exhausted(reason: &str, text: &str) -> Status {
    status(Code::ResourceExhausted, reason, text, [])
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            inner,
            gate: self.clone(),
        }
    }
}

/// A service behind the gate.
#[derive(Clone)]
pub struct Gated<S> {
    inner: S,
    gate: Gate,
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let path = request.uri().path();
        let method = methods::index(path);
        let row = method.map(|i| &methods::METHODS[i]);
        let admitted = self.gate.admit(peer.as_deref(), path, row);
        let admitted = admitted.and_then(|a| {
            let headers = request.headers();
            Ok((a, retries::id(headers)?, rehearsals::asked(headers, row)?))
        });
        let (admitted, id, rehearses) = match admitted {
            Ok(admitted) => admitted,
            Err(status) => {
                let who = peer.as_ref().map_or("", |peer| peer.who.as_str());
                self.gate
                    .meter
                    .refused(method, status.code(), request.headers(), who);
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        let who = peer.as_ref().map_or("", |peer| peer.who.as_str());
        let mut metered = Metered::begin(self.gate.meter.clone(), method, request.headers(), who);
        let trace = metered.trace();
        // The ready service is used; its clone stays.
        let copy = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, copy);
        let deadline = self.gate.deadline;
        // A request that changes nothing is not kept: to repeat it is no harm.
        let changes = !rehearses && row.is_none_or(|row| row.role > Role::Viewer);
        let kept = id.clone().zip(peer.as_ref()).zip(method).filter(|_| changes);
        let once =
            kept.map(|((id, peer), method)| (self.gate.retries.clone(), (peer.who.clone(), method, id)));
        let in_progress = peer.map(InProgress::begin);
        let served = async move {
            let (response, place) = match admitted {
                Admitted::Call(place) => {
                    let call = move |request| {
                        let _place = Arc::new(place);
                        let call = CALL.scope(Call { _place, rehearses }, inner.call(request));
                        in_time(deadline, call)
                    };
                    let response = match once {
                        Some((retries, key)) => in_time(deadline, retries.once(key, request, call)).await?,
                        None => call(request).await?,
                    };
                    (response, None)
                }
                Admitted::Stream(place) => (inner.call(request).await?, Some(place)),
            };
            let mut response = blame_client(response);
            if rehearses {
                response = rehearsals::answer(response);
            }
            if let Some(id) = id {
                response.headers_mut().insert(REQUEST_ID, id);
            }
            Ok((response, place))
        };
        // A panic would end the connection, with all other requests on it.
        Box::pin(async move {
            let served = panics::caught(traces::SCOPE.scope(trace, served));
            let (response, place) = match served.await {
                Ok(result) => result?,
                Err(panicked) => (bug(&panicked).into_http(), None),
            };
            metered.answered(response.headers());
            Ok(response.map(|body| {
                Body::new(Counted {
                    body,
                    metered,
                    _place: place,
                    _in_progress: in_progress,
                })
            }))
        })
    }
}

/// Text with which tonic's INTERNAL begins if a request is not a message of its type.
const MALFORMED: &str = "failed to decode Protobuf message";

/// Turns the answer to a malformed message into INVALID_ARGUMENT: INTERNAL would be a bug of the daemon.
fn blame_client(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(s) if s.code() == Code::Internal && s.message().starts_with(MALFORMED) => {
            status(Code::InvalidArgument, "MALFORMED_MESSAGE", s.message(), []).into_http()
        }
        _ => response,
    }
}

/// The answer of a call, or that it is late.
async fn in_time<E>(
    deadline: Duration,
    call: impl Future<Output = Result<Response<Body>, E>>,
) -> Result<Response<Body>, E> {
    let answer = tokio::time::timeout(deadline, call).await;
    answer.unwrap_or_else(|_| Ok(late(deadline).into_http()))
}

fn late(deadline: Duration) -> Status {
    let text = format!(
        "the daemon did not answer within {} s; what was asked for may still happen",
        deadline.as_secs()
    );
    status(Code::DeadlineExceeded, "TOO_LATE", text, [])
}

/// Body of a response. Until it is dropped, the request is in progress, and a stream holds its place.
struct Counted {
    body: Body,
    metered: Metered,
    _place: Option<Place>,
    _in_progress: Option<InProgress>,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.metered.ended(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => self.metered.failed(status.code()),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Mutex;

    #[derive(Clone)]
    enum Fake {
        Answers,
        NeverAnswers,
        Panics,
        /// Works until the other end of the channel is dropped.
        Works(Arc<Mutex<std::sync::mpsc::Receiver<()>>>),
    }

    impl Service<Request<Body>> for Fake {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            match self {
                Fake::Answers => {
                    let body = http_body_util::Full::new(Bytes::from_static(b"x"));
                    Box::pin(std::future::ready(Ok(Response::new(Body::new(body)))))
                }
                Fake::NeverAnswers => Box::pin(std::future::pending()),
                Fake::Panics => Box::pin(async { panic!("a bug of a service") }),
                Fake::Works(work) => {
                    let work = work.clone();
                    Box::pin(async move {
                        let work = move || work.lock().expect("the end").recv().is_err();
                        let _ = super::super::answers::blocking(work).await;
                        Ok(Response::new(Body::empty()))
                    })
                }
            }
        }
    }

    struct Bench {
        service: Gated<Fake>,
        refused: Arc<Mutex<Vec<ControlEvent>>>,
        meter: Arc<Meter>,
    }

    fn bench(fake: Fake) -> Bench {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let told = refused.clone();
        let meter = Arc::new(Meter::default());
        let tell = Arc::new(move |event| told.lock().expect("events").push(event));
        let gate = Gate::new(tell, meter.clone());
        Bench {
            service: gate.layer(fake),
            refused,
            meter,
        }
    }

    fn peer(role: Option<Role>) -> Peer {
        Peer::new("uid 7".to_owned(), role, None)
    }

    impl Bench {
        fn request(peer: Peer, path: &str) -> Request<Body> {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().expect("a path");
            request.extensions_mut().insert(Arc::new(peer));
            request
        }

        async fn call(&mut self, peer: Peer, path: &str) -> Response<Body> {
            let request = Bench::request(peer, path);
            self.service.call(request).await.expect("an answer")
        }

        async fn refusal(&mut self, peer: Peer, path: &str) -> Status {
            let response = self.call(peer, path).await;
            Status::from_header_map(response.headers()).expect("a refusal")
        }
    }

    /// Polls a future once.
    fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    const LIST: &str = "/vnic.v1.AdapterService/ListAdapters";
    const CREATE: &str = "/vnic.v1.AdapterService/CreateAdapter";
    const WATCH: &str = "/vnic.v1.AdapterService/WatchAdapters";

    #[tokio::test]
    async fn a_role_that_is_too_low_is_refused_and_told() {
        let mut bench = bench(Fake::Answers);
        for role in [None, Some(Role::Viewer), Some(Role::Operator)] {
            let status = bench.refusal(peer(role), CREATE).await;
            assert_eq!(status.code(), Code::PermissionDenied);
            let has = role.map_or("no role", Role::name);
            let text = format!("{CREATE} takes the role admin; uid 7 has {has}");
            assert_eq!(status.message(), text);
        }
        assert!(
            bench
                .call(peer(Some(Role::Admin)), CREATE)
                .await
                .headers()
                .is_empty()
        );
        let unknown = bench.refusal(peer(Some(Role::Viewer)), "/x.Y/Z").await;
        assert_eq!(unknown.code(), Code::PermissionDenied);
        let refused = bench.refused.lock().expect("events").clone();
        assert_eq!(refused.len(), 4);
        assert!(matches!(
            &refused[1],
            ControlEvent::AccessRefused {
                needs: "admin",
                has: "viewer",
                ..
            }
        ));
        // A request without a peer is refused.
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = WATCH.parse().expect("a path");
        let response = bench.service.call(request).await.expect("an answer");
        let status = Status::from_header_map(response.headers()).expect("a refusal");
        assert_eq!(status.code(), Code::PermissionDenied);
    }

    #[tokio::test]
    async fn streams_of_one_peer_and_of_one_role_are_limited_as_long_as_they_live() {
        let mut bench = bench(Fake::Answers);
        let viewer = |n: usize| Peer {
            who: format!("uid {n}"),
            ..peer(Some(Role::Viewer))
        };
        let mut streams = Vec::new();
        for n in 0..STREAMS.total {
            let stream = bench.call(viewer(n / STREAMS.peer), WATCH).await;
            assert!(Status::from_header_map(stream.headers()).is_none());
            streams.push(stream);
        }
        let status = bench.refusal(viewer(0), WATCH).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("64 streams from uid 0"), "{status}");
        let status = bench.refusal(viewer(4), WATCH).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("256 streams in total"), "{status}");
        // Calls are still admitted, and so are streams of administrators.
        for path in [CREATE, WATCH] {
            let answer = bench.call(peer(Some(Role::Admin)), path).await;
            assert!(answer.headers().is_empty(), "{path}");
        }
        assert!(
            bench
                .call(peer(Some(Role::Operator)), WATCH)
                .await
                .headers()
                .is_empty()
        );
        // The end of a stream frees its place.
        streams.pop();
        assert!(bench.call(viewer(4), WATCH).await.headers().is_empty());
    }

    #[tokio::test]
    async fn calls_of_one_peer_and_of_one_role_are_limited_until_their_work_is_done() {
        let (begin, may_begin) = std::sync::mpsc::channel::<()>();
        let work = Arc::new(Mutex::new(may_begin));
        let mut slow = bench(Fake::Works(work));
        let viewer = |n: usize| Peer {
            who: format!("uid {n}"),
            ..peer(Some(Role::Viewer))
        };
        let Limits { total, peer: most } = calls(Role::Viewer);
        // Clients that do not wait for their responses.
        for n in 0..total {
            let request = Bench::request(viewer(n / most), LIST);
            let mut call = slow.service.call(request);
            assert!(poll_once(&mut call).is_pending());
        }
        let status = slow.refusal(viewer(0), LIST).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(
            status.message().contains("64 calls at a time from uid 0"),
            "{status}"
        );
        let status = slow.refusal(viewer(2), LIST).await;
        assert!(
            status.message().contains("128 calls at a time in total"),
            "{status}"
        );
        // Administrators have their own places.
        let request = Bench::request(peer(Some(Role::Admin)), CREATE);
        assert!(poll_once(&mut slow.service.call(request)).is_pending());
        // The end of the work frees the places.
        drop(begin);
        while slow.service.gate.calls[Role::Viewer as usize]
            .take("uid 0")
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_connection_beyond_a_limit_hears_which() {
        let over = Some("64 connections from uid 7".to_owned());
        let peer = Peer {
            over,
            ..peer(Some(Role::Admin))
        };
        let status = bench(Fake::Answers).refusal(peer, CREATE).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(
            status.message(),
            "64 connections from uid 7 are allowed: close one"
        );
    }

    #[tokio::test]
    async fn a_panic_of_a_service_is_an_answer_and_frees_its_place() {
        let mut bench = bench(Fake::Panics);
        for path in [LIST, WATCH] {
            let status = bench.refusal(peer(Some(Role::Viewer)), path).await;
            assert_eq!(status.code(), Code::Internal, "{status}");
            assert_eq!(status.message(), "a bug of the daemon; its log has the details");
        }
        let gate = &bench.service.gate;
        for (places, limits) in [(&gate.calls, calls(Role::Viewer)), (&gate.streams, STREAMS)] {
            let places = &places[Role::Viewer as usize];
            let all: Vec<_> = (0..limits.peer).map(|_| places.take("uid 7")).collect();
            assert!(all.iter().all(Result::is_ok));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_answered_ends() {
        let before = tokio::time::Instant::now();
        let status = bench(Fake::NeverAnswers)
            .refusal(peer(Some(Role::Admin)), CREATE)
            .await;
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(status.message().contains("30 s"), "{status}");
        // Elapsed virtual time.
        assert_eq!(before.elapsed().as_secs(), DEADLINE.as_secs());
    }

    /// Counts of a method by code, and number of its open streams.
    fn counts(bench: &Bench, method: &str) -> (Vec<(Code, u64)>, u64) {
        let read = bench.meter.read();
        let Some(reading) = read.iter().find(|r| r.method == method) else {
            return (Vec::new(), 0);
        };
        let all = (0..).map(Code::from_i32).zip(reading.codes);
        (
            all.filter(|(_, n)| *n > 0).collect(),
            reading.open.unwrap_or_default(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_is_counted_once_by_its_method_and_code() {
        let (list, watch) = (&LIST[1..], &WATCH[1..]);
        let mut bench = bench(Fake::Answers);
        drop(bench.call(peer(Some(Role::Viewer)), LIST).await);
        // (A body without trailers that nobody reads: the client is gone.)
        assert_eq!(counts(&bench, list), (vec![(Code::Cancelled, 1)], 0));
        let stream = bench.call(peer(Some(Role::Viewer)), WATCH).await;
        assert_eq!(counts(&bench, watch), (vec![], 1));
        drop(stream);
        assert_eq!(counts(&bench, watch), (vec![(Code::Cancelled, 1)], 0));
        bench.refusal(peer(None), LIST).await;
        let of_list = vec![(Code::Cancelled, 1), (Code::PermissionDenied, 1)];
        assert_eq!(counts(&bench, list).0, of_list);
        // Whatever hostile clients ask for is one method.
        for n in 0..100 {
            bench.refusal(peer(None), &format!("/x.Y/Z{n}")).await;
        }
        assert_eq!(counts(&bench, "other").0, [(Code::PermissionDenied, 100)]);
        assert_eq!(bench.meter.read().len(), 3);
        // Refused requests have no duration.
        let read = bench.meter.read();
        let of_list = read.iter().find(|r| r.method == list).expect("its reading");
        let seconds = of_list.seconds.as_ref().expect("a histogram");
        assert_eq!(seconds.buckets.iter().sum::<u64>(), 1);
        let other = read.iter().find(|r| r.method == "other").expect("its reading");
        assert!(other.seconds.is_none() && other.open.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn late_calls_bugs_and_calls_that_clients_give_up_are_counted_as_such() {
        let mut late = bench(Fake::NeverAnswers);
        late.refusal(peer(Some(Role::Viewer)), LIST).await;
        let mut given_up = late.service.call(Bench::request(peer(Some(Role::Viewer)), LIST));
        assert!(poll_once(&mut given_up).is_pending());
        drop(given_up);
        let expected = vec![(Code::Cancelled, 1), (Code::DeadlineExceeded, 1)];
        assert_eq!(counts(&late, &LIST[1..]).0, expected);
        let read = late.meter.read();
        let seconds = read[0].seconds.as_ref().expect("a histogram");
        assert_eq!(seconds.nanos, 30_000_000_000);
        // One took no time, the other one 30 s: the greatest bound.
        let at: Vec<_> = seconds
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .collect();
        assert_eq!(at, [(0, &1), (super::super::meter::BOUNDS.len() - 1, &1)]);
        let mut bug = bench(Fake::Panics);
        for path in [LIST, WATCH] {
            bug.refusal(peer(Some(Role::Viewer)), path).await;
            assert_eq!(counts(&bug, &path[1..]), (vec![(Code::Internal, 1)], 0));
        }
    }
}
