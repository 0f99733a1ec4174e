//! The outcomes of requests, and their counts.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::model::syntax::report_schema::counts_by;
use crate::model::syntax::string_enum::string_enum;

string_enum! {
    /// The outcome of a request, or the outcome it would have had. A request may have several.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema)]
    #[schemars(rename_all = "camelCase")]
    pub enum RequestOutcome {
        /// Transom denied it.
        Denied = "denied",
        /// Transom would have denied it with `validation.action: Deny`.
        WouldDeny = "wouldDeny",
        /// Transom changed the object.
        Patched = "patched",
        /// Transom would have changed it if dry run were off.
        WouldPatch = "wouldPatch",
        /// Fields that Windows ignores were removed.
        Removed = "removed",
        /// `spec.os.name` was not set.
        Withheld = "withheld",
        /// An exemption applied.
        Exempted = "exempted",
        /// The owner was not trusted, and a finding would otherwise have been left to it.
        OwnerNotTrusted = "ownerNotTrusted",
        /// Transom could not read the object, or its review was too large.
        NotEvaluated = "notEvaluated",
        /// Transom did not answer, and the API server allowed the request.
        FailedOpen = "failedOpen",
        /// Transom did not answer, and the API server denied the request for that reason.
        FailedClosed = "failedClosed",
        /// The request failed for a reason unrelated to Transom.
        RefusedOtherwise = "refusedOtherwise",
    }
}

/// Requests, and how many of them had each outcome. A request can have several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "RequestCounts")]
pub struct OutcomeCounts {
    /// Requests that Transom reviewed, or should have reviewed.
    pub requests: u64,
    #[serde(flatten, serialize_with = "by_outcome")]
    #[schemars(schema_with = "counts_by::<RequestOutcome>")]
    outcomes: [u64; RequestOutcome::ALL.len()],
}

fn by_outcome<S: Serializer>(
    counts: &[u64; RequestOutcome::ALL.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(RequestOutcome::ALL.map(RequestOutcome::as_str).iter().zip(counts))
}

impl std::iter::Sum for OutcomeCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(OutcomeCounts::default(), |mut all, more| {
            all.add(&more);
            all
        })
    }
}

impl OutcomeCounts {
    /// How many had this outcome.
    pub fn of(&self, outcome: RequestOutcome) -> u64 {
        self.outcomes.get(outcome as usize).copied().unwrap_or_default()
    }

    /// Whether there is anything to report.
    pub fn is_relevant(&self) -> bool {
        self.outcomes.iter().any(|count| *count > 0)
    }

    /// How many were denied, or would have been.
    pub fn denials(&self) -> u64 {
        self.of(RequestOutcome::Denied) + self.of(RequestOutcome::WouldDeny)
    }

    /// How many were changed, or would have been.
    pub fn changes(&self) -> u64 {
        self.of(RequestOutcome::Patched) + self.of(RequestOutcome::WouldPatch)
    }

    /// How many Transom did not answer.
    pub fn unanswered(&self) -> u64 {
        self.of(RequestOutcome::FailedOpen) + self.of(RequestOutcome::FailedClosed)
    }

    /// Counts a request once for each of its outcomes.
    pub fn count(&mut self, outcomes: impl Iterator<Item = RequestOutcome>) {
        self.requests += 1;
        for outcome in outcomes {
            if let Some(count) = self.outcomes.get_mut(outcome as usize) {
                *count += 1;
            }
        }
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &OutcomeCounts) {
        self.requests += other.requests;
        for (count, more) in self.outcomes.iter_mut().zip(other.outcomes) {
            *count += more;
        }
    }
}
