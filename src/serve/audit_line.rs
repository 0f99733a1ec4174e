//! The audit line: one event per review, with target `audit`; at level debug if the review was allowed
//! without findings.

use std::fmt;

use crate::admission::{AuditRecord, ReviewLabels};
use crate::model::windows::os::Verdict;

/// Writes the log line of a review.
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

/// The maximum number of rules in a line.
const MOST_RULES: usize = 100;

/// The first entries, each once, separated by commas: one that occurs several times with its number, as in `host-pid:2`.
struct CommaJoined<'w>(&'w [&'static str]);

impl fmt::Display for CommaJoined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for word in self.0 {
            let known = counts.iter().position(|(known, _)| known == word);
            if let Some((_, count)) = known.and_then(|at| counts.get_mut(at)) {
                *count += 1;
            } else if counts.len() < MOST_RULES {
                counts.push((*word, 1));
            }
        }
        for (index, (word, count)) in counts.into_iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            f.write_str(word)?;
            if count > 1 {
                write!(f, ":{count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_named_once_with_the_number_of_its_findings() {
        let text = |rules: &[&'static str]| CommaJoined(rules).to_string();
        assert_eq!(
            text(&[
                "host-pid",
                "run-as-user",
                "run-as-user",
                "host-pid",
                "run-as-user"
            ]),
            "host-pid:2,run-as-user:3"
        );
        assert_eq!(text(&["host-pid"]), "host-pid");
        let many: Vec<&'static str> = crate::rules::catalogue().map(|rule| rule.name).collect();
        assert_eq!(text(&many).split(',').count(), MOST_RULES.min(many.len()));
    }
}
