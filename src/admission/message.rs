//! Words: a finding as one line, a denial as a list, warnings within what the API server passes on.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::engine::Inspection;
use crate::model::path::Path;
use crate::model::policy::Action;
use crate::model::severity::Class;
use crate::model::subject::Subject;
use crate::model::text::{cut_middle, one_line};
use crate::model::workload::Kind;
use crate::rules::Finding;

use super::response::{Cause, Denial};

/// The longest warning, in characters. The API server cuts at 256 when there are many.
const WARNING: usize = 250;
/// All warnings together, in characters. Beyond 4,096 the API server cuts.
const WARNINGS: usize = 4000;
/// The longest denial message, in bytes. A person reads no more, and a header or an event holds no more.
const MESSAGE: usize = 64 * 1024;
/// The most causes of a denial.
const CAUSES: usize = 200;

/// A finding as one line: where, what, what to do, and what it is called.
pub fn line(finding: &Finding) -> String {
    let line = format!(
        "{}: {}; {} [{} {}]",
        finding.path.named(),
        finding.message,
        finding.remedy,
        finding.rule.id,
        finding.rule.name
    );
    one_line(&line).into_owned()
}

/// The refusal of an object, with every open finding that is more than advice.
pub fn denial(subject: &Subject<'_>, inspection: &Inspection, is_update: bool) -> Denial {
    let shown = || inspection.open().filter(|finding| finding.action >= Action::Warn);
    let count = shown().count();
    let problems = if count == 1 {
        "1 problem"
    } else {
        &format!("{count} problems")
    };
    let mut message = format!("{problems} with this {} for Windows:", subject.kind);
    let mut said = 0;
    for finding in shown() {
        let line = line(finding);
        if message.len() + line.len() > MESSAGE {
            break;
        }
        let mild = if finding.action == Action::Deny {
            ""
        } else {
            "(warning) "
        };
        message.push('\n');
        message.push_str(mild);
        message.push_str(&line);
        said += 1;
    }
    if said < count {
        let _ = write!(
            message,
            "\nand {} more; transom check shows them all",
            count - said
        );
    }
    if is_update && subject.kind.has_immutable_template() {
        let _ = write!(
            message,
            "\nthe template of a stored {} cannot be changed: delete it and create it again",
            subject.kind
        );
    }
    Denial {
        code: 403,
        reason: "Forbidden",
        message,
        causes: shown().take(CAUSES).map(cause).collect(),
    }
}

/// Adds why the object is judged as its author's, and what to do where a controller made it.
pub fn owner_is_not_trusted(denial: &mut Denial, subject: &Subject<'_>) {
    if let Some(owner) = subject.owner_kind() {
        let _ = write!(
            denial.message,
            "\nthat it belongs to a {owner} counts for nothing: the requester is not known as the controller of {owner}s; \
             if it is that, add its user name to spec.controllers of the WindowsPodPolicy"
        );
    }
}

fn cause(finding: &Finding) -> Cause {
    let forbidden = matches!(finding.class, Class::Api | Class::Ignored | Class::Admit);
    Cause {
        reason: if forbidden {
            "FieldValueForbidden"
        } else {
            "FieldValueInvalid"
        },
        message: one_line(&format!(
            "{}; {} [{} {}]",
            finding.message, finding.remedy, finding.rule.id, finding.rule.name
        ))
        .into_owned(),
        field: one_line(&finding.path.to_string()).into_owned(),
    }
}

/// The warnings of an object that passes: errors first, within the API server's limits, and how many did not fit.
pub fn warnings(inspection: &Inspection) -> Vec<String> {
    let lines = inspection
        .open()
        .filter(|finding| finding.action == Action::Warn)
        .map(line);
    fit(lines.map(|line| format!("transom: {line}")))
}

/// What repair took out, as a warning.
pub fn repaired(inspection: &Inspection, kind: Kind) -> Option<String> {
    if inspection.repaired.is_empty() {
        return None;
    }
    let paths: Vec<String> = inspection.repaired.iter().map(Path::named).collect();
    let when = if kind == Kind::Pod {
        "took out of this Windows pod what Windows ignores".to_owned()
    } else {
        format!("the pods of this {kind} will lose what Windows ignores")
    };
    let text = format!("transom: {when}: {}", paths.join(", "));
    let mut fitted = fit(std::iter::once(text));
    fitted.pop()
}

fn fit(lines: impl Iterator<Item = String>) -> Vec<String> {
    let (mut fitted, mut used, mut more) = (Vec::new(), 0, 0_usize);
    for line in lines {
        let line = shorten(&one_line(&line)).into_owned();
        let length = line.chars().count();
        if used + length > WARNINGS {
            more += 1;
            continue;
        }
        used += length;
        fitted.push(line);
    }
    if more > 0 {
        fitted.push(format!("transom: and {more} more"));
    }
    fitted
}

/// Cuts a warning to its limit, out of the middle where it ends with the rule's name: that is what a user looks up.
fn shorten(line: &str) -> Cow<'_, str> {
    let rule = line
        .rfind(" [TSM")
        .and_then(|at| line.get(at..))
        .unwrap_or_default();
    cut_middle(line, WARNING, rule.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_stay_within_what_the_api_server_passes_on() {
        let fitted = fit((0..100).map(|i| format!("{i}\t{}", "x".repeat(300))));
        assert!(
            fitted
                .iter()
                .all(|line| line.chars().count() <= WARNING && !line.contains('\t'))
        );
        assert!(fitted.iter().map(|line| line.chars().count()).sum::<usize>() <= WARNINGS + 30);
        assert_eq!(fitted.last().map(String::as_str), Some("transom: and 84 more"));
    }

    #[test]
    fn a_warning_that_is_cut_keeps_the_name_of_its_rule() {
        let fitted = fit(std::iter::once(format!(
            "{} [TSM204 run-as-user]",
            "x".repeat(300)
        )));
        assert!(fitted[0].ends_with("x… [TSM204 run-as-user]"), "{fitted:?}");
        assert_eq!(fitted[0].chars().count(), WARNING);
    }
}
