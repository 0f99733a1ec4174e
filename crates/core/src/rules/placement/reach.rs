//! What placement may require and tolerate, according to the nodes that a pod can reach and their taints. The pod must
//! never lose a node that runs it.

use std::collections::BTreeSet;

use crate::model::cluster::facts::RuntimeClassFacts;
use crate::model::nodes::node::{Host, Labels, PRIVATE_IPV4_RESOURCE, Taint};
use crate::model::nodes::node_affinity::Match;
use crate::model::nodes::os_selectors::is_build_label;
use crate::model::windows::build::{Build, ContainerIsolation, RELEASES};
use crate::rules::context::{HostFit, PodCx, Reached};
use crate::rules::scheduling::{AddableTolerations, Constraints};

/// The matched hosts whose lasting taints, present or planned, the pod tolerates, or would tolerate if placement added
/// every toleration that it may add.
fn reachable<'c>(cx: &PodCx<'c>) -> Vec<Reached<'c>> {
    let addable = AddableTolerations::of(&cx.subject.namespace, cx.facts, cx.policy);
    let reach = cx.reach();
    let may_pass = |taints: &Vec<Taint>| {
        let mut lacking = reach.constraints().untolerated_lasting(taints);
        lacking.all(|taint| addable.tolerates(taint))
    };
    let is_reachable = |reached: &&Reached<'c>| {
        let Host {
            taints,
            planned_taints,
            ..
        } = reached.host;
        may_pass(taints) || planned_taints.as_ref().is_some_and(may_pass)
    };
    reach.matched().iter().filter(is_reachable).copied().collect()
}

/// What a pod needs to land on a build that runs its images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildNeed {
    /// Nothing: the builds of its images are unknown, or no node that it can reach is wrong.
    Nothing,
    /// Unknown: the images have a build, but no known Windows node or pool matches the pod's selectors.
    NoHostKnown {
        /// The builds of the images.
        images: Vec<Build>,
        /// The builds of every release that runs them.
        runs: Vec<Build>,
    },
    /// One of these builds: every right node has the label.
    OneOf {
        /// The builds that run the images.
        allowed: Vec<Build>,
        /// The known builds that do not.
        wrong: Vec<Build>,
    },
    /// None of these builds: some right node does not have the label, so placement can only exclude the known wrong
    /// builds.
    NoneOf(Vec<Build>),
    /// Something that placement cannot add without taking a right node from the pod.
    Withheld(Withheld, Vec<Build>),
}

/// Why placement requires no build although the pod can reach wrong nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Withheld {
    /// The label does not distinguish right nodes from wrong ones.
    Label,
    /// A topology spread constraint with this key needs the wrong nodes as domains.
    Domains(String),
}

/// Whether and how placement must keep a pod off the builds that do not run its images.
pub fn build_need(cx: &PodCx<'_>) -> BuildNeed {
    let images = &cx.reach().images;
    if images.is_empty() {
        return BuildNeed::Nothing;
    }
    let no_host_known = || {
        let (builds, runs) = (images.builds(), images.hosts());
        // Nothing excludes a node, or no node is right: `image-build-mismatch` reports that.
        if runs.len() == RELEASES.len() || runs.is_empty() {
            BuildNeed::Nothing
        } else {
            BuildNeed::NoHostKnown { images: builds, runs }
        }
    };
    if cx.facts.hosts().is_empty() && cx.facts.pools.is_empty() {
        return if names_builds(cx) {
            BuildNeed::Nothing
        } else {
            no_host_known()
        };
    }
    if cx.selects_build() {
        return BuildNeed::Nothing;
    }
    let reach = reachable(cx);
    if reach.is_empty() && cx.reach().matched().is_empty() && !names_builds(cx) {
        return no_host_known();
    }
    if !reach.iter().any(|reached| reached.fit == HostFit::Wrong) {
        return BuildNeed::Nothing;
    }
    let mut right = reach.iter().filter(|reached| reached.fit == HostFit::Right);
    // A node or a declared pool must confirm a guess: a remembered pool may no longer exist. If the author chose among
    // builds and none of them is right, placement must not choose another.
    let is_confirmed = right.any(|reached| reached.is_declared || !reached.host.may_be_at_zero);
    if !is_confirmed && (!images.are_certain() || names_builds(cx)) {
        return BuildNeed::Nothing;
    }
    let allowed = images.hosts();
    if allowed.is_empty() {
        return BuildNeed::Nothing;
    }
    requirement(cx, &reach, allowed)
}

