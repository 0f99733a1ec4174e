//! Findings that an object has in several containers.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::model::objects::pod::ContainerList;
use crate::model::syntax::path::Segment;
use crate::rules::Finding;

/// The findings of an object, where the same finding in several containers is one.
pub(super) struct Folded<'f> {
    /// By the index of the first: the names of the containers of the others.
    others: HashMap<usize, Vec<&'f str>>,
    /// The indexes of the others.
    hidden: HashSet<usize>,
}

impl<'f> Folded<'f> {
    /// Folds the findings of one object.
    pub fn of(findings: impl Iterator<Item = &'f Finding>) -> Self {
        let mut first = HashMap::new();
        let (mut others, mut hidden) = (HashMap::<usize, Vec<&str>>::new(), HashSet::new());
        for (at, finding) in findings.enumerate() {
            let Some((container, below)) = container_of(finding.path.segments()) else {
                continue;
            };
            let key = (
                finding.rule.id,
                finding.severity,
                (finding.action, finding.resolved_by),
                &finding.message,
                &finding.remedy,
                below,
            );
            match first.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(at),
                Entry::Occupied(entry) => {
                    others.entry(*entry.get()).or_default().push(container);
                    hidden.insert(at);
                }
            }
        }
        Folded { others, hidden }
    }

    /// The other containers with the same finding; `None` if it is one of them.
    pub fn others(&self, at: usize) -> Option<Vec<&'f str>> {
        (!self.hidden.contains(&at)).then(|| self.others.get(&at).cloned().unwrap_or_default())
    }
}

/// The name of the container of a path, and the path below it.
fn container_of(segments: &[Segment]) -> Option<(&str, &[Segment])> {
    let at = segments.windows(2).position(|pair| {
        matches!(pair, [Segment::Field(list), Segment::Item(..)]
            if ContainerList::ALL.iter().any(|known| known.field() == *list))
    })?;
    match segments.get(at + 1) {
        Some(Segment::Item(_, name)) => Some((name.as_deref().unwrap_or_default(), segments.get(at + 2..)?)),
        _ => None,
    }
}
