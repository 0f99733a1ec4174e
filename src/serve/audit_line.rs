//! The audit line: one event per review, with target `audit`; at level debug if the review was allowed
//! without findings.

use std::fmt;

use crate::admission::{AuditRecord, ReviewLabels};
use crate::model::os::Verdict;

/// Logs a review.
pub fn log(record: &AuditRecord) {
    let AuditRecord {
        labels:
            ReviewLabels {
                r#type,
                operation,
                kind,
                decision,
                dry_run,
            },
        uid,
        subresource,
        namespace,
        name,
        user,
        verdict,
        rules,
        annotations: _,
        warned: _,
        policy,
    } = record;
    // Keeps one list of fields: the level is a static part of an event.
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "audit",
                decision = %decision,
                "type" = %r#type,
                verdict = verdict.map(Verdict::as_str).map(display),
                operation = %operation,
                kind = %kind,
                subresource = Some(subresource.as_str()).filter(|it| !it.is_empty()),
                namespace,
                name,
                user,
                uid,
                dry_run,
                policy,
                rules = %CommaJoined(rules),
                evidence = record.annotation("evidence"),
                would_deny = record.annotation("would-deny"),
                would_patch = record.annotation("would-patch"),
                removed = record.annotation("removed"),
                withheld = record.annotation("withheld"),
                exempted = record.annotation("exempted"),
                not_evaluated = record.annotation("not-evaluated"),
                denied_by = record.annotation("denied-by"),
                images = record.annotation("images"),
                owner = record.annotation("owner"),
                owner_trusted = record.annotation("owner-trusted"),
                "review"
            )
        };
    }
    if record.is_noteworthy() {
        line!(info);
    } else {
        line!(debug);
    }
}

/// The maximum number of findings in a line.
const MOST_RULES: usize = 100;

/// The first entries, separated by commas.
struct CommaJoined<'w>(&'w [&'static str]);

impl fmt::Display for CommaJoined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().take(MOST_RULES).enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            f.write_str(word)?;
        }
        Ok(())
    }
}
