//! Answers of calls: one message, or a stream of them. The stream of a client that reads too slowly ends with an error; the client never
//! delays the daemon or other clients.

use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status};

use super::errors::shutting_down;
use crate::access::{blocking, status};
use crate::control::Control;

/// Greatest answer in bytes.
pub const RESPONSE_MAX: usize = 4 << 20;

/// Answer with one message.
pub type Answer<T> = Result<Response<T>, Status>;
/// Stream of messages.
pub type Stream<T> = ReceiverStream<Result<T, Status>>;
/// Sender of a stream's messages.
pub type Sender<T> = mpsc::Sender<Result<T, Status>>;

/// Does work that may block; answers with its result.
pub async fn answer<T: Send + 'static>(
    control: &Arc<Control>,
    work: impl FnOnce(&Arc<Control>) -> Result<T, Status> + Send + 'static,
) -> Answer<T> {
    let control = control.clone();
    blocking(move || work(&control)).await?.map(Response::new)
}

/// Starts a stream, in which at most `unread` messages wait for the client. `follow` sends them; its error is the last message, or
/// that the daemon ends. A client that never reads does not get the last message, and keeps this task alone.
pub fn stream<T: Send + 'static, F>(
    control: &Control,
    unread: usize,
    follow: impl FnOnce(Sender<T>) -> F,
) -> Stream<T>
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(unread);
    let (followed, ended) = (follow(sender.clone()), control.life.ended());
    tokio::spawn(async move {
        let done = tokio::select! {
            done = followed => done,
            () = ended => Err(shutting_down()),
            () = sender.closed() => Ok(()),
        };
        if let Err(status) = done {
            let _ = sender.send(Err(status)).await;
        }
    });
    ReceiverStream::new(receiver)
}

/// Sends messages, and waits for the client. Returns whether the client is still there.
pub async fn send_all<T>(sender: &Sender<T>, messages: impl IntoIterator<Item = T>) -> bool {
    for message in messages {
        if sender.send(Ok(message)).await.is_err() {
            return false;
        }
    }
    true
}

/// Waits for the next piece of news.
pub async fn hear<N: Clone>(news: &mut broadcast::Receiver<N>) -> Result<N, Status> {
    news.recv().await.map_err(|error| match error {
        broadcast::error::RecvError::Lagged(_) => too_slow(),
        broadcast::error::RecvError::Closed => shutting_down(),
    })
}

/// Sends a message without waiting for the client. Returns whether the client is still there.
pub fn send_now<T>(sender: &Sender<T>, message: T) -> Result<bool, Status> {
    match sender.try_send(Ok(message)) {
        Ok(()) => Ok(true),
        Err(mpsc::error::TrySendError::Full(_)) => Err(too_slow()),
        Err(mpsc::error::TrySendError::Closed(_)) => Ok(false),
    }
}

/// Error of a client that reads too slowly.
pub fn too_slow() -> Status {
    status(
        Code::ResourceExhausted,
        "WATCH_TOO_SLOW",
        "the client reads more slowly than things happen and has missed some: watch again",
        [],
    )
}
