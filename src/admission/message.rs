//! Words: a finding as one line, a denial as a list, warnings within what the API server passes on.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use crate::engine::Inspection;
use crate::model::json::Escaped;
use crate::model::path::Path;
use crate::model::policy::Action;
use crate::model::severity::Class;
use crate::model::subject::Subject;
use crate::model::text::{OneLine, cut_middle, one_line};
use crate::model::workload::Kind;
use crate::rules::Finding;

/// The longest warning, in characters. The API server cuts at 256 when there are many.
const WARNING: usize = 250;
/// All warnings together, in characters. Beyond 4,096 the API server cuts.
const WARNINGS: usize = 4000;
/// The longest denial message, in bytes. A person reads no more, and a header or an event holds no more.
const MESSAGE: usize = 64 * 1024;
/// The most causes of a denial.
const CAUSES: usize = 200;

/// Which findings are of fields that another webhook added, and the words for it.
#[derive(Debug, Default)]
pub struct Added {
    /// Indexes into the findings, ascending.
    pub findings: Vec<usize>,
    /// What is said of each.
    pub words: String,
}

impl Added {
    /// The open findings of an inspection, each with what is added to its message.
    fn open<'s>(&'s self, inspection: &'s Inspection) -> impl Iterator<Item = Told<'s>> {
        (inspection.findings.iter().enumerate())
            .filter(|(_, finding)| finding.is_open())
            .map(|(index, finding)| Told {
                finding,
                added: match self.findings.binary_search(&index) {
                    Ok(_) => &self.words,
                    Err(_) => "",
                },
            })
    }
}

/// A finding in words: what, what to do, and what it is called. In alternate form, with where it is, as one line.
struct Told<'s> {
    finding: &'s Finding,
    added: &'s str,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { finding, added } = self;
        let is_whole = f.alternate();
        // What its author wrote stands in it.
        let f = &mut OneLine(f);
        if is_whole {
            write!(f, "{}: ", finding.path.by_name())?;
        }
        let Finding {
            message,
            remedy,
            rule,
            ..
        } = finding;
        write!(f, "{message}{added}; {remedy} [{} {}]", rule.id, rule.name)
    }
}

/// The refusal of an object, with every open finding that is more than advice.
#[derive(Debug)]
pub struct Refusal<'j> {
    /// The object.
    pub subject: &'j Subject<'j>,
    /// What was found in it.
    pub inspection: &'j Inspection,
    /// What of it another webhook added.
    pub added: Added,
    /// Whether the object is stored already.
    pub is_update: bool,
    /// Whether it is judged as its author's because the requester is not known as the controller of its owner.
    pub distrusts_owner: bool,
}

impl Refusal<'_> {
    fn shown(&self) -> impl Iterator<Item = Told<'_>> {
        let open = self.added.open(self.inspection);
        open.filter(|told| told.finding.action >= Action::Warn)
    }

    /// Writes the message that the user sees.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn write_message(&self, out: &mut Escaped<'_>) -> fmt::Result {
        let kind = self.subject.kind;
        let count = self.shown().count();
        let problems = if count == 1 { "problem" } else { "problems" };
        write!(out, "{count} {problems} with this {kind} for Windows:")?;
        let is_said = |told: &Told<'_>| {
            let mild = match told.finding.action {
                Action::Deny => "",
                _ => "(warning) ",
            };
            out.write_within(MESSAGE, format_args!("\n{mild}{told:#}"))
        };
        let said = self.shown().take_while(is_said).count();
        if said < count {
            let more = count - said;
            write!(out, "\nand {more} more; transom check shows them all")?;
        }
        if self.is_update && kind.has_immutable_template() {
            write!(
                out,
                "\nthe template of a stored {kind} cannot be changed: delete it and create it again"
            )?;
        }
        match self.subject.owner_kind() {
            Some(owner) if self.distrusts_owner => write!(
                out,
                "\nthat it belongs to a {owner} counts for nothing: the requester is not known as the controller of \
                 {owner}s; if it is that, add its user name to spec.controllers of the WindowsPodPolicy"
            ),
            _ => Ok(()),
        }
    }

    /// Writes the findings as causes, for machines: the items of a JSON array.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn write_causes(&self, out: &mut String) -> fmt::Result {
        for (index, told) in self.shown().take(CAUSES).enumerate() {
            let reason = match told.finding.class {
                Class::Api | Class::Ignored | Class::Admit => "FieldValueForbidden",
                _ => "FieldValueInvalid",
            };
            let comma = if index > 0 { "," } else { "" };
            write!(out, "{comma}{{\"reason\":\"{reason}\",\"message\":\"")?;
            write!(Escaped::new(out), "{told}")?;
            out.push_str("\",\"field\":\"");
            write!(OneLine(Escaped::new(out)), "{}", told.finding.path)?;
            out.push_str("\"}");
        }
        Ok(())
    }
}

/// The warnings of an object that passes: errors first, within the API server's limits, and how many did not fit.
pub fn warnings(inspection: &Inspection, added: &Added) -> Vec<String> {
    let lines = added
        .open(inspection)
        .filter(|told| told.finding.action == Action::Warn)
        .map(|told| format!("transom: {told:#}"));
    fit(lines)
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
