//! Evaluates the stored objects of a cluster one at a time, for every command that does so: each top owner once, one of
//! several equal children of another owner, and the objects that cannot be read. Pure.

use std::collections::HashSet;
use std::hash::RandomState;

use super::context::EvalContext;
use super::dedup::{DedupKey, dedup_key, dedup_key_of_owned};
use super::evaluate::{Evaluated, evaluate_object, evaluate_owned_pod};
use super::owner_templates::OwnerTemplates;
use super::report::ScanGap;
use super::result::OwnerResult;
use crate::model::objects::object::{Object, ObjectError};
use crate::model::objects::workload::Kind;
use crate::model::syntax::json::at;
use crate::model::syntax::text::cut;

/// How many unreadable objects are listed by name.
const NAMED: usize = 20;
/// The maximum length of a reason, in bytes.
const LONGEST_REASON: usize = 300;

/// What is remembered of the objects that were evaluated.
#[derive(Debug, Default)]
pub struct StoredEvaluations {
    /// The groups of equal children of which one was evaluated, as hashes.
    seen: HashSet<u64>,
    hashes: RandomState,
    templates: OwnerTemplates,
}

impl StoredEvaluations {
    /// Records an object, whether it is evaluated or not. Owners must come before their children.
    pub fn record(&mut self, eval_context: &EvalContext<'_>, subject: &Object<'_>) {
        self.templates.record(eval_context, subject);
    }

    /// Evaluates an object; `None` if there is nothing to report about it, or if it equals one that was evaluated.
    ///
    /// # Errors
    /// If the object does not match its kind.
    pub fn evaluate(
        &mut self,
        eval_context: &EvalContext<'_>,
        subject: &Object<'_>,
        json: &str,
    ) -> Result<Option<OwnerResult>, ObjectError> {
        let difference = self.templates.compare(eval_context, subject);
        let key = match difference {
            Some(_) => dedup_key_of_owned(subject, &self.hashes),
            None => dedup_key(subject, &self.hashes),
        };
        let is_seen = match key {
            DedupKey::None => false,
            DedupKey::AtZero => true,
            DedupKey::Of(number) => !self.seen.insert(number),
        };
        if is_seen {
            return Ok(None);
        }
        let evaluated = match &difference {
            Some(difference) => evaluate_owned_pod(eval_context, subject, json, difference)?,
            None => evaluate_object(eval_context, subject, json)?,
        };
        Ok(match evaluated {
            Evaluated::Owner(owner_result) => Some(*owner_result),
            Evaluated::Owned(..) | Evaluated::Passed(_) => None,
        })
    }
}

/// The objects that could not be read.
#[derive(Debug, Default)]
pub struct UnreadableObjects {
    count: usize,
    gaps: Vec<ScanGap>,
}

impl UnreadableObjects {
    /// Adds one, with the reason.
    pub fn add(&mut self, kind: Kind, json: &str, why: &ObjectError) {
        self.count += 1;
        if self.count > NAMED {
            return;
        }
        let field = |name: &str| -> String {
            let text = at(json, &["metadata", name]).unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        };
        self.gaps.push(ScanGap {
            resource: format!("{kind} {}/{}", field("namespace"), field("name")),
            reason: format!("it cannot be read: {}", cut(&why.to_string(), LONGEST_REASON)),
            remedy: Some(format!(
                "inspect it with kubectl get {} --output yaml, and correct it",
                kind.as_str().to_lowercase()
            )),
        });
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A gap for each of the first ones, and one for the others.
    pub fn into_gaps(self) -> Vec<ScanGap> {
        let mut gaps = self.gaps;
        let more = self.count.saturating_sub(NAMED);
        gaps.extend((more > 0).then(|| ScanGap {
            resource: format!("{more} more objects"),
            reason: "they cannot be read either".to_owned(),
            remedy: None,
        }));
        gaps
    }
}
