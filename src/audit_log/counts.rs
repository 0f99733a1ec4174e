//! What is counted of requests.

use crate::model::string_enum::string_enum;

string_enum! {
    /// What came of a request, or would have. A request may have several.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum RequestOutcome {
        /// Transom refused it.
        Denied = "denied",
        /// Transom would have refused it if `validation` were Deny.
        WouldDeny = "wouldDeny",
        /// Transom changed the object.
        Patched = "patched",
        /// Transom would have changed it if nothing were in dry run.
        WouldPatch = "wouldPatch",
        /// Fields that Windows ignores were taken out.
        Removed = "removed",
        /// `spec.os.name` was not set.
        Withheld = "withheld",
        /// An exemption lifted something.
        Exempted = "exempted",
        /// The owner was not believed, and a finding would else have been left to it.
        OwnerNotTrusted = "ownerNotTrusted",
        /// Transom could not read the object, or its review was too large.
        NotEvaluated = "notEvaluated",
        /// Transom did not answer, and the request went on without it.
        FailedOpen = "failedOpen",
        /// Transom did not answer, and the API server refused the request for that.
        FailedClosed = "failedClosed",
        /// The request failed for what is none of Transom's.
        RefusedOtherwise = "refusedOtherwise",
    }
}

/// How many requests had which outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutcomeCounts {
    /// Requests that Transom told of, or was to be asked about.
    pub requests: u64,
    outcomes: [u64; RequestOutcome::ALL.len()],
}

impl OutcomeCounts {
    /// How many had this outcome.
    pub fn of(&self, outcome: RequestOutcome) -> u64 {
        self.outcomes.get(outcome as usize).copied().unwrap_or_default()
    }

    /// Whether there is something to tell.
    pub fn is_relevant(&self) -> bool {
        self.outcomes.iter().any(|count| *count > 0)
    }

    /// Whether something was denied, or would be.
    pub fn denials(&self) -> u64 {
        self.of(RequestOutcome::Denied) + self.of(RequestOutcome::WouldDeny)
    }

    /// Whether something was changed, or would be.
    pub fn changes(&self) -> u64 {
        self.of(RequestOutcome::Patched) + self.of(RequestOutcome::WouldPatch)
    }

    /// Whether Transom did not answer.
    pub fn unanswered(&self) -> u64 {
        self.of(RequestOutcome::FailedOpen) + self.of(RequestOutcome::FailedClosed)
    }

    /// Counts one request.
    pub fn count(&mut self, outcomes: impl Iterator<Item = RequestOutcome>) {
        self.requests += 1;
        for outcome in outcomes {
            if let Some(count) = self.outcomes.get_mut(outcome as usize) {
                *count += 1;
            }
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &OutcomeCounts) {
        self.requests += other.requests;
        for (count, more) in self.outcomes.iter_mut().zip(other.outcomes) {
            *count += more;
        }
    }
}
