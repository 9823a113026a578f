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

/// Done between two frames, again and again until it says that it is done.
type Call<S> = Box<dyn FnMut(&mut S, &mut WirePort, Instant) -> bool + Send>;

/// A station that runs.
pub struct Driven<S> {
    calls: Sender<Call<S>>,
    thread: JoinHandle<(S, WirePort)>,
}

impl<S: Station> Driven<S> {
    /// Starts it. Its time begins at zero now.
    pub fn start(port: WirePort, station: S) -> Driven<S> {
        let (sender, calls) = channel();
        let thread = std::thread::spawn(move || run(port, station, &calls));
        Driven {
            calls: sender,
            thread,
        }
    }

    /// Does something to the station (or the port) between two frames, and gives what came of it.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut S, &mut WirePort, Instant) -> R + Send + 'static,
    ) -> Result<R> {
        let mut f = Some(f);
        self.until("a call", move |station, port, now| {
            f.take().map(|f| f(station, port, now))
        })
    }

    /// Asks between any two frames until there is an answer.
    pub fn until<R: Send + 'static>(
        &self,
        what: &str,
        mut f: impl FnMut(&mut S, &mut WirePort, Instant) -> Option<R> + Send + 'static,
    ) -> Result<R> {
        let (sender, result) = channel();
        let call: Call<S> = Box::new(move |station, port, now| {
            let answer = f(station, port, now);
            let done = answer.is_some();
            if let Some(answer) = answer {
                // Nobody may wait any more.
                let _ = sender.send(answer);
            }
            done
        });
        self.calls
            .send(call)
            .map_err(|_| anyhow!("{what}: the station panicked: see above"))?;
        match result.recv_timeout(super::PATIENCE) {
            Ok(value) => Ok(value),
            Err(RecvTimeoutError::Timeout) => bail!("{what}: not within {:?}", super::PATIENCE),
            Err(RecvTimeoutError::Disconnected) => bail!("{what}: the station panicked: see above"),
        }
    }

    /// Stops it.
    pub fn finish(self) -> Result<(S, WirePort)> {
        drop(self.calls);
        self.thread
            .join()
            .map_err(|_| anyhow!("the station panicked: see above"))
    }
}

fn run<S: Station>(mut port: WirePort, mut station: S, calls: &Receiver<Call<S>>) -> (S, WirePort) {
    let origin = Clock::now();
    let now = || Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut quiet = 0;
    let mut open: Vec<Call<S>> = Vec::new();
    loop {
        let mut busy = false;
        loop {
            match calls.try_recv() {
                Ok(call) => open.push(call),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return (station, port),
            }
            busy = true;
        }
        open.retain_mut(|call| !call(&mut station, &mut port, now()));
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
