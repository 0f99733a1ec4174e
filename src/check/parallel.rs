//! Processes items on all cores, and returns the results in the order of the items.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

/// The number of items per batch; their results are held in memory until the batch is complete.
const BATCH: usize = 512;
/// Fewer items than this are processed on one thread.
const FEW: usize = 32;

/// Passes the result of `work` for each item to `each`, in the order of the items.
pub fn in_order<'i, T: Sync, R: Send>(
    items: &'i [T],
    work: impl Fn(&'i T) -> R + Sync,
    mut each: impl FnMut(R),
) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    if threads == 1 || items.len() < FEW {
        return items.iter().map(work).for_each(each);
    }
    let work = &work;
    for batch in items.chunks(BATCH * threads) {
        thread::scope(|scope| {
            let parts = batch.chunks(batch.len().div_ceil(threads));
            let threads: Vec<_> = parts
                .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<R>>()))
                .collect();
            for thread in threads {
                match thread.join() {
                    Ok(results) => results.into_iter().for_each(&mut each),
                    Err(panic) => resume_unwind(panic),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_however_many_there_are() {
        for count in [0, 1, FEW - 1, FEW, BATCH, 10 * BATCH + 7] {
            let items: Vec<usize> = (0..count).collect();
            let mut doubled = Vec::new();
            in_order(&items, |item| item * 2, |result| doubled.push(result));
            assert!(
                doubled.iter().copied().eq((0..count).map(|item| item * 2)),
                "{count}"
            );
        }
    }
}
