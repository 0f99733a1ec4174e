//! What the program adds to a check, because the core has no threads, no files and no custom resources.

use std::path::{Path, PathBuf};

use crate::manifest::Document;
use crate::model::nodes::node::Host;

/// A part of the work of a check.
pub type CheckJob<'j> = Box<dyn FnOnce() + Send + 'j>;

/// The environment of a check. By default it has one thread, and reads nothing.
pub trait CheckEnvironment: Sync {
    /// How many jobs run at the same time.
    fn threads(&self) -> usize {
        1
    }

    /// Runs all jobs, and returns when the last one is done.
    fn run(&self, jobs: Vec<CheckJob<'_>>) {
        for job in jobs {
            job();
        }
    }

    /// The nodes that a WindowsNodePool describes; `None` if it is invalid.
    fn read_node_pool(&self, _: &Document) -> Option<Host> {
        None
    }

    /// The path of an input relative to a folder; `None` if it is not below it.
    fn relative_path(&self, _source: &str, _folder: &Path) -> Option<PathBuf> {
        None
    }
}

/// The environment of a check without a program.
pub struct SingleThread;

impl CheckEnvironment for SingleThread {}

/// The number of items per batch; their results are held in memory until the batch is complete.
const BATCH: usize = 512;
/// Fewer items than this are processed on one thread.
const FEW: usize = 32;

/// Passes the result of `work` for each item to `each`, in the order of the items.
pub(super) fn in_order<'i, T: Sync, R: Send>(
    environment: &dyn CheckEnvironment,
    items: &'i [T],
    work: impl Fn(&'i T) -> R + Sync,
    mut each: impl FnMut(R),
) {
    let threads = environment.threads();
    if threads <= 1 || items.len() < FEW {
        return items.iter().map(work).for_each(each);
    }
    let work = &work;
    for batch in items.chunks(BATCH * threads) {
        let parts: Vec<&'i [T]> = batch.chunks(batch.len().div_ceil(threads)).collect();
        let mut results: Vec<Vec<R>> = parts.iter().map(|_| Vec::new()).collect();
        let jobs = parts.into_iter().zip(&mut results).map(|(part, results)| {
            let job = move || results.extend(part.iter().map(work));
            Box::new(job) as CheckJob<'_>
        });
        environment.run(jobs.collect());
        results.into_iter().flatten().for_each(&mut each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several threads, of which the last one is done first.
    struct LastFirst;

    impl CheckEnvironment for LastFirst {
        fn threads(&self) -> usize {
            3
        }

        fn run(&self, jobs: Vec<CheckJob<'_>>) {
            for job in jobs.into_iter().rev() {
                job();
            }
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_items_however_many_there_are() {
        let environments: [&dyn CheckEnvironment; 2] = [&SingleThread, &LastFirst];
        for environment in environments {
            for count in [0, 1, FEW - 1, FEW, BATCH, 10 * BATCH + 7] {
                let items: Vec<usize> = (0..count).collect();
                let mut doubled = Vec::new();
                in_order(
                    environment,
                    &items,
                    |item| item * 2,
                    |result| doubled.push(result),
                );
                assert!(
                    doubled.iter().copied().eq((0..count).map(|item| item * 2)),
                    "{count}"
                );
            }
        }
    }
}
