//! What the leader writes: one step of what was decided, into the Secret or into the configurations.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::decide::{Action, decide};
use super::super::publish::Published;
use super::super::store::{SecretState, changes_or_start_over};
use super::super::x509::Authority;
use super::super::{Error, authorities};
use super::{Keeping, LOOK_AGAIN, POLL, RETRY};

/// How long one write may take; shorter than a leader acts on its last renewal.
const REQUEST: Duration = Duration::from_secs(3);

/// The most writes in a minute: somebody else may write the same fields, as fast as we do.
const WRITES: usize = 60;

/// How it goes on.
pub(super) enum Step {
    /// Something was written: decide again.
    Again,
    /// There is nothing to do for so long.
    Rest(Duration),
    /// Something could not be written.
    Failed,
}

impl Keeping {
    /// One step of what is decided, on the leader.
    pub(super) async fn issue(&mut self) -> Result<Step, Error> {
        let situation = self.situation();
        let action = decide(&situation);
        if let Action::Nothing { look_again } = action {
            return Ok(self.release().await.unwrap_or(Step::Rest(look_again)));
        }
        if !self.keeper.leadership.holds() {
            return Ok(Step::Rest(LOOK_AGAIN));
        }
        let secret = self.secret.as_ref().and_then(|seen| seen.value.as_ref());
        if action == Action::PublishBundle {
            let trusted = secret
                .map(|stored| stored.state.trusted.as_slice())
                .unwrap_or_default();
            let bundle = Authority::bundle(trusted);
            return Ok(self.publish(&bundle).await);
        }
        let nothing = SecretState::default();
        let state = secret.map_or(&nothing, |stored| &stored.state);
        let (names, lifetimes, now) = (situation.names, situation.lifetimes, situation.now);
        let (action, changes, unusable) = changes_or_start_over(action, state, names, lifetimes, now)?;
        if let Some(error) = unusable {
            tracing::warn!(
                secret = self.secrets.title(),
                "its CA cannot be used, and a new one is made: {error}"
            );
        }
        if let Some(after) = self.pace() {
            return Ok(Step::Rest(after));
        }
        tracing::info!(secret = self.secrets.title(), "{}", action.describe());
        let stored = self.secret.as_ref().and_then(|seen| seen.value.as_ref());
        let writing = self.secrets.write(stored, &changes);
        match timeout(REQUEST, writing).await {
            Ok(Ok(stored)) => {
                self.succeeded();
                self.put_secret(Some(stored));
                Ok(Step::Again)
            }
            Ok(Err(error)) => Ok(self.failed(&format!("cannot write the {}", self.secrets.title()), &error)),
            Err(_) => Ok(self.late(&self.secrets.title())),
        }
    }

    /// Publishes the CAs of a file, on the leader.
    pub(super) async fn publish_file(&mut self, file: &Path) -> Step {
        let wanted = match authorities(file).await {
            Ok(wanted) => wanted,
            Err(error) => {
                self.complain(&error.to_string());
                return Step::Rest(POLL);
            }
        };
        let bundle = Authority::bundle(&wanted);
        let differs = |published: &Published| published.differs(&bundle);
        if !self.published.iter().flatten().any(differs) {
            return self.release().await.unwrap_or(Step::Rest(POLL));
        }
        if !self.keeper.leadership.holds() {
            return Step::Rest(POLL);
        }
        self.publish(&bundle).await
    }

    /// Writes the bundle wherever it is not.
    async fn publish(&mut self, bundle: &str) -> Step {
        for which in [0, 1] {
            // There are two of each.
            let Some(published) = &self.published[which] else {
                continue;
            };
            if !published.differs(bundle) {
                continue;
            }
            let published = published.clone();
            if let Some(after) = self.pace() {
                return Step::Rest(after);
            }
            if !self.keeper.leadership.holds() {
                return Step::Rest(LOOK_AGAIN);
            }
            // As above.
            let place = self.places[which].clone();
            match timeout(REQUEST, place.publish(&published, bundle)).await {
                Ok(Ok(written)) => {
                    tracing::info!(configuration = place.title(), "published the CA bundle");
                    self.succeeded();
                    self.put_configuration(which, Some(written));
                }
                Ok(Err(error)) => {
                    return self.failed(
                        &format!("cannot publish the CA bundle in the {}", place.title()),
                        &error,
                    );
                }
                Err(_) => return self.late(&place.title()),
            }
        }
        Step::Again
    }

    /// Lets go what the leader has published, or a former leader that was interrupted; what is to be done instead of
    /// resting, if anything.
    async fn release(&mut self) -> Option<Step> {
        for which in [0, 1] {
            // There are two of each.
            let Some(published) = self.published[which].clone().filter(Published::is_held) else {
                continue;
            };
            if !self.keeper.leadership.holds() {
                return None;
            }
            if let Some(after) = self.pace() {
                return Some(Step::Rest(after));
            }
            // As above.
            let place = self.places[which].clone();
            match timeout(REQUEST, place.release(&published)).await {
                Ok(Ok(written)) => {
                    tracing::debug!(configuration = place.title(), "let the entries go");
                    self.succeeded();
                    self.put_configuration(which, Some(written));
                }
                Ok(Err(error)) => {
                    let title = place.title();
                    return Some(self.failed(&format!("cannot let go the entries of the {title}"), &error));
                }
                Err(_) => return Some(self.late(&place.title())),
            }
        }
        None
    }

    /// Counts a write, or says how long to wait with it.
    fn pace(&mut self) -> Option<Duration> {
        const MINUTE: Duration = Duration::from_secs(60);
        while self.writes.front().is_some_and(|write| write.elapsed() >= MINUTE) {
            self.writes.pop_front();
        }
        if let Some(first) = self.writes.front().filter(|_| self.writes.len() >= WRITES) {
            let wait = MINUTE.saturating_sub(first.elapsed());
            self.complain("certificates or caBundles change again and again: somebody else writes them too");
            return Some(wait.max(RETRY.0));
        }
        self.writes.push_back(Instant::now());
        None
    }

    fn succeeded(&mut self) {
        self.retry = RETRY.0;
        self.complaint.clear();
    }

    fn failed(&mut self, what: &str, error: &kube::Error) -> Step {
        match error {
            // It has changed since, or is gone: the watch is about to tell.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => {}
            error => self.complain(&format!("{what}: {error}; trying again")),
        }
        Step::Failed
    }

    fn late(&mut self, what: &str) -> Step {
        self.complain(&format!(
            "cannot write the {what}: no answer from the API server within {REQUEST:?}"
        ));
        Step::Failed
    }
}
