//! Where judged objects come from: a watch of each kind, and readings of everything beside it, page by page. Nothing of an
//! object stays.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture as _, FutureExt as _};
use futures::io::AsyncBufRead;
use tokio::time::{Instant, sleep};

use super::basis::Anew;
use super::session::{Session, Source};
use crate::cluster::stored::{Change, Changes, Ended, Stored};
use crate::scan::World;

/// The first wait after a failure; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const LONGEST: Duration = Duration::from_secs(60);
/// A watch that worked for so long begins with the first wait again.
const STEADY: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Follows the objects of one kind, for ever. The watch begins before everything is read, and goes on meanwhile: what
    /// changes is judged at once, and what was read of it before does not count.
    pub async fn follow(&self, stored: Stored) {
        let doing = format!("cannot watch {}", stored.path);
        let mut wait = FIRST;
        while !self.is_adopted.load(Ordering::Relaxed) {
            sleep(self.settings().rest).await;
        }
        loop {
            let began = Instant::now();
            let why = match stored.version(self.client()).await {
                Ok(version) => self.follow_from(stored, version, &doing).await,
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

    /// Follows the changes from a version on, and reads everything that was there before; says why it cannot go on.
    async fn follow_from(&self, stored: Stored, mut version: String, doing: &str) -> String {
        let reading = Fuse::terminated();
        futures::pin_mut!(reading);
        reading.set(self.read(stored, Anew::All).fuse());
        loop {
            let mut changes = match stored.changes(self.client(), &version).await {
                Ok(changes) => changes,
                Err(failure) => return failure.to_string(),
            };
            self.works(doing);
            let began = Instant::now();
            let ended = loop {
                let is_reading = !reading.is_terminated();
                tokio::select! {
                    ended = self.take(stored, &mut changes, &mut version) => if let Some(ended) = ended { break ended },
                    () = &mut reading, if is_reading => (),
                    anew = self.wished(stored), if !is_reading => reading.set(self.read(stored, anew).fuse()),
                }
            };
            match ended {
                // One that ends at once is not asked for at once again.
                Ended::InTime => sleep(FIRST.saturating_sub(began.elapsed())).await,
                Ended::Expired => return "what changed since the last look is not known any more".to_owned(),
                // It goes on where it broke; a version that is too old by then says so.
                Ended::Broken(why) => {
                    tracing::debug!(path = stored.path, "the watch has broken: {why}");
                    sleep(FIRST).await;
                }
            }
        }
    }

    async fn wished(&self, stored: Stored) -> Anew {
        match self.wishes(stored) {
            Some(wish) => wish.next().await,
            None => std::future::pending().await,
        }
    }

    /// Judges the next change; `Some`: the watch has ended.
    async fn take<R: AsyncBufRead + Unpin>(
        &self,
        stored: Stored,
        changes: &mut Changes<R>,
        version: &mut String,
    ) -> Option<Ended> {
        match changes.next(version).await {
            Ok(Change::Seen(json)) => self.seen(stored, json),
            Ok(Change::Gone(json)) => {
                let uid = Session::uid_of(json);
                let mut ledger = self.ledger();
                ledger.touch(stored.kind, &uid);
                ledger.gone(&uid);
            }
            Err(ended) => return Some(ended),
        }
        tokio::task::yield_now().await;
        None
    }

    fn seen(&self, stored: Stored, json: &str) {
        let snapshot = self.snapshot();
        let pass = self.passes.load(Ordering::Relaxed);
        if let Some(write) = self.judge(&World::of(&snapshot), stored.kind, json, pass, Source::Watch) {
            self.news(write);
        }
    }

    /// Reads what is there of a kind, at its pace.
    async fn read(&self, stored: Stored, anew: Anew) {
        let doing = format!("cannot list {}", stored.path);
        let pass = self.passes.fetch_add(1, Ordering::Relaxed) + 1;
        self.ledger().begins(stored.kind);
        let scopes = match &anew {
            Anew::None => Vec::new(),
            Anew::All => vec![None],
            Anew::In(namespaces) => namespaces.iter().map(|name| Some(name.as_str())).collect(),
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
        if anew == Anew::All {
            self.ledger().ends(stored.kind, pass);
        } else {
            self.ledger().breaks_off(stored.kind);
        }
        sleep(self.settings().gather).await;
    }

    async fn read_pages(&self, stored: Stored, namespace: Option<&str>, pass: u64) -> Result<(), String> {
        let mut pages = stored.pages(namespace);
        loop {
            let began = Instant::now();
            let mut writes = Vec::new();
            // A semaphore that is never closed always gives.
            let permit = self.pages.acquire().await;
            let snapshot = self.snapshot();
            let world = World::of(&snapshot);
            let next = pages.next(self.client(), |json| {
                writes.extend(self.judge(&world, stored.kind, json, pass, Source::List));
            });
            let more = next.await.map_err(|failure| failure.to_string())?;
            drop(world);
            drop((snapshot, permit));
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
