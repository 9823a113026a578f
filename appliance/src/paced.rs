//! Readings that take time of the data cores, and that any client may request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinError;
use tokio::time::Instant;

/// Time between the beginnings of two readings.
pub const PACE: Duration = Duration::from_millis(100);

/// A reading that runs once at a time, and at most once in [`PACE`]. A caller gets a reading that began after its call;
/// calls that wait at the same time share the next one.
#[derive(Debug)]
pub struct Paced<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for Paced<T> {
    fn default() -> Paced<T> {
        Paced(Arc::default())
    }
}

impl<T: Clone + Send + 'static> Paced<T> {
    /// Returns the next reading; `read` may block. An error is a panic of `read`.
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
        // The reading holds the lock, so that there is one reading even if its caller is gone.
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
        // In virtual time the first call waits for nothing.
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let all: Vec<_> = (0..1000).map(|_| tokio::spawn(ask())).collect();
        for asked in all {
            assert_eq!(asked.await.expect("an answer"), 2);
        }
        assert_eq!(begin.elapsed(), PACE);
        // A cancelled call leaves nothing behind.
        let patience = tokio::time::timeout(PACE / 2, ask());
        assert!(patience.await.is_err());
        assert_eq!(ask().await, 3);
        assert_eq!(begin.elapsed(), 2 * PACE);
    }
}
