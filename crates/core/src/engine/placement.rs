//! Placement: the edits that make a Windows pod land on a node that can run it, and the node selector for Linux pods.

use super::pod_patch::{PodPatch, PoolTerm};
use crate::model::cluster::policy::PlacementField;
use crate::model::cluster::severity::Class;
use crate::model::nodes::node::{
    BETA_OS_LABEL, BUILD_LABEL, Labels, OS_LABEL, PRIVATE_IPV4_RESOURCE, RESTRICTED_BUILD_LABEL, Taint,
};
use crate::model::objects::pod::PodSpec;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::Path;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, compatibility};
use crate::model::windows::os::Os;
use crate::rules::Finding;
use crate::rules::placement::reach::{
    BuildNeed, build_need, class_keeps_reach, lets_in_wrong, needed_tolerations, needs_private_ipv4,
};
use crate::rules::placement::{may_be_held_to_linux, stray_target};
use crate::rules::scheduling::AddableTolerations;
use crate::rules::{self, Cx, KnownVersions, OsSelection, PodCx};

/// Placement of one pod: its input from the pod and the cluster.
pub struct Placement<'p, 'f> {
    /// The pod as written, with its evidence, the facts and the policy. No edit changes its images.
    pub as_written: Cx<'p>,
    /// Whether admission, not the author, added `spec.os`: placement may remove it.
    pub os_is_added: bool,
    /// Every field that the API server would reject with `spec.os.name: windows`, as written, even if the policy
    /// disables the rule.
    pub forbidden: ForbiddenFields<'f>,
}

/// The fields that the API server forbids on Windows pods.
#[derive(Clone, Copy)]
pub enum ForbiddenFields<'p> {
    /// These findings include all of them: no rule was disabled, and no finding was exempt.
    Among(&'p [Finding]),
    /// They are not known yet: run the rules.
    Unknown,
}