/// How placement keeps a pod off the wrong ones of the hosts that it can reach. `allowed`: the builds that run its images.
fn requirement(cx: &PodCx<'_>, reach: &[Reached<'_>], mut allowed: Vec<Build>) -> BuildNeed {
    let images = &cx.reach().images;
    let mut wrong = reach.iter().filter(|reached| reached.fit == HostFit::Wrong);
    let right = || reach.iter().filter(|reached| reached.fit == HostFit::Right);
    let right_nodes = || right().filter(|reached| !reached.host.may_be_at_zero);
    let label = cx.policy.build_label();
    let wrong_builds: Vec<Build> = (cx.host_builds().into_iter())
        .filter(|build| images.fit(Some(*build)) == HostFit::Wrong)
        .collect();
    if let Some(key) = missing_domains(cx, reach) {
        return BuildNeed::Withheld(Withheld::Domains(key), allowed);
    }
    if right_nodes().all(|reached| reached.host.is_labelled(label)) {
        allowed.extend(right().filter_map(|reached| reached.host.build));
        allowed.sort_unstable();
        allowed.dedup();
        return BuildNeed::OneOf {
            allowed,
            wrong: wrong_builds,
        };
    }
    let names_build =
        |build: &Build, reached: &Reached<'_>| reached.host.labelled_build(label) == Some(*build);
    let excludable = wrong_builds
        .into_iter()
        .filter(|build| !right_nodes().any(|reached| names_build(build, reached)));
    let excludable: Vec<Build> = excludable.collect();
    let helps = wrong.any(|reached| {
        let of_pool =
            || reached.host.may_be_at_zero && reached.host.build.is_some_and(|b| excludable.contains(&b));
        excludable.iter().any(|build| names_build(build, reached)) || of_pool()
    });
    if helps {
        BuildNeed::NoneOf(excludable)
    } else {
        BuildNeed::Withheld(Withheld::Label, allowed)
    }
}

/// A wrong node that the pod can reach although it selects the right builds: the node's label has another build than
/// its kernel.
pub fn mislabelled<'c>(cx: &PodCx<'c>) -> Option<&'c Host> {
    let images = &cx.reach().images;
    if images.is_empty() {
        return None;
    }
    let label = cx.policy.build_label();
    let has_right_label = |host: &Host| {
        host.labelled_build(label)
            .is_some_and(|reported| images.fit(Some(reported)) == HostFit::Right)
    };
    let mut reach = reachable(cx).into_iter();
    let wrong = reach.find(|reached| reached.fit == HostFit::Wrong && has_right_label(reached.host))?;
    Some(wrong.host)
}

/// Whether a wrong node that the pod can reach has the labels of a pool's template, but not the build label.
pub fn lets_in_wrong(cx: &PodCx<'_>, label: &str, template: &Labels) -> bool {
    let is_so = |host: &Host| {
        !host.may_be_at_zero
            && !host.labels.contains_key(label)
            && template
                .iter()
                .all(|(key, value)| host.labels.get(key) == Some(value))
    };
    let mut reach = reachable(cx).into_iter();
    reach.any(|reached| reached.fit == HostFit::Wrong && is_so(reached.host))
}

/// Whether every term of the required affinity names builds, or the nodeSelector does.
fn names_builds(cx: &PodCx<'_>) -> bool {
    let terms = cx.spec.required_terms();
    cx.selects_build()
        || cx.build_of_pool().is_some()
        || (!terms.is_empty()
            && terms.iter().all(|term| {
                term.is_empty()
                    || (term.match_expressions.iter())
                        .any(|e| is_build_label(&e.key) || !cx.builds_of(e).is_empty())
            }))
}

