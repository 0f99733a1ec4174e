//! The known Windows nodes and pools that match a pod, and whether its images run there.

use std::cell::OnceCell;

use super::{KnownVersions, PodCx};
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::{Host, LABELS_OF_ONE_NODE};
use crate::model::nodes::node_affinity::Match;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, RELEASES};
use crate::rules::scheduling::Constraints;

/// Whether the images of a pod run on a host, by their builds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostFit {
    /// They do, or nothing shows that they do not.
    Right,
    /// One of the images does not.
    Wrong,
}

/// A node or pool that the selectors of a pod let it reach.
#[derive(Clone, Copy, Debug)]
pub struct Reached<'c> {
    /// The node or pool.
    pub host: &'c Host,
    /// Whether it is a pool that the policy declares.
    pub is_declared: bool,
    /// Whether the pod's images run there.
    pub fit: HostFit,
}

/// The images of a pod whose Windows versions are known.
pub struct ImageBuilds<'c> {
    known: Vec<&'c KnownVersions>,
    isolation: ContainerIsolation,
}

impl<'c> ImageBuilds<'c> {
    /// The images of a pod. None are known for HostProcess containers, which run on every build, nor with an unknown
    /// RuntimeClass.
    pub fn of(cx: &PodCx<'c>) -> Self {
        let isolation = cx.isolation();
        let mut known: Vec<&KnownVersions> = Vec::new();
        if isolation != ContainerIsolation::HostProcess && !cx.has_unknown_runtime_class() {
            known.extend(
                cx.containers()
                    .filter_map(|container| cx.image_versions(&container)),
            );
        }
        // Most containers of a pod have equal versions.
        known.dedup();
        ImageBuilds { known, isolation }
    }

    /// Whether the versions of none of the images are known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether all versions are certain: from a registry, or from a tag of Microsoft's repositories.
    pub fn are_certain(&self) -> bool {
        self.known.iter().all(|image| image.is_certain())
    }

    /// Whether the images run on a host of this build.
    pub fn fit(&self, host: Option<Build>) -> HostFit {
        let fails = |image: &&KnownVersions| host.is_some_and(|host| image.fail_on(host, self.isolation));
        if self.known.iter().any(fails) {
            HostFit::Wrong
        } else {
            HostFit::Right
        }
    }

    /// The builds of every release that can run all of the images, ascending.
    pub fn hosts(&self) -> Vec<Build> {
        let runs = |host: &Build| {
            self.known.iter().all(|image| {
                image.has_unversioned() || image.compatibility(*host, self.isolation) == Compatibility::Runs
            })
        };
        RELEASES
            .iter()
            .map(|release| release.build)
            .filter(runs)
            .collect()
    }

    /// The builds of the images, ascending.
    pub fn builds(&self) -> Vec<Build> {
        let mut all: Vec<Build> = self.known.iter().flat_map(|image| image.builds()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// What decides which of the known Windows nodes a pod can reach and run on.
pub struct Reach<'c> {
    facts: &'c Facts,
    /// The images of the pod whose Windows versions are known.
    pub images: ImageBuilds<'c>,
    constraints: Constraints<'c>,
    matched: OnceCell<Vec<Reached<'c>>>,
}

impl<'c> Reach<'c> {
    /// Of a pod as the scheduler, or the controller of its DaemonSet, evaluates it.
    pub fn of(cx: &PodCx<'c>) -> Self {
        let constraints = if cx.is_daemonset_template() {
            Constraints::of_daemon_set(cx.spec)
        } else {
            cx.constraints_with(cx.runtime_class())
        };
        Reach {
            facts: cx.facts,
            images: ImageBuilds::of(cx),
            constraints,
            matched: OnceCell::new(),
        }
    }

    /// What keeps the pod off nodes.
    pub fn constraints(&self) -> &Constraints<'c> {
        &self.constraints
    }

    /// Whether a node takes the pod, apart from taints that pass, and runs its images. If the builds of the images are
    /// unknown, every build does.
    pub fn runs_on(&self, host: &Host) -> bool {
        self.constraints.matches(host) == Match::Yes
            && self.constraints.tolerates_lasting(&host.taints)
            && self.images.fit(host.build) == HostFit::Right
    }

    /// The hosts that match the selectors of the pod and offer the extended resources that it requests. A pool with
    /// unknown labels matches unless one of its known labels contradicts.
    pub fn matched(&self) -> &[Reached<'c>] {
        self.matched.get_or_init(|| {
            let reached = |host: &'c Host, is_declared: bool| Reached {
                host,
                is_declared,
                fit: self.images.fit(host.build),
            };
            let matches = |host: &&'c Host| self.constraints.matches(*host) != Match::No;
            let mut hosts: Vec<Reached<'c>> = if self.constraints.name_any(&LABELS_OF_ONE_NODE) {
                let each = self.facts.hosts().iter().filter(matches);
                each.map(|host| reached(host, false)).collect()
            } else {
                let sorts = self.facts.sorts().filter(matches);
                sorts.map(|host| reached(host, false)).collect()
            };
            let declared = self.facts.pools.iter().filter(matches);
            hosts.extend(declared.map(|host| reached(host, true)));
            hosts
        })
    }
}