impl<'p> Placement<'p, '_> {
    /// Plans every active part; returns the fields that prevent setting `spec.os.name`.
    pub fn windows(&self, patch: &mut PodPatch<'_, 'p>) -> Vec<Path> {
        let policy = self.as_written.policy;
        if self.as_written.subject.is_daemonset_pod() {
            // The controller compares the pod's constraints with the template: a selector could make it replace the
            // pod.
            if policy.places(PlacementField::Tolerations) {
                self.tolerations(patch);
            }
            self.private_ipv4(patch);
            return Vec::new();
        }
        self.constraints(patch);
        self.private_ipv4(patch);
        if policy.places(PlacementField::OsName) {
            self.os_name(patch)
        } else {
            Vec::new()
        }
    }

    /// Plans the active parts that decide which nodes the pod can be scheduled on: selectors, affinity, RuntimeClass
    /// and tolerations.
    pub fn constraints(&self, patch: &mut PodPatch<'_, 'p>) {
        let policy = self.as_written.policy;
        if policy.places(PlacementField::RuntimeClass) {
            self.runtime_class(patch);
        }
        if policy.places(PlacementField::NodeSelector) {
            self.os_selector(patch);
        }
        if policy.places(PlacementField::WindowsBuild) {
            self.build(patch);
            if policy.places(PlacementField::RuntimeClass) {
                // A class that would have opened wrong nodes may be safe now that the build excludes them.
                self.runtime_class(patch);
            }
        }
        if policy.places(PlacementField::Tolerations) {
            self.tolerations(patch);
        }
    }

    /// Plans what an author writes into a manifest: the active parts whose values are certain. Affinity terms for the
    /// builds of today's nodes, the RuntimeClass, and extended resources of a cloud provider are left to admission. Returns the
    /// fields that prevent setting `spec.os.name`.
    pub fn in_manifest(&self, patch: &mut PodPatch<'_, 'p>) -> Vec<Path> {
        let policy = self.as_written.policy;
        if policy.places(PlacementField::NodeSelector) {
            self.os_selector(patch);
        }
        if policy.places(PlacementField::WindowsBuild)
            && let BuildNeed::OneOf { allowed, .. } = self.with(patch, build_need)
            && let [only] = allowed.as_slice()
        {
            let label = self.as_written.policy.build_label();
            if self.templates(label, &allowed).is_empty() {
                self.select(patch, label, &only.to_string());
            }
        }
        if policy.places(PlacementField::Tolerations) {
            self.tolerations(patch);
        }
        if policy.places(PlacementField::OsName) {
            self.os_name(patch)
        } else {
            Vec::new()
        }
    }

    /// Restricts a Linux or Unknown pod to Linux nodes if it could land on a Windows node.
    pub fn linux_pod(&self, patch: &mut PodPatch<'_, 'p>) {
        if self.with(patch, |cx| stray_target(cx).is_some() && may_be_held_to_linux(cx)) {
            patch.select(OS_LABEL, Os::Linux.label());
        }
    }

    /// Evaluates the pod in the current state of the draft.
    pub fn with<T>(&self, patch: &PodPatch<'_, 'p>, visit: impl FnOnce(&PodCx<'_>) -> T) -> T {
        let cx = self.as_written.with_draft(patch.template());
        visit(&PodCx::new(cx, patch.template()))
    }

    fn os_selector(&self, patch: &mut PodPatch<'_, 'p>) {
        let has_beta = patch.pod().node_selector.get(BETA_OS_LABEL).is_some();
        let missing =
            has_beta || self.with(patch, |cx| rules::selects_windows(cx, true) != OsSelection::ByOs);
        if missing && patch.pod().node_selector.get(OS_LABEL).is_none() {
            self.select(patch, OS_LABEL, Os::Windows.label());
        }
        let of_class = self.class_selects(patch, BETA_OS_LABEL).is_some();
        let has_stable = patch
            .pod()
            .node_selector
            .get(OS_LABEL)
            .is_some_and(|os| **os == *"windows");
        // The API server would merge the RuntimeClass's selector again after admission.
        if has_beta && has_stable && !of_class {
            patch.unselect(BETA_OS_LABEL);
        }
    }

    /// What the pod's RuntimeClass selects for a label.
    fn class_selects(&self, patch: &PodPatch<'_, 'p>, label: &str) -> Option<&'p str> {
        let class = self
            .as_written
            .facts
            .runtime_classes
            .get(&**patch.pod().runtime_class_name.as_ref()?)?;
        class.node_selector.get(label).map(String::as_str)
    }

    /// Adds to the nodeSelector, unless the RuntimeClass selects another value: the API server rejects such a pod with
    /// a 403.
    fn select(&self, patch: &mut PodPatch<'_, 'p>, label: &str, value: &str) {
        if self
            .class_selects(patch, label)
            .is_none_or(|selected| selected == value)
        {
            patch.select(label, value);
        }
    }

    fn build(&self, patch: &mut PodPatch<'_, 'p>) {
        let label = self.as_written.policy.build_label();
        match self.with(patch, build_need) {
            BuildNeed::OneOf { allowed, wrong } => {
                let mut templates = self.templates(label, &allowed);
                // A term for nodes without the label must not let in a wrong node without it.
                templates.retain(|template| !self.with(patch, |cx| lets_in_wrong(cx, label, template)));
                match allowed.as_slice() {
                    [only] if templates.is_empty() => self.select(patch, label, &only.to_string()),
                    several => patch.require_builds(label, several, &wrong, &terms(&templates)),
                }
            }
            BuildNeed::NoneOf(wrong) => patch.exclude_builds(label, &wrong),
            BuildNeed::Nothing | BuildNeed::NoHostKnown { .. } | BuildNeed::Withheld(..) => {}
        }
    }

    /// The templates of pools of these builds that an autoscaler knows without the label, declared ones first: whoever writes
    /// the labels of a node adds pools to those that were seen. The autoscaler considers such a node suitable only if a term
    /// of the pod matches the labels of the template.
    fn templates(&self, label: &str, builds: &[Build]) -> Vec<&'p Labels> {
        let facts = self.as_written.facts;
        let mut templates = Vec::new();
        for pool in facts.pools.iter().chain(facts.hosts()) {
            let fits = pool.build.is_some_and(|build| builds.contains(&build));
            if fits && pool.is_template_without(label) && !templates.contains(&&pool.labels) {
                templates.push(&pool.labels);
            }
        }
        templates
    }

    fn tolerations(&self, patch: &mut PodPatch<'_, 'p>) {
        let Cx {
            subject,
            facts,
            policy,
            ..
        } = self.as_written;
        let addable = AddableTolerations::of(&subject.namespace, facts, policy);
        let needed: Vec<Taint> = self.with(patch, |cx| needed_tolerations(cx).into_iter().cloned().collect());
        for taint in needed.iter().filter(|taint| addable.tolerates(taint)) {
            patch.tolerate(taint);
        }
    }

    /// Requests an address of the VPC. EKS' own webhook does that for pods whose nodeSelector says Windows. It runs
    /// before Transom, so it misses the pods that Transom places.
    fn private_ipv4(&self, patch: &mut PodPatch<'_, 'p>) {
        let asks = |pod: &PodSpec<'_>| {
            let mut resources = pod
                .visit_containers()
                .filter_map(|(_, _, c)| c.resources.as_ref());
            resources.any(|of| {
                let lists = [&of.limits, &of.requests];
                lists
                    .into_iter()
                    .any(|list| list.get(PRIVATE_IPV4_RESOURCE).is_some())
            })
        };
        let pod = patch.pod();
        if !pod.host_network.0 && !asks(pod) && self.with(patch, needs_private_ipv4) {
            patch.request_one(PRIVATE_IPV4_RESOURCE);
        }
    }

    fn runtime_class(&self, patch: &mut PodPatch<'_, 'p>) {
        if self.as_written.policy.runtime_classes.is_empty() || patch.pod().runtime_class_name.is_some() {
            return;
        }
        let name = self.with(patch, |cx| {
            if cx.isolation() == ContainerIsolation::HostProcess {
                return None;
            }
            let images = cx.containers().filter_map(|c| cx.image_versions(&c));
            let build = common_build(images)?;
            let name = self
                .as_written
                .policy
                .runtime_classes
                .get(build.release()?.name)?;
            let class = self.as_written.facts.runtime_classes.get(name)?;
            let agrees = (cx.spec.node_selector.iter()).all(|(key, value)| {
                class
                    .node_selector
                    .get(&**key)
                    .is_none_or(|other| **other == **value)
            });
            let is_for = (class.node_selector.iter()).all(|(key, value)| match key.as_str() {
                OS_LABEL | BETA_OS_LABEL => value == Os::Windows.label(),
                BUILD_LABEL | RESTRICTED_BUILD_LABEL => Build::parse_label(value).is_some_and(|host| {
                    compatibility(build, host, ContainerIsolation::Process) == Compatibility::Runs
                }),
                _ => true,
            });
            let fits =
                agrees && is_for && !class.has_overhead && class.isolation() == ContainerIsolation::Process;
            (fits && class_keeps_reach(cx, class)).then(|| name.clone())
        });
        if let Some(name) = name {
            patch.set_runtime_class(&name);
        }
    }

    /// Sets `spec.os.name`, unless the API server would then reject the pod; returns the fields that prevent it.
    ///
    /// A later webhook may add such a field, for example a sidecar with a user ID. Transom is called again then and
    /// removes an os name that no author wrote: without it the API server accepts the pod, as it would without Transom.
    fn os_name(&self, patch: &mut PodPatch<'_, 'p>) -> Vec<Path> {
        let is_set = patch.pod().os.is_some();
        let may_take_back = self.os_is_added
            && patch.pod().os.as_ref().and_then(|os| os.name.as_deref()) == Some(Os::Windows.label())
            && self.with(patch, |cx| rules::selects_windows(cx, true) == OsSelection::ByOs);
        if (is_set && !may_take_back) || self.as_written.facts.kubernetes < 24 {
            return Vec::new();
        }
        let in_the_way = self.forbidden_in(patch);
        match (in_the_way.is_empty(), is_set) {
            (true, false) => patch.set_os_name(),
            (false, true) => patch.unset_os_name(),
            _ => {}
        }
        in_the_way
    }

    /// The fields that the API server would reject in the draft.
    fn forbidden_in(&self, patch: &PodPatch<'_, 'p>) -> Vec<Path> {
        let removed = |path: &Path| {
            patch
                .edits()
                .iter()
                .any(|(edit, _)| matches!(edit, Edit::Remove(p) if p == path))
        };
        match self.forbidden {
            ForbiddenFields::Among(findings) => (findings.iter())
                .filter(|finding| finding.rule.class == Class::Api && !removed(&finding.path))
                .map(|finding| finding.path.clone())
                .collect(),
            ForbiddenFields::Unknown => self.with(patch, |pod| {
                let mut findings = Vec::new();
                for rule in rules::applicable(&pod.cx).filter(|rule| rule.class == Class::Api) {
                    rule.run_regardless(pod, &mut findings);
                }
                findings.into_iter().map(|finding| finding.path).collect()
            }),
        }
    }
}

