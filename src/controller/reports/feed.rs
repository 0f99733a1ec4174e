//! Delivers objects for evaluation: a watch of each kind, and paginated lists of all objects. No object is kept in
//! memory.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::io::AsyncBufRead;
use tokio::time::{Instant, sleep, timeout};

use super::basis::Invalidation;
use super::session::{ObjectSource, ReportsController};
use crate::cluster::stored::{ObjectChange, ObjectList, ObjectWatch, WatchEnded};
use crate::scan::EvalContext;

/// The first back-off after a failure; doubled after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest back-off after a failure.
const LONGEST: Duration = Duration::from_secs(60);
/// A watch that worked for this long resets the back-off.
const STEADY: Duration = Duration::from_secs(60);
/// A watch that stays open for this long works, even without events.
const WORKS: Duration = Duration::from_secs(10);
/// How often a watch may break at the same resourceVersion before everything is listed again.
const MOST_BREAKS: u32 = 4;
/// How long to wait for the list of stored reports.
const ADOPTION: Duration = Duration::from_secs(10);

impl ReportsController<'_> {
    /// Follows the objects of one kind, forever. The watch starts before the list and runs in parallel. A change is
    /// evaluated immediately, and an older version from the list is then ignored.
    pub async fn follow(&self, stored: &ObjectList) {
        let doing = format!("cannot watch {}", stored.path);
        let mut wait = FIRST;
        let mut adopted = self.is_adopted.subscribe();
        // Findings are counted and reported even if the stored reports cannot be read.
        let _ = timeout(ADOPTION, adopted.wait_for(|is| *is)).await;
        self.has_begun.store(true, Ordering::Relaxed);
        loop {
            let began = Instant::now();
            let why = match stored.version(self.client()).await {
                Ok(version) => tokio::select! {
                    why = self.follow_from(stored, version, &doing) => why,
                    never = self.read_for_ever(stored) => match never {},
                },
                Err(failure) => failure.to_string(),
            };
            self.complain(&doing, &why);
            if began.elapsed() >= STEADY {
                wait = FIRST;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// Lists everything, and then what is requested.
    async fn read_for_ever(&self, stored: &ObjectList) -> Infallible {
        let mut anew = Invalidation::All;
        // The list includes everything that was requested until now.
        if let Some(wish) = self.wishes(stored) {
            wish.take();
        }
        loop {
            self.read(stored, anew).await;
            anew = self.wished(stored).await;
        }
    }

    /// Follows the changes from a resourceVersion on; returns why the watch cannot continue.
    async fn follow_from(&self, stored: &ObjectList, mut version: String, doing: &str) -> String {
        let (mut breaks, mut wait) = (0, FIRST);
        loop {
            let (before, began) = (version.clone(), Instant::now());
            let mut changes = match stored.changes(self.client(), &version).await {
                Ok(changes) => changes,
                Err(failure) => return failure.to_string(),
            };
            let works = sleep(WORKS);
            tokio::pin!(works);
            let mut is_said = false;
            let ended = loop {
                tokio::select! {
                    ended = self.take(stored, &mut changes, &mut version) => if let Some(ended) = ended { break ended },
                    () = &mut works, if !is_said => {
                        self.works(doing);
                        is_said = true;
                    }
                }
            };
            if version != before {
                (breaks, wait) = (0, FIRST);
                self.works(doing);
            }
            match ended {
                // If a watch ends immediately, the next one does not start immediately.
                WatchEnded::InTime => sleep(FIRST.saturating_sub(began.elapsed())).await,
                WatchEnded::Expired => {
                    return "what changed since the last look is not known any more".to_owned();
                }
                // Resumes where the watch broke; if that resourceVersion has expired, the API server returns an
                // error.
                WatchEnded::Broken(why) => {
                    tracing::debug!(path = &*stored.path, "the watch has broken: {why}");
                    breaks += 1;
                    if breaks >= MOST_BREAKS {
                        return why;
                    }
                    sleep(wait).await;
                    wait *= 2;
                }
            }
        }
    }

    async fn wished(&self, stored: &ObjectList) -> Invalidation {
        match self.wishes(stored) {
            Some(wish) => wish.next().await,
            None => std::future::pending().await,
        }
    }

    /// Evaluates the next change; `Some`: the watch has ended.
    async fn take<R: AsyncBufRead + Unpin>(
        &self,
        stored: &ObjectList,
        changes: &mut ObjectWatch<R>,
        version: &mut String,
    ) -> Option<WatchEnded> {
        match changes.next(version).await {
            Ok(ObjectChange::Seen(json)) => self.seen(stored, json),
            Ok(ObjectChange::Gone(json)) => self.gone(stored.kind, json),
            Err(ended) => return Some(ended),
        }
        tokio::task::yield_now().await;
        None
    }

    fn seen(&self, stored: &ObjectList, json: &str) {
        let snapshot = self.snapshot();
        let pass = self.passes.load(Ordering::Relaxed);
        if let Some(write) = self.judge(
            &EvalContext::of(&snapshot).listing(&self.custom),
            stored.kind,
            json,
            pass,
            ObjectSource::Watch,
        ) {
            self.news(write);
        }
    }

    /// Lists the objects of a kind, with pauses.
    async fn read(&self, stored: &ObjectList, anew: Invalidation) {
        let doing = format!("cannot list {}", stored.path);
        let pass = self.passes.fetch_add(1, Ordering::Relaxed) + 1;
        self.ledger().begins(stored.kind);
        let scopes = match &anew {
            Invalidation::None => Vec::new(),
            Invalidation::All => vec![None],
            Invalidation::In(namespaces) => namespaces.iter().map(|name| Some(name.as_str())).collect(),
        };
        for scope in scopes {
            if let Err(failure) = self.read_pages(stored, scope, pass).await {
                self.ledger().breaks_off(stored.kind);
                self.complain(&doing, &failure);
                sleep(self.settings().retry).await;
                if let Some(wish) = self.wishes(stored) {
                    wish.add(anew);
                }
                return;
            }
        }
        self.works(&doing);
        if anew == Invalidation::All {
            let freed = self.ledger().ends(stored.kind, pass);
            if !freed.is_empty() {
                self.look_again(
                    stored.kind,
                    freed.into_iter().fold(Invalidation::None, Invalidation::with),
                );
            }
        } else {
            self.ledger().breaks_off(stored.kind);
        }
        sleep(self.settings().gather).await;
    }

    async fn read_pages(
        &self,
        stored: &ObjectList,
        namespace: Option<&str>,
        pass: u64,
    ) -> Result<(), String> {
        let mut pages = stored.pages(namespace);
        loop {
            let began = Instant::now();
            let mut writes = Vec::new();
            // The semaphore is never closed, so this cannot fail.
            let permit = self.pages.acquire().await;
            let snapshot = self.snapshot();
            let eval_context = EvalContext::of(&snapshot).listing(&self.custom);
            let next = pages.next(self.client(), |json| {
                writes.extend(self.judge(&eval_context, stored.kind, json, pass, ObjectSource::List));
            });
            let more = next.await.map_err(|failure| failure.to_string())?;
            drop(eval_context);
            drop((snapshot, permit));
            // Each write holds a report in memory, so the next page is only read after these are written. If the
            // continue token expires meanwhile, the API server returns a new one.
            for write in writes {
                self.rest(write).await;
            }
            if !more {
                return Ok(());
            }
            sleep(self.settings().rest.max(began.elapsed())).await;
        }
    }
}
