//! What is wrong with a custom resource: where, and in words. Finding it is the business of others.

use std::fmt::Write as _;

use crate::manifest::NodeStep;
use crate::model::syntax::text::cut;

/// The most problems in one message.
pub const MOST_PROBLEMS: usize = 10;
/// The longest text of each of several problems, in bytes.
const LONGEST_OF_MANY: usize = 300;
/// What an object as a whole is called in a problem.
pub const WHOLE: &str = "the policy";
/// Room for "; and 12345 more".
const AND_MORE: usize = 20;

/// A step to a place in the object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FieldStep {
    /// A field, or a key of a map.
    Key(String),
    /// An item of a list.
    Index(usize),
}

impl FieldStep {
    /// The same for [`Document::locate`](crate::manifest::Document::locate).
    pub fn step(&self) -> NodeStep<'_> {
        match self {
            FieldStep::Key(key) => NodeStep::Key(key),
            FieldStep::Index(index) => NodeStep::Index(*index),
        }
    }
}

/// The place that these steps lead to; digits are the index of an item.
pub fn place(steps: &[&str]) -> Vec<FieldStep> {
    let place = |step: &&str| {
        step.parse()
            .map_or_else(|_| FieldStep::Key((*step).to_owned()), FieldStep::Index)
    };
    steps.iter().map(place).collect()
}

/// A field path as the API server prints it: `spec.pools[0].build`; keys that may contain dots are in brackets.
pub fn spell(place: &[FieldStep]) -> String {
    let mut text = String::new();
    for step in place {
        match step {
            FieldStep::Index(index) => _ = write!(text, "[{index}]"),
            FieldStep::Key(key) if key.contains(['.', '/', ' ', '[', ']']) => _ = write!(text, "[{key}]"),
            FieldStep::Key(key) if text.is_empty() => text.push_str(key),
            FieldStep::Key(key) => _ = write!(text, ".{key}"),
        }
    }
    if text.is_empty() { WHOLE.to_owned() } else { text }
}

/// Why an object cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldError {
    pub path: Vec<FieldStep>,
    /// What is wrong, where, and what to write instead.
    pub message: String,
}

impl FieldError {
    /// A problem with the value at `path`; the message begins with the path.
    pub fn at(path: Vec<FieldStep>, what: &str) -> Self {
        let message = format!("{}: {what}", spell(&path));
        FieldError { path, message }
    }
}

/// Problems as one line of at most so many bytes: all that fit, ten at most, and how many more there are.
pub fn in_one_line(problems: &[impl AsRef<str>], room: usize) -> String {
    if let [only] = problems {
        return cut(only.as_ref(), room).into_owned();
    }
    let mut line = format!("{} problems:", problems.len());
    for (i, problem) in problems.iter().enumerate() {
        let comma = if i == 0 { "" } else { ";" };
        let next = format!("{comma} ({}) {}", i + 1, cut(problem.as_ref(), LONGEST_OF_MANY));
        if i == MOST_PROBLEMS || line.len() + next.len() + AND_MORE > room {
            let _ = write!(line, "{comma} and {} more", problems.len() - i);
            break;
        }
        line.push_str(&next);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_spelt_as_the_api_server_does_it() {
        let labels = [
            place(&["spec", "pools", "1", "labels"]),
            vec![FieldStep::Key("a.b/c".into())],
        ]
        .concat();
        assert_eq!(spell(&labels), "spec.pools[1].labels[a.b/c]");
        assert_eq!(spell(&[]), "the policy");
    }

    #[test]
    fn problems_are_reported_as_far_as_there_is_room() {
        let problems: Vec<String> = (0..12).map(|i| format!("field{i}: no good")).collect();
        assert_eq!(in_one_line(&problems[..1], 500), "field0: no good");
        assert_eq!(
            in_one_line(&problems[..2], 500),
            "2 problems: (1) field0: no good; (2) field1: no good"
        );
        let all = in_one_line(&problems, 500);
        assert!(
            all.ends_with("(10) field9: no good; and 2 more") && all.len() <= 500,
            "{all}"
        );
        let few = in_one_line(&problems, 90);
        assert!(
            few.starts_with("12 problems: (1) field0: no good; (2)") && few.len() <= 90,
            "{few}"
        );
        let long: Vec<String> = (0..40).map(|_| "ü".repeat(5_000)).collect();
        assert!(in_one_line(&long, 4_000).len() <= 4_000);
        assert!(in_one_line(&long[..1], 400).len() <= 400);
    }
}
