//! What the leader writes: one step of the decision, into the Secret or into the webhook configurations.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::super::ca::CaCertificate;
use super::super::ca_injector::PublishedConfiguration;
use super::super::issue::IssueContext;
use super::super::rotation::{RotationAction, decide};
use super::super::secret::SecretState;
use super::super::{CertsError, ca_file};
use super::{CERTIFICATES, LOOK_AGAIN, POLL, TaskState};
use crate::cluster::errors::{ApiError, answered_within};

/// Timeout of one write; shorter than the time for which a leader acts on its last renewal.
const REQUEST: Duration = Duration::from_secs(3);

/// Writes per second, and burst: another writer may overwrite the same fields as fast as Transom writes them. Transom
/// keeps writing at this rate as long as that lasts, because a CA that is not published is not trusted.
pub(super) const WRITES: (u32, u32) = (2, 30);

/// What to do next.
pub(super) enum LeaderStep {
    /// Something was written: decide again.
    Again,
    /// Nothing to do for this long.
    Rest(Duration),
    Failed,
}

impl TaskState {
    /// Runs one step of the decision, on the leader.
    pub(super) async fn issue(&mut self) -> Result<LeaderStep, CertsError> {
        let situation = self.situation();
        let action = decide(&situation);
        if let RotationAction::Nothing { look_again } = action {
            return Ok(self.release().await.unwrap_or(LeaderStep::Rest(look_again)));
        }
        if !self.task.leadership.holds() {
            return Ok(LeaderStep::Rest(LOOK_AGAIN));
        }
        let nothing = SecretState::default();
        let state = situation.secret.unwrap_or(&nothing);
        if action == RotationAction::PublishBundle {
            let bundle = CaCertificate::bundle(&state.trusted);
            return Ok(self.publish(&bundle).await);
        }
        let issuing = IssueContext {
            names: situation.names,
            lifetimes: situation.lifetimes,
            now: situation.now,
        };
        let (action, changes, unusable) = issuing.changes_or_start_over(action, state)?;
        let title = self.secrets.title();
        if let Some(error) = unusable {
            tracing::warn!(
                secret = title,
                "its CA cannot be used, and a new one is created: {error}"
            );
        }
        let (secrets, seen) = (self.secrets.clone(), self.stored().cloned());
        let writing = secrets.write(seen.as_ref(), &changes);
        Ok(match self.write(&format!("write the {title}"), writing).await {
            Ok(stored) => {
                tracing::info!(secret = title, "{}", action.describe());
                self.put_secret(Some(stored));
                LeaderStep::Again
            }
            Err(next) => next,
        })
    }

    /// Publishes the CAs of a file, on the leader.
    pub(super) async fn publish_file(&mut self, file: &Path) -> LeaderStep {
        let wanted = match ca_file(file).await {
            Ok(wanted) => wanted,
            Err(error) => {
                self.complain(&error.to_string());
                return LeaderStep::Rest(POLL);
            }
        };
        let bundle = CaCertificate::bundle(&wanted);
        let differs = |published: &PublishedConfiguration| published.differs(&bundle);
        if !self.published.iter().flatten().any(differs) {
            return self.release().await.unwrap_or(LeaderStep::Rest(POLL));
        }
        if !self.task.leadership.holds() {
            return LeaderStep::Rest(POLL);
        }
        self.publish(&bundle).await
    }

    /// Writes the bundle into every configuration that does not have it.
    async fn publish(&mut self, bundle: &str) -> LeaderStep {
        for which in [0, 1] {
            // In bounds: there are two of each.
            let Some(seen) = self.published[which].clone().filter(|seen| seen.differs(bundle)) else {
                continue;
            };
            let store = self.stores[which].clone();
            let title = store.title();
            self.contest
                .publishes(which, bundle, &title, &seen.writers, Instant::now());
            let what = format!("publish the CA bundle in the {title}");
            match self.write(&what, store.publish(&seen, bundle)).await {
                Ok(written) => {
                    let others = seen.writers.join(", ");
                    tracing::info!(configuration = title, others, "published the caBundle");
                    self.contest.published(which, bundle);
                    self.put_configuration(which, Some(written));
                }
                Err(next) => return next,
            }
        }
        LeaderStep::Again
    }

    /// Releases the fields that this leader, or an interrupted former leader, has published. Returns what to do
    /// instead of resting, if anything.
    async fn release(&mut self) -> Option<LeaderStep> {
        for which in [0, 1] {
            // In bounds: there are two of each.
            let Some(seen) = self.published[which]
                .clone()
                .filter(PublishedConfiguration::is_held)
            else {
                continue;
            };
            if !self.task.leadership.holds() {
                return None;
            }
            let store = self.stores[which].clone();
            let title = store.title();
            let what = format!("release the ownership of the webhooks of the {title}");
            match self.write(&what, store.release(&seen)).await {
                Ok(written) => {
                    tracing::debug!(configuration = title, "release the ownership of the webhooks");
                    self.put_configuration(which, Some(written));
                }
                Err(next) => return Some(next),
            }
        }
        None
    }

    /// Writes within the rate limit; returns the result, or what to do next if there is none.
    async fn write<T>(
        &mut self,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, LeaderStep> {
        if !self.task.leadership.holds() {
            return Err(LeaderStep::Rest(LOOK_AGAIN));
        }
        if let Err(wait) = self.writes.take(Instant::now()) {
            self.complain("certificates or caBundles change repeatedly: another client also writes them");
            return Err(LeaderStep::Rest(wait));
        }
        match answered_within(REQUEST, request).await {
            Ok(written) => {
                self.failures = 0;
                self.complaints.ended(CERTIFICATES);
                return Ok(written);
            }
            // The watch will deliver the new version.
            Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(why) => self.complain(&format!("cannot {what}: {why}; trying again")),
        }
        Err(LeaderStep::Failed)
    }
}
