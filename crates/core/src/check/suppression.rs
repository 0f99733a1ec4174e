//! Suppressions: findings that the author of a file accepts, by a comment, an annotation of the object, or a baseline.
//! They apply to `check` only: admission knows nothing but the exemptions of policies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;

use super::note::{CheckNote, NoteLevel, UnreadableInput};
use crate::manifest::{Directive, DirectiveScope, Position};
use crate::model::syntax::suggest::{date, nearest};
use crate::model::syntax::text::shown;
use crate::rules::{self, Finding, HOST_PID, RUN_AS_USER};

/// The annotation of an object that suppresses findings of it: one suppression on each line.
pub const SUPPRESS_ANNOTATION: &str = "transom.dev/suppress";
/// The directive of a comment that suppresses findings.
const DIRECTIVE: &str = "suppress";
/// The fields of a suppression.
const FIELDS: [&str; 2] = ["until", "reason"];

/// A suppression as it is written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suppression {
    /// The names of the rules.
    pub(super) rules: Vec<&'static str>,
    /// The last day on which it applies, in UTC.
    pub(super) until: Option<Date>,
    pub(super) reason: Option<String>,
    /// Its line; that of an annotation depends on the object.
    pub(super) line: usize,
    /// The lines that it applies to; `None`: the whole object.
    pub(super) scope: Option<DirectiveScope>,
}

/// The position of a suppression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SuppressedBy {
    /// In the manifest: a comment or an annotation.
    Manifest,
    /// In a baseline file.
    Baseline,
}

/// A finding that is suppressed.
#[derive(Clone, Debug)]
pub struct SuppressedFinding {
    pub finding: Finding,
    /// The position of its field, or of the nearest existing parent.
    pub position: Position,
    /// Whether a comment, an annotation or the baseline suppresses it.
    pub by: SuppressedBy,
    /// Its position, as in `deployment.yaml:12`; the name of the file for a baseline.
    pub place: String,
    /// The last day on which it applies.
    pub until: Option<Date>,
    /// The reason that the author gave.
    pub reason: Option<String>,
}

impl fmt::Display for SuppressedFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let Some(until) = self.until {
            write!(f, ", until {until}")?;
        }
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

/// The suppressions of the comments of one input. A file may have as many comments as findings, so that they are found
/// by line.
#[derive(Clone, Debug, Default)]
pub(super) struct CommentSuppressions {
    /// In the order of the text.
    pub all: Vec<Suppression>,
    /// The indexes of those about one line, by that line.
    by_line: HashMap<usize, Vec<usize>>,
    /// The indexes of those about a YAML document, by the line after its last one.
    by_document_end: BTreeMap<usize, Vec<usize>>,
}

impl CommentSuppressions {
    /// Reads the comments to Transom; those that are not suppressions are errors.
    pub fn read(source: &str, directives: Vec<Directive>, errors: &mut Vec<UnreadableInput>) -> Self {
        let mut read = CommentSuppressions::default();
        for suppression in Suppression::of_comments(source, directives, errors) {
            let index = read.all.len();
            match &suppression.scope {
                Some(DirectiveScope::Line(line) | DirectiveScope::Above(line)) => {
                    read.by_line.entry(*line).or_default().push(index);
                }
                Some(DirectiveScope::Document(lines)) => {
                    read.by_document_end.entry(lines.end).or_default().push(index);
                }
                None => {}
            }
            read.all.push(suppression);
        }
        read
    }

    /// Those that can apply to a field, in the order of the text. For `lines` see [`Suppression::covers`].
    pub fn candidates(&self, start: usize, lines: &[usize]) -> impl Iterator<Item = (usize, &Suppression)> {
        // Documents do not overlap.
        let of_document = self.by_document_end.range(start + 1..).next();
        let of_document = of_document.into_iter().flat_map(|(_, indexes)| indexes);
        let of_lines = lines.iter().chain([&start]);
        let of_lines = of_lines.flat_map(|line| self.by_line.get(line).into_iter().flatten());
        let indexes: BTreeSet<usize> = of_document.chain(of_lines).copied().collect();
        (indexes.into_iter()).filter_map(|index| Some((index, self.all.get(index)?)))
    }
}

