//! Baselines: files with the findings that are known already, so that `check` reports only new ones.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::Checked;
use crate::rules::{self, Finding};

/// The schema of a baseline.
pub const BASELINE_SCHEMA: &str = "transom.dev/baseline/v1";

/// A baseline. People may have edited it, so the entries have any order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineFile {
    /// [`BASELINE_SCHEMA`].
    pub schema: String,
    pub findings: Vec<BaselineEntry>,
}

/// A known finding: object, rule and path.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[serde(deny_unknown_fields)]
pub struct BaselineEntry {
    /// The kind of the object.
    pub kind: String,
    /// Its namespace; empty if neither the object nor `--namespace` names one.
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    /// The name of the rule.
    pub rule: String,
    /// The field, with names of containers, volumes and ports instead of indexes.
    pub path: String,
}

impl BaselineEntry {
    fn of(checked: &Checked<'_>, finding: &Finding) -> Self {
        BaselineEntry {
            kind: checked.kind.as_str().to_owned(),
            namespace: checked.namespace.clone(),
            name: checked.name.clone(),
            rule: finding.rule.name.to_owned(),
            path: finding.path.named(),
        }
    }

    fn object(&self) -> BaselineKey {
        (self.kind.clone(), self.namespace.clone(), self.name.clone())
    }
}

type BaselineKey = (String, String, String);

/// The findings of a baseline.
#[derive(Debug, Default)]
pub struct Baseline {
    /// The name of its file.
    pub name: String,
    entries: Vec<BaselineEntry>,
    by_object: HashMap<BaselineKey, Vec<usize>>,
}

/// The entries of a baseline that are about checked objects, by index.
#[derive(Clone, Debug, Default)]
pub struct BaselineUse {
    seen: Vec<usize>,
    matched: Vec<usize>,
}

impl Baseline {
    /// The baseline of the file with this name.
    pub fn new(name: String, entries: Vec<BaselineEntry>) -> Self {
        let mut by_object: HashMap<BaselineKey, Vec<usize>> = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            by_object.entry(entry.object()).or_default().push(index);
        }
        Baseline {
            name,
            entries,
            by_object,
        }
    }

    /// The entries about an object, by index.
    pub(super) fn entries(&self, checked: &Checked<'_>) -> Vec<(usize, &BaselineEntry)> {
        let object = (
            checked.kind.as_str().to_owned(),
            checked.namespace.clone(),
            checked.name.clone(),
        );
        let indexes = self.by_object.get(&object).into_iter().flatten();
        indexes
            .filter_map(|index| Some((*index, self.entries.get(*index)?)))
            .collect()
    }

    /// The number of entries about checked objects that matched no finding.
    pub(super) fn unused(used: &BaselineUse) -> usize {
        let matched: BTreeSet<usize> = used.matched.iter().copied().collect();
        let seen: BTreeSet<usize> = used.seen.iter().copied().collect();
        seen.difference(&matched).count()
    }
}

impl BaselineUse {
    /// Records whether an object's finding is among the entries about the object, and returns it.
    pub(super) fn note(&mut self, entries: &[(usize, &BaselineEntry)], finding: &Finding) -> bool {
        let mut of_rule = entries
            .iter()
            .filter(|(_, entry)| entry.rule == finding.rule.name)
            .peekable();
        if of_rule.peek().is_none() {
            return false;
        }
        let path = finding.path.named();
        let found = of_rule.find(|(_, entry)| entry.path == path);
        self.matched.extend(found.map(|(index, _)| *index));
        found.is_some()
    }

    /// Records the entries about an object.
    pub(super) fn see(&mut self, entries: &[(usize, &BaselineEntry)]) {
        self.seen.extend(entries.iter().map(|(index, _)| *index));
    }

    /// Adds what was recorded for another object.
    pub(super) fn add(&mut self, other: &BaselineUse) {
        self.seen.extend(&other.seen);
        self.matched.extend(&other.matched);
    }
}

/// A baseline that is being written: sorted, so that it changes only where findings change.
#[derive(Debug, Default)]
pub struct BaselineWriter(BTreeSet<BaselineEntry>);

impl BaselineWriter {
    /// Adds findings of an object.
    pub fn add<'f>(&mut self, checked: &Checked<'_>, findings: impl Iterator<Item = &'f Finding>) {
        self.0
            .extend(findings.map(|finding| BaselineEntry::of(checked, finding)));
    }

    /// The number of findings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of the file.
    ///
    /// # Errors
    /// None that can occur: the types have only texts.
    pub fn finish(self) -> serde_json::Result<String> {
        let file = BaselineFile {
            schema: BASELINE_SCHEMA.to_owned(),
            findings: self.0.into_iter().collect(),
        };
        serde_json::to_string_pretty(&file).map(|json| json + "\n")
    }
}

/// Why a name is not the name of a rule, with the nearest one.
pub fn unknown_rule(name: &str) -> String {
    let near = rules::find(name)
        .map(|rule| rule.name)
        .or_else(|| rules::nearest(name));
    let hint = near.map_or_else(
        || "transom rules lists them".to_owned(),
        |near| format!("did you mean {near}?"),
    );
    format!("there is no rule \"{name}\"; {hint}")
}
