//! Known PersistentVolumeClaims. Files can contain several claims with one name, in examples for example: the claim that a pod
//! means is the nearest one.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The source an object was read from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InputSource {
    /// The name of the file.
    pub name: String,
    /// Whether it only describes the cluster.
    pub is_fact: bool,
}

/// The source of an object; `None` for an object of a cluster.
pub type ObjectSource = Option<Arc<InputSource>>;

/// How near an object is to another one that it names, the nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Nearness {
    /// In the same file, or in the same cluster.
    SameFile,
    SameFolder,
    /// One of the two describes the cluster.
    Cluster,
}

impl InputSource {
    fn folder(&self) -> &str {
        self.name
            .rfind(['/', '\\'])
            .map_or("", |end| self.name.get(..end).unwrap_or_default())
    }
}

/// How near two objects are; `None` if the name of one does not mean the other.
pub fn nearness(one: &ObjectSource, other: &ObjectSource) -> Option<Nearness> {
    match (one, other) {
        (None, None) => Some(Nearness::SameFile),
        (None, _) | (_, None) => Some(Nearness::Cluster),
        (Some(one), Some(other)) if one.name == other.name => Some(Nearness::SameFile),
        (Some(one), Some(other)) if one.folder() == other.folder() => Some(Nearness::SameFolder),
        (Some(one), Some(other)) => (one.is_fact || other.is_fact).then_some(Nearness::Cluster),
    }
}

/// The volume mode of a claim that a pod names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimMode {
    /// No claim of this name is known.
    Unknown,
    Filesystem,
    Block,
    /// Several claims of this name are equally near, and their modes differ.
    Ambiguous,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KnownClaim {
    source: ObjectSource,
    is_block: bool,
    /// The volume that it names.
    volume: Option<String>,
}

/// The known claims by namespace and name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownClaims(BTreeMap<(String, String), Vec<KnownClaim>>);

impl KnownClaims {
    /// Adds a claim, and the volume that it names.
    pub fn add(
        &mut self,
        (namespace, name): (&str, &str),
        source: ObjectSource,
        is_block: bool,
        volume: Option<&str>,
    ) {
        let known = self.0.entry((namespace.to_owned(), name.to_owned())).or_default();
        known.push(KnownClaim {
            source,
            is_block,
            volume: volume.filter(|name| !name.is_empty()).map(str::to_owned),
        });
    }

    /// The namespaces and names of the claims that name a volume.
    pub fn of_volume(&self, volume: &str, source: &ObjectSource) -> impl Iterator<Item = (&str, &str)> {
        let names = move |claim: &KnownClaim| {
            claim.volume.as_deref() == Some(volume) && nearness(&claim.source, source).is_some()
        };
        let of_volume = self.0.iter().filter(move |(_, known)| known.iter().any(names));
        of_volume.map(|((namespace, name), _)| (namespace.as_str(), name.as_str()))
    }

    /// The mode of the claim that an object means by a name.
    pub fn mode(&self, namespace: &str, name: &str, from: &ObjectSource) -> ClaimMode {
        let nearest = self.nearest(namespace, name, from);
        let Some(first) = nearest.first() else {
            return ClaimMode::Unknown;
        };
        if nearest.iter().any(|claim| claim.is_block != first.is_block) {
            ClaimMode::Ambiguous
        } else if first.is_block {
            ClaimMode::Block
        } else {
            ClaimMode::Filesystem
        }
    }

    /// Whether an object means this claim by its name.
    pub fn is_meant(&self, namespace: &str, name: &str, from: &ObjectSource, claim: &ObjectSource) -> bool {
        let nearest = self.nearest(namespace, name, from);
        nearest.iter().any(|known| known.source == *claim)
            && self.mode(namespace, name, from) != ClaimMode::Ambiguous
    }

    fn nearest(&self, namespace: &str, name: &str, from: &ObjectSource) -> Vec<&KnownClaim> {
        // Most clusters and files have none: then nothing is allocated.
        if self.0.is_empty() {
            return Vec::new();
        }
        let known = self.0.get(&(namespace.to_owned(), name.to_owned()));
        let reachable = || {
            let known = known.into_iter().flatten();
            known.filter_map(|claim| Some((nearness(from, &claim.source)?, claim)))
        };
        let least = reachable().map(|(nearness, _)| nearness).min();
        let nearest = reachable().filter(|(nearness, _)| Some(*nearness) == least);
        nearest.map(|(_, claim)| claim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str) -> Arc<InputSource> {
        Arc::new(InputSource {
            name: name.to_owned(),
            is_fact: name.starts_with("cluster"),
        })
    }

    #[test]
    fn the_nearest_claim_is_meant_and_of_several_none() {
        let mut claims = KnownClaims::default();
        let mut add = |file: &str, is_block| claims.add(("shop", "data"), Some(source(file)), is_block, None);
        add("a/own.yaml", false);
        add("a/other.yaml", true);
        add("b/claim.yaml", true);
        add("c/one.yaml", true);
        add("c/two.yaml", false);
        add("cluster/claims.yaml", true);
        for (pod, mode) in [
            ("a/own.yaml", ClaimMode::Filesystem),
            ("a/other.yaml", ClaimMode::Block),
            ("a/pod.yaml", ClaimMode::Ambiguous),
            ("b/pod.yaml", ClaimMode::Block),
            ("c/pod.yaml", ClaimMode::Ambiguous),
            ("d/pod.yaml", ClaimMode::Block),
        ] {
            assert_eq!(claims.mode("shop", "data", &Some(source(pod))), mode, "{pod}");
        }
        assert_eq!(
            claims.mode("db", "data", &Some(source("b/pod.yaml"))),
            ClaimMode::Unknown
        );
        let is_meant = |pod: &str, claim: &str| {
            claims.is_meant("shop", "data", &Some(source(pod)), &Some(source(claim)))
        };
        assert!(is_meant("b/pod.yaml", "b/claim.yaml"));
        assert!(!is_meant("b/pod.yaml", "a/other.yaml"));
        assert!(!is_meant("c/pod.yaml", "c/one.yaml"));
    }

    #[test]
    fn a_cluster_has_one_source() {
        let mut claims = KnownClaims::default();
        claims.add(("shop", "data"), None, true, Some("pv-1"));
        assert_eq!(claims.mode("shop", "data", &None), ClaimMode::Block);
        let claims_of = |volume: &str| claims.of_volume(volume, &None).collect::<Vec<_>>();
        assert_eq!(claims_of("pv-1"), [("shop", "data")]);
        assert_eq!(claims_of("pv-2"), []);
    }
}
