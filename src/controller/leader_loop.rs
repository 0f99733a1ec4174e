//! The loop of every controller: it runs while this replica leads, compares each snapshot with what is stored, and writes the
//! difference.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::errors::ApiError;
use crate::cluster::lease::Leadership;
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::process::complaints::Complaints;
use crate::process::metrics::Reconcile;

/// The longest time until the next pass if a write failed.
const RETRY: Duration = Duration::from_secs(30);

/// A controller. What a pass writes is planned by a pure function of the snapshot and of what is stored.
pub trait Controller {
    /// How often a pass runs if nothing changes. After a failed write, the next one runs after [`RETRY`] at most.
    const EVERY: Duration;

    /// Writes what the snapshot requires.
    fn pass(&mut self, snapshot: &Snapshot) -> impl Future<Output = PassResult> + Send;

    /// Waits for a change that snapshots do not show.
    fn changed(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// This replica no longer leads: another one may change whatever this controller remembers.
    fn lost(&mut self) {}
}

/// What one pass did.
#[derive(Debug, Default)]
pub struct PassResult {
    /// What could not be done, as in `write the status of WindowsPodPolicy web`, and why.
    failed: BTreeMap<String, String>,
    /// The pause before the next pass.
    pause: Duration,
    /// When the next pass is due if nothing changes until then.
    next: Option<Instant>,
}

impl PassResult {
    /// A result without failures. The next pass starts after this pause at the earliest.
    pub fn with_pause(pause: Duration) -> Self {
        PassResult {
            pause,
            ..PassResult::default()
        }
    }

    /// Records the result of a write. If another client was faster or the object is gone, the next snapshot shows it.
    pub fn record<T>(&mut self, task: impl FnOnce() -> String, written: Result<T, ApiError>) -> Option<T> {
        match written {
            Ok(written) => return Some(written),
            Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) => self.fail(task(), &error),
        }
        None
    }

    /// Records why a task of the pass failed.
    pub fn fail(&mut self, task: String, why: &impl ToString) {
        self.failed.insert(task, why.to_string());
    }

    /// Requests the next pass at this time, or at an earlier one that was requested before.
    pub fn wake_at(&mut self, at: impl Into<Option<Instant>>) {
        self.next = self.next.into_iter().chain(at.into()).min();
    }

    /// When the next pass is due.
    fn due(&self, every: Duration) -> Instant {
        let every = if self.failed.is_empty() {
            every
        } else {
            every.min(RETRY)
        };
        let regular = Instant::now() + every;
        self.next.map_or(regular, |next| next.min(regular))
    }
}

/// What a controller needs to run.
pub struct LeaderLoop {
    pub latest: SnapshotReceiver,
    /// Whether this replica may write.
    pub leadership: Leadership,
    /// Counts passes and failed requests.
    pub reconcile: Reconcile,
}

impl LeaderLoop {
    /// Runs a pass for each new snapshot, each other change, and when one is due, while this replica leads, and when it
    /// begins to lead. A failure is logged once, until its reason changes. Returns when the snapshot channel ends.
    pub async fn run<C: Controller>(mut self, mut controller: C) {
        let mut complaints = Complaints::default();
        let mut led = false;
        loop {
            let snapshot = Arc::clone(&self.latest.borrow_and_update());
            let leads = self.leadership.holds();
            let mut result = PassResult::default();
            if leads {
                result = self.pass(&mut controller, &snapshot, &mut complaints).await;
            } else if led {
                controller.lost();
            }
            led = leads;
            // Frees the snapshot before the wait for the next one.
            drop(snapshot);
            sleep(result.pause).await;
            tokio::select! {
                changed = self.latest.changed() => if changed.is_err() { return },
                () = controller.changed() => (),
                // If the election has ended, its own task reports that.
                Ok(()) = self.leadership.switched(leads) => (),
                () = sleep_until(result.due(C::EVERY)) => (),
            }
        }
    }

