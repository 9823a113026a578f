//! A protocol engine on a wire port, in a thread of its own, so that a case can talk to the other side meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use anyhow::{Result, anyhow, bail};
use vnic_wire::time::Instant;

use super::WirePort;

/// Frames taken in between two looks at what is to be sent.
const BURST: usize = 32;
/// The longest sleep of an idle station: frames come without a signal.
const NAP: Duration = Duration::from_micros(100);

/// What is driven: frames and time in, frames out.
pub trait Station: Send + 'static {
    /// A RoCE frame came, whole from Ethernet header to ICRC.
    fn frame(&mut self, now: Instant, frame: &[u8]);
    /// The next frame to send; it is asked until there is none. Timers that are due are to be served here, too.
    fn next_frame(&mut self, now: Instant) -> Option<Vec<u8>>;
    /// When [`Station::next_frame`] must be asked again at the latest, though nothing comes.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

type Call<S> = Box<dyn FnOnce(&mut S, &mut WirePort, Instant) + Send>;

/// A station that runs.
pub struct Driven<S> {
    calls: Sender<Call<S>>,
    thread: Option<JoinHandle<(S, WirePort)>>,
}

impl<S: Station> Driven<S> {
    /// Starts it. Its time begins at zero now.
    pub fn start(port: WirePort, station: S) -> Driven<S> {
        let (sender, calls) = channel();
        let thread = std::thread::spawn(move || run(port, station, &calls));
        Driven {
            calls: sender,
            thread: Some(thread),
        }
    }

    /// Does something to the station (or the port) between two frames, and gives what came of it.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut S, &mut WirePort, Instant) -> R + Send + 'static,
    ) -> Result<R> {
        let (sender, result) = channel();
        let call: Call<S> = Box::new(move |station, port, now| {
            // Nobody waits any more when the case has ended.
            let _ = sender.send(f(station, port, now));
        });
        self.calls
            .send(call)
            .map_err(|_| anyhow!("the station has ended (it panicked: see above)"))?;
        match result.recv_timeout(super::PATIENCE) {
            Ok(value) => Ok(value),
            Err(RecvTimeoutError::Timeout) => bail!("the station does nothing any more"),
            Err(RecvTimeoutError::Disconnected) => bail!("the station panicked: see above"),
        }
    }

    /// Asks again and again until there is an answer.
    pub fn until<R: Send + 'static>(
        &self,
        what: &str,
        f: impl Fn(&mut S, Instant) -> Option<R> + Clone + Send + 'static,
    ) -> Result<R> {
        super::wait_for(what, super::PATIENCE, || {
            let f = f.clone();
            let answer = self.call(move |station, _, now| f(station, now))?;
            answer.ok_or_else(|| anyhow!("not yet"))
        })
    }

    /// Stops it.
    pub fn finish(mut self) -> Result<(S, WirePort)> {
        let thread = self.thread.take();
        drop(self);
        match thread.map(JoinHandle::join) {
            Some(Ok(both)) => Ok(both),
            _ => bail!("the station panicked: see above"),
        }
    }
}

fn run<S: Station>(mut port: WirePort, mut station: S, calls: &Receiver<Call<S>>) -> (S, WirePort) {
    let origin = Clock::now();
    let now = || Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut quiet = 0;
    loop {
        let mut busy = false;
        loop {
            match calls.try_recv() {
                Ok(call) => call(&mut station, &mut port, now()),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return (station, port),
            }
            busy = true;
        }
        for _ in 0..BURST {
            let Some(frame) = port.try_recv() else { break };
            station.frame(now(), &frame);
            busy = true;
        }
        while let Some(frame) = station.next_frame(now()) {
            port.send(&frame);
            busy = true;
        }
        quiet = if busy { 0 } else { quiet + 1 };
        if quiet > 16 {
            let left = station.deadline().map_or(NAP, |at| at.since(now()));
            std::thread::sleep(left.min(NAP));
        }
    }
}
