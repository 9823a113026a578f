//! Requests that clients may send again. A request to change something may have an id in its metadata. If the same client asks the
//! same method again with that id, it gets the answer of the first request, and nothing is changed a second time.
//!
//! ```text
//!   id is new ───────────▶ carried out to its end, even if the client goes; the answer is kept if it is OK
//!   still carried out ───▶ ABORTED
//!   another request ─────▶ INVALID_ARGUMENT
//!   answered ────────────▶ the same answer, with `vnic-repeated: true`
//! ```

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::{Code, Status};

use super::answers::{bug, status};

/// Metadata of a request that may be sent again, and of its answer.
pub const REQUEST_ID: &str = "vnic-request-id";
/// Metadata of an answer that was given before.
pub const REPEATED: &str = "vnic-repeated";

/// Greatest length of an id in bytes.
const ID_MAX: usize = 128;
/// Greatest request in bytes, with the frame's prefix: longer ones are refused by the services, too.
const REQUEST_MAX: usize = (1 << 20) + 5;
/// How long answers are kept.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// Most answers that are kept, of all clients and of one.
const ANSWERS_MAX: usize = 1024;
const ANSWERS_OF_ONE: usize = 256;
/// Most bytes of answers that are kept.
const BYTES_MAX: usize = 4 << 20;

/// What names a request: the client, the method's row, and the id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    who: String,
    method: usize,
    id: HeaderValue,
}

/// An answer that is OK.
#[derive(Debug, Clone)]
struct Kept {
    headers: HeaderMap,
    message: Bytes,
    trailers: HeaderMap,
}

impl Kept {
    fn response(self) -> Response<Body> {
        let trailers = std::future::ready(Some(Ok(self.trailers)));
        let mut response = Response::new(Body::new(Full::new(self.message).with_trailers(trailers)));
        *response.headers_mut() = self.headers;
        response
    }
}

#[derive(Debug)]
struct Row {
    key: Key,
    /// Hash of the request.
    request: u64,
    since: Instant,
    /// `None`: the request is still carried out.
    answer: Option<Kept>,
}

/// Requests with an id, and their answers.
#[derive(Debug, Default)]
pub struct Retries {
    hashes: RandomState,
    /// In the order of their beginnings.
    rows: Mutex<VecDeque<Row>>,
}

/// Id of a request, if it has one. INVALID_ARGUMENT: it is no id.
pub fn id(headers: &HeaderMap) -> Result<Option<HeaderValue>, Status> {
    let Some(id) = headers.get(REQUEST_ID) else {
        return Ok(None);
    };
    if id.is_empty() || id.len() > ID_MAX || !id.as_bytes().iter().all(u8::is_ascii_graphic) {
        let text =
            format!("{REQUEST_ID}: 1 to {ID_MAX} visible ASCII characters are allowed, such as a UUID");
        return Err(status(Code::InvalidArgument, "BAD_REQUEST_ID", text, []));
    }
    Ok(Some(id.clone()))
}

impl Retries {
    /// Carries out a request of a client to a method, with an id, by `call`, or answers it as before.
    pub async fn once<F, E>(
        self: Arc<Retries>,
        (who, method, id): (String, usize, HeaderValue),
        request: Request<Body>,
        call: impl FnOnce(Request<Body>) -> F,
    ) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, REQUEST_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                let text = format!("the request cannot be read: {error}");
                return Ok(status(Code::InvalidArgument, "MALFORMED_MESSAGE", text, []).into_http());
            }
        };
        let key = Key { who, method, id };
        match self.begin(&key, self.hashes.hash_one(&body)) {
            Err(refused) => return Ok(refused.into_http()),
            Ok(Some(answer)) => {
                let mut response = answer.response();
                let repeated = HeaderValue::from_static("true");
                response.headers_mut().insert(REPEATED, repeated);
                return Ok(response);
            }
            Ok(None) => {}
        }
        let begun = Begun { retries: self, key };
        let call = call(Request::from_parts(head, Body::new(Full::new(body))));
        // A client that goes does not learn the answer; it may ask again for it.
        let served = tokio::spawn(async move { Ok(begun.end(call.await?).await) });
        served.await.unwrap_or_else(|error| Ok(bug(&error).into_http()))
    }

    fn rows(&self) -> MutexGuard<'_, VecDeque<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request. `Some`: it was answered before.
    fn begin(&self, key: &Key, request: u64) -> Result<Option<Kept>, Status> {
        let now = Instant::now();
        let mut rows = self.rows();
        rows.retain(|row| row.answer.is_none() || now - row.since < KEPT_FOR);
        if let Some(row) = rows.iter().find(|row| row.key == *key) {
            let id = key.id.to_str().unwrap_or_default();
            if row.request != request {
                let text = format!("another request had the id {id}: each request takes an id of its own");
                return Err(status(Code::InvalidArgument, "REQUEST_ID_TAKEN", text, []));
            }
            let Some(answer) = &row.answer else {
                let text = format!("request {id} is still carried out: ask again later");
                return Err(status(Code::Aborted, "REQUEST_IN_PROGRESS", text, []));
            };
            return Ok(Some(answer.clone()));
        }
        rows.push_back(Row {
            key: key.clone(),
            request,
            since: now,
            answer: None,
        });
        Ok(None)
    }

    /// Keeps an answer, or forgets its request (`None`). The oldest answers go beyond the limits.
    fn keep(&self, key: &Key, answer: Option<Kept>) {
        let mut rows = self.rows();
        let Some(at) = rows.iter().position(|row| row.key == *key) else {
            return;
        };
        let Some(answer) = answer else {
            rows.remove(at);
            return;
        };
        rows[at].answer = Some(answer);
        while let Some(at) = surplus(&rows, &key.who) {
            rows.remove(at);
        }
    }
}