/// How many values of a label the Windows nodes that a pod can reach have.
pub fn domains(cx: &PodCx<'_>, key: &str) -> i64 {
    domains_of(reachable(cx).iter(), key)
}

fn domains_of<'r>(reach: impl Iterator<Item = &'r Reached<'r>>, key: &str) -> i64 {
    let nodes = reach.filter(|reached| !reached.host.may_be_at_zero);
    let values: BTreeSet<&str> = nodes.filter_map(|reached| reached.host.labels.get(key)).collect();
    i64::try_from(values.len()).unwrap_or(i64::MAX)
}

/// Whether a required topology spread constraint ignores domains whose taints the pod does not tolerate.
fn spread_honors_taints(cx: &PodCx<'_>) -> bool {
    let mut spread = cx.spec.topology_spread_constraints.iter();
    spread.any(|one| one.is_required() && one.honors_taints())
}

/// The key of a topology spread constraint that has enough domains with the wrong nodes, and too few without them.
fn missing_domains(cx: &PodCx<'_>, reach: &[Reached<'_>]) -> Option<String> {
    let spread = cx.spec.topology_spread_constraints.iter();
    let mut strict = spread.filter(|one| one.is_required() && one.honors_affinity());
    let missing = strict.find(|one| {
        let domains = |with_wrong: bool| {
            let counted = reach
                .iter()
                .filter(|reached| with_wrong || reached.fit == HostFit::Right);
            domains_of(counted, &one.topology_key)
        };
        // If no right node has a domain, placement cannot lose one.
        one.min_domains
            .is_some_and(|least| domains(true) >= least && (1..least).contains(&domains(false)))
    })?;
    Some(missing.topology_key.to_string())
}

/// The tolerations that a pod needs to reach the Windows nodes that run it, and those of the policy, even if no node
/// has the taint.
///
/// Omits tolerations that would open wrong nodes to a pod that has right ones. While a node takes the pod without it,
/// it also omits a toleration that would add a domain to a topology spread constraint that honors taints. Remembered
/// pools add none.
pub fn needed_tolerations<'c>(cx: &PodCx<'c>) -> Vec<&'c Taint> {
    let constraints = cx.reach().constraints();
    let reach = cx.reach().matched();
    let nodes = || reach.iter().filter(|reached| !reached.host.may_be_at_zero);
    // The pod may still wait for a node when a taint that is about to be set is there.
    let enters = |reached: &&Reached<'_>| {
        let mut taints = reached.host.present_and_planned_taints();
        taints.all(|taint| !taint.keeps_off() || constraints.tolerates(taint))
    };
    // The nodes on which the pod could run now without any of them.
    let open: Vec<&Reached<'_>> = nodes()
        .filter(|reached| reached.fit == HostFit::Right)
        .filter(enters)
        .collect();
    let is_daemonset = cx.is_daemonset_template();
    if !open.is_empty() && !is_daemonset && spread_honors_taints(cx) {
        return Vec::new();
    }
    let has_builds = !cx.reach().images.is_empty();
    let runs_on_every_build = cx.isolation() == ContainerIsolation::HostProcess;
    let is_wrong = |reached: &Reached<'_>| {
        let is_another = || !open.iter().any(|known| known.host.build == reached.host.build);
        reached.fit == HostFit::Wrong
            || (!has_builds && !runs_on_every_build && !open.is_empty() && is_another())
    };
    let has_right = reach.iter().any(|reached| reached.fit == HostFit::Right);
    let opens_wrong = |taint: &Taint| {
        let mut carriers = nodes()
            .filter(|reached| {
                reached
                    .host
                    .present_and_planned_taints()
                    .any(|other| other == taint)
            })
            .peekable();
        if carriers.peek().is_none() || is_daemonset {
            return false;
        }
        if open.is_empty() {
            has_right && carriers.all(is_wrong)
        } else {
            carriers.any(is_wrong)
        }
    };
    let of_nodes = nodes().flat_map(|reached| reached.host.present_and_planned_taints());
    let of_pools = reach
        .iter()
        .filter(|reached| reached.is_declared)
        .flat_map(|reached| &reached.host.taints);
    let stated = AddableTolerations::stated(cx.policy, cx.facts);
    let mut needed: Vec<&'c Taint> = Vec::new();
    for taint in stated.chain(of_nodes).chain(of_pools) {
        if AddableTolerations::is_known(cx.policy, taint)
            && taint.keeps_off()
            && !needed.contains(&taint)
            && !constraints.tolerates(taint)
            && !opens_wrong(taint)
        {
            needed.push(taint);
        }
    }
    needed
}