impl Suppression {
    /// The suppressions of the comments of one input; every other comment to Transom is an error.
    fn of_comments(
        source: &str,
        directives: Vec<Directive>,
        errors: &mut Vec<UnreadableInput>,
    ) -> Vec<Suppression> {
        let mut found = Vec::new();
        for Directive { line, scope, text } in directives {
            let (name, rest) = text.split_once([' ', '\t']).unwrap_or((&text, ""));
            let parsed = if name == DIRECTIVE {
                Suppression::parse(rest).map_err(|why| format!("transom:suppress: {why}"))
            } else {
                Err(format!(
                    "there is no comment \"transom:{}\"; did you mean transom:suppress?",
                    shown(name)
                ))
            };
            match parsed {
                Ok(parsed) => found.push(Suppression {
                    line,
                    scope: Some(scope),
                    ..parsed
                }),
                Err(message) => errors.push(UnreadableInput::new(source, line, message)),
            }
        }
        found
    }

    /// Parses `run-as-user, TSM401 until=2027-01-31 reason="…"`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn parse(text: &str) -> Result<Suppression, String> {
        let mut parsed = Suppression::default();
        let (names, fields) = split(text)?;
        if names.trim().is_empty() {
            return Err(format!(
                "name the rules, as in {} or {}",
                RUN_AS_USER.name, RUN_AS_USER.id
            ));
        }
        for name in names.split(',').map(str::trim) {
            let rule = rules::find(name).ok_or_else(|| match rules::nearest(name) {
                _ if name.is_empty() => format!("a comma is too many: write {}, {}", RUN_AS_USER.name, HOST_PID.name),
                _ if name.contains([' ', '\t']) => {
                    format!(
                        "\"{}\" is not one rule: separate rules by commas, and put the reason into reason=\"…\"",
                        shown(name)
                    )
                }
                Some(near) => format!("there is no rule \"{}\"; did you mean {near}?", shown(name)),
                None => format!("there is no rule \"{}\"; transom rules lists them", shown(name)),
            })?;
            parsed.rules.push(rule.name);
        }
        for (key, value) in fields {
            let is_set = match key {
                "until" => parsed.until.is_some(),
                "reason" => parsed.reason.is_some(),
                _ => {
                    let hint = match nearest(key, FIELDS) {
                        Some(near) => format!("did you mean {near}?"),
                        None => format!("there are {}", FIELDS.join(", ")),
                    };
                    return Err(format!("there is no field \"{}\"; {hint}", shown(key)));
                }
            };
            if is_set {
                return Err(format!("{key} is given twice: remove one of them"));
            }
            if key == "until" {
                let until = date(&value).map_err(|why| format!("until={}: {why}", shown(&value)))?;
                parsed.until = Some(until);
            } else {
                parsed.reason = Some(value);
            }
        }
        Ok(parsed)
    }

    /// The index of the rule of a finding that it suppresses. For `start` and `lines` see [`Suppression::covers`].
    pub(super) fn matches(
        &self,
        finding: &Finding,
        today: Date,
        start: usize,
        lines: &[usize],
    ) -> Option<usize> {
        let rule = self.rules.iter().position(|rule| *rule == finding.rule.name)?;
        (!self.is_expired(today) && self.covers(start, lines)).then_some(rule)
    }

    fn is_expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| until < today)
    }

    /// Whether it applies to a field, from the lines of the object and of each parent of the field.
    fn covers(&self, start: usize, lines: &[usize]) -> bool {
        match &self.scope {
            None => true,
            Some(DirectiveScope::Document(range)) => range.contains(&start),
            Some(DirectiveScope::Above(line)) => *line == start || lines.contains(line),
            Some(DirectiveScope::Line(line)) => lines.contains(line),
        }
    }

    /// What to report about it: that it expired, or that a rule of it matched nothing.
    pub(super) fn notes(&self, source: &str, today: Date, is_used: impl Fn(usize) -> bool) -> Vec<CheckNote> {
        let note = |level, message| CheckNote::new(source, (self.line, 0), level, message);
        if let Some(until) = self.until.filter(|_| self.is_expired(today)) {
            let rules = self.rules.join(", ");
            let message = format!(
                "the suppression of {rules} ended on {until}, and its findings count again; fix them, or set a later date"
            );
            return vec![note(NoteLevel::Warning, message)];
        }
        let unused = self.rules.iter().enumerate().filter(|(rule, _)| !is_used(*rule));
        unused
            .map(|(_, rule)| {
                let message = format!("the suppression of {rule} matches no finding; remove it");
                note(NoteLevel::Note, message)
            })
            .collect()
    }
}

