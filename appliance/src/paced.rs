//! Readings that cost the data cores time and that anybody may ask for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinError;
use tokio::time::Instant;

/// Time between the beginnings of two readings.
pub const PACE: Duration = Duration::from_millis(100);

/// A reading, one at a time and one each [`PACE`], however many ask. Who asks gets a reading that began after the question:
/// all who ask meanwhile share the next one.
#[derive(Debug)]
pub struct Paced<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for Paced<T> {
    fn default() -> Paced<T> {
        Paced(Arc::default())
    }
}

impl<T: Clone + Send + 'static> Paced<T> {
    /// The next reading; `read` may block. An error is a panic of `read`.
    pub async fn get(&self, read: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let asked = Instant::now();
        let mut last = self.0.clone().lock_owned().await;
        if let Some((began, value)) = &*last {
            if *began > asked {
                return Ok(value.clone());
            }
            tokio::time::sleep_until(*began + PACE).await;
        }
        let began = Instant::now();
        // The lock goes with the reading: it is the only one even if nobody waits for it any more.
        tokio::task::spawn_blocking(move || {
            let value = read();
            *last = Some((began, value.clone()));
            value
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn many_share_a_reading_that_is_not_older_than_their_question() {
        let (paced, count) = (Arc::new(Paced::default()), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (paced, count) = (paced.clone(), count.clone());
            async move {
                let read = move || count.fetch_add(1, Ordering::SeqCst) + 1;
                paced.get(read).await.expect("a reading")
            }
        };
        let begin = Instant::now();
        assert_eq!(ask().await, 1);
        // Virtual time: the first one waits for nothing.
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let all: Vec<_> = (0..1000).map(|_| tokio::spawn(ask())).collect();
        for asked in all {
            assert_eq!(asked.await.expect("an answer"), 2);
        }
        assert_eq!(begin.elapsed(), PACE);
        // Who gave up leaves nothing behind.
        let patience = tokio::time::timeout(PACE / 2, ask());
        assert!(patience.await.is_err());
        assert_eq!(ask().await, 3);
        assert_eq!(begin.elapsed(), 2 * PACE);
    }
}