/// Whether every node and declared pool that the pod selects has a taint, and there is such a node.
pub fn is_everywhere(cx: &PodCx<'_>, taint: &Taint) -> bool {
    let reach = cx.reach().matched().iter();
    let mut hosts = reach.filter(|reached| reached.is_declared || !reached.host.may_be_at_zero);
    hosts.clone().any(|reached| !reached.host.may_be_at_zero)
        && hosts.all(|reached| reached.host.taints.contains(taint))
}

/// Whether a pod must request an address of the VPC: every node that it can be scheduled on and that has been Ready for
/// some time offers addresses, and there is such a node or a declared pool offers them.
pub fn needs_private_ipv4(cx: &PodCx<'_>) -> bool {
    let constraints = cx.reach().constraints();
    let enters = |reached: &&Reached<'_>| constraints.tolerates_lasting(&reached.host.taints);
    let offers = |reached: &Reached<'_>| reached.host.offered.contains(PRIVATE_IPV4_RESOURCE);
    let reach = cx.reach().matched();
    let mut settled = (reach.iter())
        .filter(|reached| reached.host.is_settled)
        .filter(enters)
        .peekable();
    let has_node = settled.peek().is_some();
    let declared = || {
        let mut pools = reach.iter().filter(|reached| reached.is_declared);
        pools.any(&offers)
    };
    settled.all(offers) && (has_node || declared())
}

/// Whether placement can set this RuntimeClass on a pod: its scheduling keeps every right node and every declared right
/// pool that the pod can reach, and opens no wrong node to it. If no node is right, it keeps remembered pools too: the
/// autoscaler adds the pod's node to one of them.
pub fn class_keeps_reach(cx: &PodCx<'_>, class: &RuntimeClassFacts) -> bool {
    let with = cx.constraints_with(Some(class));
    let before = cx.reach().constraints();
    let reach = reachable(cx);
    let nodes = || reach.iter().filter(|reached| !reached.host.may_be_at_zero);
    let right = || reach.iter().filter(|reached| reached.fit == HostFit::Right);
    let has_node = right().any(|reached| !reached.host.may_be_at_zero);
    let is_needed = |reached: &&Reached<'_>| !has_node || reached.is_declared || !reached.host.may_be_at_zero;
    let enters = |of: &Constraints<'_>, host: &Host| of.tolerates_lasting(&host.taints);
    let has_open = right().any(|reached| !reached.host.may_be_at_zero && enters(before, reached.host));
    let opens_wrong = nodes().any(|reached| {
        reached.fit == HostFit::Wrong
            && with.matches(reached.host) != Match::No
            && enters(&with, reached.host)
            && !enters(before, reached.host)
    });
    let adds_domain = !class.tolerations.is_empty() && has_open && spread_honors_taints(cx);
    let is_possible = has_node || with.matches(&class_labels(class)) != Match::No;
    is_possible
        && right()
            .filter(is_needed)
            .all(|reached| with.matches(reached.host) != Match::No)
        && !(has_open && opens_wrong)
        && !adds_domain
}

/// A node with only the labels that the class selects.
fn class_labels(class: &RuntimeClassFacts) -> Host {
    Host {
        labels: class.node_selector.clone().into(),
        may_be_at_zero: true,
        ..Host::default()
    }
}