/// The fields of a suppression with their values.
type WrittenFields<'t> = Vec<(&'t str, String)>;

/// The names of the rules, and the fields with their values.
fn split(text: &str) -> Result<(&str, WrittenFields<'_>), String> {
    let equals = text.find('=').unwrap_or(text.len());
    let head = text.get(..equals).unwrap_or_default();
    let names = if equals == text.len() {
        text.len()
    } else {
        head.rfind([' ', '\t']).map_or(0, |space| space + 1)
    };
    let (names, mut rest) = text.split_at(names);
    let mut fields = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok((names, fields));
        }
        let Some((key, after)) = rest.split_once('=').filter(|(key, _)| !key.contains([' ', '\t'])) else {
            return Err(format!(
                "\"{}\" is not a field: rules come first, and a reason of several words is in quotes, as in reason=\"…\"",
                shown(rest.split_whitespace().next().unwrap_or_default())
            ));
        };
        let (value, after) = if let Some(quoted) = after.strip_prefix('"') {
            unquote(quoted).ok_or_else(|| format!("the quotes of {} are not closed", shown(key)))?
        } else {
            let end = after.find([' ', '\t']).unwrap_or(after.len());
            let (value, after) = after.split_at(end);
            (value.to_owned(), after)
        };
        fields.push((key, value));
        rest = after;
    }
}

/// The text up to the closing quote, and the rest; `\"` is a quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_suppression_names_rules_a_last_day_and_a_reason() {
        let parsed =
            Suppression::parse("run-as-user, TSM401 until=2027-01-31 reason=\"the \\\"old\\\" chart, a=b\"");
        let parsed = parsed.unwrap();
        assert_eq!(parsed.rules, ["run-as-user", "host-pid"]);
        assert_eq!(parsed.until, Some(date(2027, 1, 31)));
        assert_eq!(parsed.reason.as_deref(), Some("the \"old\" chart, a=b"));
        assert!(!parsed.is_expired(date(2027, 1, 31)) && parsed.is_expired(date(2027, 2, 1)));
        let short = Suppression::parse(" run-as-user").unwrap();
        assert_eq!((short.until, short.reason), (None, None));
    }

    #[test]
    fn an_error_names_the_nearest_that_can_be_used() {
        for (text, error) in [
            ("", "name the rules, as in run-as-user or TSM204"),
            ("until=2027-01-31", "name the rules, as in run-as-user or TSM204"),
            (
                "run-as-usr",
                "there is no rule \"run-as-usr\"; did you mean run-as-user?",
            ),
            (
                "everything-else",
                "there is no rule \"everything-else\"; transom rules lists them",
            ),
            (
                "run-as-user host-pid",
                "\"run-as-user host-pid\" is not one rule: separate rules by commas, and put the reason into reason=\"…\"",
            ),
            ("run-as-user,", "a comma is too many: write run-as-user, host-pid"),
            (
                "run-as-user untill=2027-01-31",
                "there is no field \"untill\"; did you mean until?",
            ),
            (
                "run-as-user until=2027-02-30",
                "until=2027-02-30: there is no such date; did you mean 2027-02-28?",
            ),
            (
                "run-as-user until=soon",
                "until=soon: write a date as in 2026-12-31",
            ),
            (
                "run-as-user until=2027-01-31 until=2027-01-31",
                "until is given twice: remove one of them",
            ),
            (
                "run-as-user reason=old chart",
                "\"chart\" is not a field: rules come first, and a reason of several words is in quotes, as in reason=\"…\"",
            ),
            ("run-as-user reason=\"old", "the quotes of reason are not closed"),
        ] {
            assert_eq!(Suppression::parse(text), Err(error.to_owned()), "{text}");
        }
    }
}