/// The terms for pools with these templates: one for all that have only the same label, with all its values.
fn terms(templates: &[&Labels]) -> Vec<PoolTerm> {
    /// Each adds a term for every existing term.
    const MOST: usize = 8;
    let mut terms: Vec<PoolTerm> = Vec::new();
    for template in templates {
        let term: PoolTerm = (template.iter())
            .map(|(key, value)| (key.to_owned(), vec![value.to_owned()]))
            .collect();
        let shared = match &term[..] {
            [(key, _)] => terms.iter_mut().find_map(|other| match &mut other[..] {
                [(shared, values)] if shared == key => Some(values),
                _ => None,
            }),
            _ => None,
        };
        match shared {
            Some(values) => values.extend(term.into_iter().flat_map(|(_, values)| values)),
            None => terms.push(term),
        }
    }
    terms.truncate(MOST);
    terms
}

/// The build that all images have in common, if there is exactly one. Of several, only the author could choose the
/// RuntimeClass; with a variant without a version, no build is known.
fn common_build<'c>(mut images: impl Iterator<Item = &'c KnownVersions>) -> Option<Build> {
    let mut common: Vec<Build> = images
        .next()
        .filter(|first| !first.has_unversioned())?
        .builds()
        .collect();
    for image in images {
        common.retain(|build| !image.has_unversioned() && image.builds().any(|other| other == *build));
    }
    match common[..] {
        [only] => Some(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
