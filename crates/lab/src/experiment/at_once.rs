//! Work in virtual time, on all cores at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much is done at once.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What `work` makes of each item, in their order, up to `most` of them at once.
///
/// # Errors
/// If the work on an item fails; what others are about is ended first, and nothing new is begun.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    most: usize,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || -> anyhow::Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return Ok(()) };
            let result = work(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            if let Ok(mut done) = done.lock() {
                done.push((at, result));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..most.clamp(1, items.len().max(1))).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })?;
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        // Two at once, of which the first one ends last.
        let both = Barrier::new(2);
        let later = Mutex::new(false);
        let results = each(&[0, 1], 2, |item| {
            both.wait();
            while *item == 0 && !*later.lock().unwrap() {
                std::thread::yield_now();
            }
            *later.lock().unwrap() = true;
            Ok(item * 10)
        });
        assert_eq!(results.unwrap(), [0, 10]);
        assert_eq!(each(&[0; 0], 2, |item| Ok(*item)).unwrap(), [0; 0]);
    }

    #[test]
    fn nothing_new_is_begun_after_a_failure() {
        let begun = AtomicUsize::new(0);
        let results = each(&[1, 2, 3], 1, |item| {
            begun.fetch_add(1, Ordering::Relaxed);
            anyhow::ensure!(*item < 2, "no {item}");
            Ok(*item)
        });
        assert_eq!(results.unwrap_err().to_string(), "no 2");
        assert_eq!(begun.into_inner(), 2);
    }
}
