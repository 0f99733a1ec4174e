//! Follows the objects of one kind, forever: a watch, and lists in parallel. What is done with an object is decided by
//! the follower; no object is kept.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use futures::io::AsyncBufRead;
use kube::Client;
use tokio::time::{Instant, sleep};

use super::rate_limit::RestartBackoff;
use super::stored::{ObjectChange, ObjectList, ObjectWatch, WatchEnded};

/// A watch that stays open for this long works, even without events.
const WORKS: Duration = Duration::from_secs(10);
/// How often a watch may break at the same resourceVersion before everything is listed again.
const MOST_BREAKS: u32 = 4;

/// Takes the objects of the kinds that it follows.
pub trait ObjectFollower: Sync {
    /// Lists everything, and then whatever must be listed again, forever.
    fn read_for_ever(&self, stored: &ObjectList) -> impl Future<Output = Infallible> + Send;
    /// An object was created or changed.
    fn seen(&self, stored: &ObjectList, json: &str);
    /// An object was deleted.
    fn gone(&self, stored: &ObjectList, json: &str);
    /// An activity works.
    fn works(&self, activity: &str);
    /// An activity fails, and why.
    fn fails(&self, activity: &str, why: &str);
}

/// The current problems of a follower, by activity.
#[derive(Debug, Default)]
pub struct ActivityProblems(BTreeMap<String, String>);

impl ActivityProblems {
    /// An activity fails. Returns whether that is news: the reason is another one than before.
    pub fn fails(&mut self, activity: &str, why: &str) -> bool {
        let is_news = self.0.get(activity).map(String::as_str) != Some(why);
        if is_news {
            self.0.insert(activity.to_owned(), why.to_owned());
        }
        is_news
    }

    /// An activity works.
    pub fn works(&mut self, activity: &str) {
        self.0.remove(activity);
    }

    /// The first activity that fails, and why.
    pub fn first(&self) -> Option<(&str, &str)> {
        let (activity, why) = self.0.first_key_value()?;
        Some((activity, why))
    }
}

/// Follows the objects of one kind, forever. The watch starts before the list and runs in parallel, so that no change is
/// missed.
pub async fn follow<F: ObjectFollower>(client: &Client, stored: &ObjectList, follower: &F) -> Infallible {
    let watching = format!("cannot watch {}", stored.path);
    let mut backoff = RestartBackoff::default();
    loop {
        let began = Instant::now();
        let why = match stored.version(client).await {
            Ok(version) => tokio::select! {
                why = follow_from(client, stored, version, follower, &watching) => why,
                never = follower.read_for_ever(stored) => match never {},
            },
            Err(failure) => failure.to_string(),
        };
        follower.fails(&watching, &why);
        sleep(backoff.after(began.elapsed())).await;
    }
}

/// Follows the changes from a resourceVersion on; returns why the watch cannot continue.
async fn follow_from<F: ObjectFollower>(
    client: &Client,
    stored: &ObjectList,
    mut version: String,
    follower: &F,
    watching: &str,
) -> String {
    let (mut breaks, mut wait) = (0, RestartBackoff::FIRST);
    loop {
        let (before, began) = (version.clone(), Instant::now());
        let mut changes = match stored.changes(client, &version).await {
            Ok(changes) => changes,
            Err(failure) => return failure.to_string(),
        };
        let works = sleep(WORKS);
        tokio::pin!(works);
        let mut is_known_to_work = false;
        let ended = loop {
            tokio::select! {
                ended = take(stored, &mut changes, &mut version, follower) => {
                    if let Some(ended) = ended { break ended }
                }
                () = &mut works, if !is_known_to_work => {
                    follower.works(watching);
                    is_known_to_work = true;
                }
            }
        };
        if version != before {
            (breaks, wait) = (0, RestartBackoff::FIRST);
            follower.works(watching);
        }
        match ended {
            // If a watch ends immediately, the next one does not start immediately.
            WatchEnded::InTime => sleep(RestartBackoff::FIRST.saturating_sub(began.elapsed())).await,
            WatchEnded::Expired => {
                return "changes since the last read are lost".to_owned();
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

/// Passes on the next change; `Some`: the watch has ended.
async fn take<F: ObjectFollower, R: AsyncBufRead + Unpin>(
    stored: &ObjectList,
    changes: &mut ObjectWatch<R>,
    version: &mut String,
    follower: &F,
) -> Option<WatchEnded> {
    match changes.next(version).await {
        Ok(ObjectChange::Seen(json)) => follower.seen(stored, json),
        Ok(ObjectChange::Gone(json)) => follower.gone(stored, json),
        Err(ended) => return Some(ended),
    }
    tokio::task::yield_now().await;
    None
}
