//! For owners of kinds that are not evaluated: the one object that represents all similar ones. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::model::objects::workload::Kind;

/// The maximum number of objects that represent others. Beyond it, all of them are found again.
const MOST: usize = 50_000;

/// The objects that represent similar ones.
#[derive(Debug, Default)]
pub struct Representatives {
    by_likeness: HashMap<u64, Representative>,
    /// What an object represents, by its uid.
    likeness: HashMap<Box<str>, u64>,
}

#[derive(Debug)]
struct Representative {
    uid: Box<str>,
    kind: Kind,
    namespace: Arc<str>,
    /// The last pass that saw it.
    pass: u64,
}

/// Whether an object is the one to evaluate among similar ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Represents {
    pub is_representative: bool,
    /// It represented others before, which must be read again.
    pub has_freed: bool,
}

impl Represents {
    /// An answer from its two parts.
    pub fn of(is_representative: bool, has_freed: bool) -> Self {
        Represents {
            is_representative,
            has_freed,
        }
    }
}

impl Representatives {
    /// Records an object; the first one of its likeness represents the others.
    pub fn record(
        &mut self,
        like: u64,
        kind: Kind,
        namespace: &Arc<str>,
        uid: &str,
        pass: u64,
    ) -> Represents {
        let is_other = self.likeness.get(uid).is_some_and(|before| *before != like);
        let has_freed = is_other && self.remove(uid);
        if self.by_likeness.len() >= MOST {
            self.by_likeness.clear();
            self.likeness.clear();
        }
        let one = self.by_likeness.entry(like).or_insert_with(|| Representative {
            uid: uid.into(),
            kind,
            namespace: Arc::clone(namespace),
            pass,
        });
        let is_representative = &*one.uid == uid;
        if is_representative {
            one.pass = pass;
            self.likeness.insert(uid.into(), like);
        }
        Represents::of(is_representative, has_freed)
    }

    /// An object no longer represents others; returns whether it did.
    pub fn remove(&mut self, uid: &str) -> bool {
        let like = self.likeness.remove(uid);
        like.is_some_and(|like| self.by_likeness.remove(&like).is_some())
    }

    /// Removes the objects of a kind that a complete pass did not see; returns their namespaces.
    pub fn end_pass(&mut self, kind: Kind, pass: u64) -> BTreeSet<String> {
        let gone = self.by_likeness.values();
        let gone = gone.filter(|one| one.kind == kind && one.pass < pass);
        let gone: Vec<(Box<str>, String)> = gone
            .map(|one| (one.uid.clone(), one.namespace.to_string()))
            .collect();
        let freed = gone.into_iter().filter(|(uid, _)| self.remove(uid));
        freed.map(|(_, namespace)| namespace).collect()
    }
}