    async fn pass<C: Controller>(
        &self,
        controller: &mut C,
        snapshot: &Snapshot,
        complaints: &mut Complaints,
    ) -> PassResult {
        let began = Instant::now();
        let result = controller.pass(snapshot).await;
        self.reconcile.took(began.elapsed());
        // Writes fail when leadership is lost, and that is logged where it is lost.
        if self.leadership.holds() {
            for (task, why) in &result.failed {
                self.reconcile.failed();
                if complaints.is_news(task, why) {
                    tracing::warn!("cannot {task}: {why}");
                }
            }
            complaints.retain(|task| result.failed.contains_key(task));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use jiff::civil::date;
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::snapshot::SnapshotBuilder;
    use crate::model::cluster::facts::Facts;
    use crate::process::metrics::{Metrics, Reconciles};
    use crate::process::test_log::Log;

    /// Counts passes, and fails each of them for the current reason.
    struct FailingController {
        passes: Arc<Mutex<usize>>,
        why: Arc<Mutex<&'static str>>,
        more: usize,
    }

    impl Controller for FailingController {
        const EVERY: Duration = Duration::from_secs(60);

        async fn pass(&mut self, _: &Snapshot) -> PassResult {
            *self.passes.lock().unwrap() += 1;
            let mut result = PassResult::with_pause(Duration::from_secs(1));
            let why = (*self.why.lock().unwrap()).to_owned();
            if !why.is_empty() {
                result.record(|| "write x".to_owned(), Err::<(), _>(ApiError::Other(why)));
            }
            result.record(|| "write y".to_owned(), Err::<(), _>(ApiError::Conflict));
            assert_eq!(result.record(String::new, Ok(1)), Some(1));
            if self.more > 0 {
                result.wake_at(Instant::now());
            }
            self.more = self.more.saturating_sub(1);
            result
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_leader_runs_passes_for_changes_and_retries_and_reports_a_failure_once() {
        let log = Log::default();
        let _listening = log.listen();
        let (passes, why) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new("no")));
        let unknown =
            || Arc::new(SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), []).unknown());
        let (publish, latest) = watch::channel(unknown());
        let (lead, until) = watch::channel(None);
        let leader_loop = LeaderLoop {
            latest,
            leadership: Leadership::new(until),
            reconcile: Reconciles::new(&Metrics::new("0", None)).of("x"),
        };
        let controller = FailingController {
            passes: Arc::clone(&passes),
            why: Arc::clone(&why),
            more: 2,
        };
        let running = tokio::spawn(leader_loop.run(controller));
        let passes_after = async |seconds| {
            sleep(Duration::from_secs(seconds)).await;
            std::mem::take(&mut *passes.lock().unwrap())
        };
        assert_eq!(passes_after(600).await, 0, "another replica leads");
        let long = || Some(Instant::now() + Duration::from_secs(100_000));
        lead.send_replace(long());
        assert_eq!(passes_after(10).await, 3, "once, and twice because more is due");
        lead.send_replace(long());
        assert_eq!(passes_after(10).await, 0, "a renewal");
        assert_eq!(
            passes_after(600).await,
            19,
            "one every half minute and the pause, because they fail"
        );
        assert_eq!(log.take().matches("cannot write x: no").count(), 1);
        *why.lock().unwrap() = "still not";
        publish.send_replace(unknown());
        assert_eq!(passes_after(10).await, 1);
        let text = log.take();
        assert!(
            text.contains("cannot write x: still not") && !text.contains("write y"),
            "{text}"
        );
        *why.lock().unwrap() = "";
        publish.send_replace(unknown());
        assert_eq!(passes_after(10).await, 1);
        assert_eq!(passes_after(500).await, 8, "one a minute and the pause");
        lead.send_replace(None);
        assert_eq!(passes_after(600).await, 0);
        lead.send_replace(long());
        assert_eq!(passes_after(1).await, 1, "it leads again");
        drop(publish);
        running.await.unwrap();
    }
}
