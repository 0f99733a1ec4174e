//! Findings: one rule, firing at one place of one object; and the two scales that weigh them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::edit::Edit;
use super::path::Path;
use super::policy::Action;
use crate::rules::Rule;

/// How bad it is, for whoever wrote the object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Best practice; nothing breaks today.
    Advice,
    /// Runs, but not as written; or will probably end on the wrong node.
    Warning,
    /// Will not run, or does without something that the author asked for.
    Error,
}

impl Severity {
    /// The name in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Advice => "advice",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who finds out, and when, if nobody says anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// The API server refuses it while `spec.os.name` is `windows`; otherwise it is ignored in silence.
    Api,
    /// The API server refuses it whatever `spec.os.name` says.
    ApiAlways,
    /// The kubelet rejects the pod at admission.
    Admit,
    /// It fails or hangs at run time.
    Run,
    /// It is ignored in silence.
    Ignored,
    /// It works; it could be better, or may go wrong elsewhere.
    BestPractice,
}

impl Class {
    /// The name in documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Api => "refused by the API server on a pod whose spec.os.name is windows, else ignored",
            Class::ApiAlways => "always refused by the API server",
            Class::Admit => "rejected by the kubelet",
            Class::Run => "fails or hangs at run time",
            Class::Ignored => "silently ignored",
            Class::BestPractice => "best practice",
        }
    }
}

/// What kind of admission edit resolves a finding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolver {
    /// An edit that makes the pod land where it can run.
    Placement,
    /// An edit that takes an inert field out.
    Repair,
}

/// One rule, firing at one place of one object.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// The rule's severity, or less where the case is milder.
    pub severity: Severity,
    /// The rule's class, or the one that fits this case.
    pub class: Class,
    /// Where.
    pub path: Path,
    /// What is wrong: lower case, no full stop.
    pub message: Cow<'static, str>,
    /// What to do about it: lower case, no full stop.
    pub remedy: Cow<'static, str>,
    /// An edit that makes the rule silent, where one is safe.
    pub edit: Option<Edit>,
    /// What makes this finding go away in admission, where something does.
    pub resolved_by: Option<Resolver>,
    /// What the finding does: set by the engine from the policy; `Off` until then.
    pub action: Action,
    /// What it would do if `validation` were Deny.
    pub wanted: Action,
}

impl Finding {
    /// A finding with the rule's own words.
    pub fn new(rule: &'static Rule, path: Path) -> Self {
        Finding {
            rule,
            severity: rule.severity,
            class: rule.class,
            path,
            message: Cow::Borrowed(rule.summary),
            remedy: Cow::Borrowed(rule.remedy),
            edit: None,
            resolved_by: None,
            action: Action::Off,
            wanted: Action::Off,
        }
    }

    /// Says it more precisely than the rule does.
    pub fn says(&mut self, message: impl Into<Cow<'static, str>>) -> &mut Self {
        self.message = tidy(message.into());
        self
    }

    /// Gives a remedy that fits this case.
    pub fn remedy(&mut self, remedy: impl Into<Cow<'static, str>>) -> &mut Self {
        self.remedy = tidy(remedy.into());
        self
    }

    /// Weighs this case differently from the rule.
    pub fn severity(&mut self, severity: Severity) -> &mut Self {
        self.severity = severity;
        self
    }

    /// Puts this case in another class than the rule's.
    pub fn class(&mut self, class: Class) -> &mut Self {
        self.class = class;
        self
    }

    /// Attaches the edit that takes the field away.
    pub fn removable(&mut self) -> &mut Self {
        self.edit = Some(Edit::Remove(self.path.clone()));
        self
    }

    /// What this finding is, so that it can be recognised in another version of the object:
    /// the rule and the path with names, never indexes.
    pub fn identity(&self) -> (&'static str, String) {
        (self.rule.id, self.path.named())
    }

    /// Whether no edit of admission makes it go away.
    pub fn is_open(&self) -> bool {
        self.resolved_by.is_none()
    }
}

/// What a user reads is one line of reasonable length, whatever values of the object it quotes.
fn tidy(text: Cow<'static, str>) -> Cow<'static, str> {
    const LONGEST: usize = 400;
    if text.len() <= LONGEST && !text.chars().any(char::is_control) {
        return text;
    }
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut tidied: String = text.chars().take(LONGEST).map(clean).collect();
    if text.chars().nth(LONGEST).is_some() {
        tidied.push('…');
    }
    tidied.into()
}