/// The answer that goes first, if there are too many: the oldest of the client that has too many, or of all.
fn surplus(rows: &VecDeque<Row>, who: &str) -> Option<usize> {
    let answered = || rows.iter().enumerate().filter(|(_, row)| row.answer.is_some());
    let of_one = || answered().filter(|(_, row)| row.key.who == who);
    let bytes = |row: &Row| row.answer.as_ref().map_or(0, |kept| kept.message.len());
    let first = if of_one().count() > ANSWERS_OF_ONE {
        of_one().next()
    } else if answered().count() > ANSWERS_MAX || rows.iter().map(bytes).sum::<usize>() > BYTES_MAX {
        answered().next()
    } else {
        None
    };
    first.map(|(at, _)| at)
}

/// A request that is carried out.
struct Begun {
    retries: Arc<Retries>,
    key: Key,
}

impl Begun {
    /// Keeps the answer if it is OK.
    async fn end(self, response: Response<Body>) -> Response<Body> {
        let (head, body) = response.into_parts();
        let body = match body.collect().await {
            Ok(body) => body,
            Err(failed) => return failed.into_http(),
        };
        let trailers = body.trailers().cloned().unwrap_or_default();
        let kept = Kept {
            headers: head.headers,
            message: body.to_bytes(),
            trailers,
        };
        let is_ok = Status::from_header_map(&kept.trailers).is_some_and(|s| s.code() == Code::Ok);
        if is_ok {
            self.retries.keep(&self.key, Some(kept.clone()));
        }
        kept.response()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let unanswered = |row: &Row| row.key == self.key && row.answer.is_none();
        let is_open = self.retries.rows().iter().any(unanswered);
        if is_open {
            self.retries.keep(&self.key, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A service that counts what it carries out.
    #[derive(Default)]
    struct Bench {
        retries: Arc<Retries>,
        done: Arc<AtomicUsize>,
    }

    impl Bench {
        fn request(id: &str, body: &'static str) -> (HeaderValue, Request<Body>) {
            let body = Full::new(Bytes::from_static(body.as_bytes()));
            (
                HeaderValue::from_str(id).expect("an id"),
                Request::new(Body::new(body)),
            )
        }

        /// Asks; the service answers with `code` when `may` is over.
        async fn ask(
            &self,
            (who, method): (&str, usize),
            (id, body): (&str, &'static str),
            code: Code,
            may: impl Future<Output = ()> + Send + 'static,
        ) -> Response<Body> {
            let (id, request) = Bench::request(id, body);
            let done = self.done.clone();
            let call = |_| async move {
                may.await;
                let n = done.fetch_add(1, Ordering::Relaxed) + 1;
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from(code as i32));
                let trailers = std::future::ready(Some(Ok(trailers)));
                let body = Full::new(Bytes::from(n.to_string())).with_trailers(trailers);
                Ok::<_, Infallible>(Response::new(Body::new(body)))
            };
            let key = (who.to_owned(), method, id);
            let answer = self.retries.clone().once(key, request, call).await;
            answer.unwrap_or_else(|never| match never {})
        }

        /// Asks, and gives the message of the answer, whether it is one of before, and its code.
        async fn answer(
            &self,
            of: (&str, usize),
            id: &str,
            body: &'static str,
            code: Code,
        ) -> (String, bool, Code) {
            let response = self.ask(of, (id, body), code, std::future::ready(())).await;
            read(response).await
        }
    }

    async fn read(response: Response<Body>) -> (String, bool, Code) {
        let repeated = response.headers().contains_key(REPEATED);
        if let Some(refused) = Status::from_header_map(response.headers()) {
            return (refused.message().to_owned(), repeated, refused.code());
        }
        let body = response.into_body().collect().await.expect("a body");
        let trailers = body.trailers().expect("trailers");
        let code = Status::from_header_map(trailers).expect("a status").code();
        let message = String::from_utf8(body.to_bytes().to_vec()).expect("text");
        (message, repeated, code)
    }

    const ANN: (&str, usize) = ("uid 1", 3);

    #[tokio::test(start_paused = true)]
    async fn a_request_is_carried_out_once_for_its_client_method_and_id() {
        let bench = Bench::default();
        let first = bench.answer(ANN, "a", "x", Code::Ok).await;
        assert_eq!(first, ("1".to_owned(), false, Code::Ok));
        for _ in 0..2 {
            let again = bench.answer(ANN, "a", "x", Code::Ok).await;
            assert_eq!(again, ("1".to_owned(), true, Code::Ok));
        }
        // Another id, client or method is another request.
        for (of, id, n) in [
            (ANN, "b", "2"),
            (("uid 2", 3), "a", "3"),
            (("uid 1", 4), "a", "4"),
        ] {
            assert_eq!(
                bench.answer(of, id, "x", Code::Ok).await,
                (n.to_owned(), false, Code::Ok)
            );
        }
        let (text, _, code) = bench.answer(ANN, "a", "y", Code::Ok).await;
        assert_eq!(code, Code::InvalidArgument, "{text}");
        // What failed changed nothing.
        for n in ["5", "6"] {
            let failed = bench.answer(ANN, "c", "x", Code::NotFound).await;
            assert_eq!(failed, (n.to_owned(), false, Code::NotFound));
        }
        tokio::time::advance(KEPT_FOR).await;
        let late = bench.answer(ANN, "a", "x", Code::Ok).await;
        assert_eq!(late, ("7".to_owned(), false, Code::Ok));
    }

    #[tokio::test]
    async fn a_client_that_goes_gets_the_answer_later() {
        let bench = Bench::default();
        let (end, may_end) = tokio::sync::oneshot::channel::<()>();
        let may = async { drop(may_end.await) };
        let mut gone = Box::pin(bench.ask(ANN, ("a", "x"), Code::Ok, may));
        let polled = futures_poll(gone.as_mut()).await;
        assert!(polled.is_none());
        drop(gone);
        let (text, _, code) = bench.answer(ANN, "a", "x", Code::Ok).await;
        assert_eq!(code, Code::Aborted, "{text}");
        drop(end);
        let answer = loop {
            match bench.answer(ANN, "a", "x", Code::Ok).await {
                (_, _, Code::Aborted) => tokio::task::yield_now().await,
                answer => break answer,
            }
        };
        assert_eq!(answer, ("1".to_owned(), true, Code::Ok));
    }

    /// Polls a future until it has begun its work; `None`: it is not ready.
    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        for _ in 0..8 {
            tokio::task::yield_now().await;
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx)));
            if let std::task::Poll::Ready(output) = polled.await {
                return Some(output);
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_much_forgets_its_own_answers() {
        let bench = Bench::default();
        bench.answer(("uid 2", 3), "theirs", "x", Code::Ok).await;
        for n in 0..=ANSWERS_OF_ONE {
            bench.answer(ANN, &format!("id{n}"), "x", Code::Ok).await;
        }
        assert_eq!(bench.retries.rows().len(), ANSWERS_OF_ONE + 1);
        assert!(!bench.answer(ANN, "id0", "x", Code::Ok).await.1);
        assert!(bench.answer(("uid 2", 3), "theirs", "x", Code::Ok).await.1);
        for n in 0..2 * ANSWERS_MAX {
            bench.answer((&format!("uid {n}"), 3), "a", "x", Code::Ok).await;
        }
        assert_eq!(bench.retries.rows().len(), ANSWERS_MAX);
    }

    #[test]
    fn an_id_is_short_visible_text() {
        let read = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(value).expect("a value"));
            id(&headers).map(|id| id.is_some())
        };
        assert_eq!(id(&HeaderMap::new()).expect("none"), None);
        assert!(read(b"1f0c-7").expect("an id"));
        assert!(read(&[b'x'; ID_MAX]).expect("an id"));
        for wrong in [b"".as_slice(), b"a b", &[0xff], &[b'x'; ID_MAX + 1]] {
            assert_eq!(read(wrong).expect_err("no id").code(), Code::InvalidArgument);
        }
    }
}
