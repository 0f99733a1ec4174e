//! The condition that reports whether the nodes carry the label that placement uses to require builds.

use crate::api::DecodedPolicy;
use crate::cluster::snapshot::Snapshot;
use crate::controller::conditions::{ConditionUpdate, EventPolicy};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{PlacementField, PlacementMode, Policy};
use crate::model::nodes::node::Host;
use crate::model::syntax::text::{count, list};
use crate::model::windows::build::Build;

use super::MOST_NAMES;

/// The condition. `decoded`: the version of the policy that applies, if any.
pub(super) fn build_labels(decoded: Option<&DecodedPolicy>, snapshot: &Snapshot) -> ConditionUpdate {
    let policy = decoded.map(|decoded| &decoded.policy.policy);
    let lacking = policy.map_or_else(Vec::new, |policy| lacking(policy, snapshot));
    let missing = policy.map_or_else(Vec::new, |policy| missing(policy, &snapshot.facts, &lacking));
    let message = |policy: &Policy| {
        let label = policy.build_label();
        let names = list(missing.iter().map(|host| &host.name), MOST_NAMES);
        let (them, theirs) = if missing.len() == 1 {
            ("node carries", "its")
        } else {
            ("nodes carry", "their")
        };
        format!(
            "{} Windows {them} no label {label} with {theirs} build: {names}; so for images that run there, placement can \
             only exclude other builds by the labels of other nodes, and pods with other images may be scheduled there; let a WindowsNodePolicy maintain the label (kubectl explain wnp.spec.labels)",
            missing.len()
        )
    };
    let unmet = policy.filter(|_| !missing.is_empty());
    let unmet = unmet.map(|policy| ("LabelsMissing", message(policy)));
    let is_bad = unmet.is_some();
    let unmet = unmet.or_else(|| {
        let label = policy?.build_label();
        let (reason, why) = if lacking.iter().any(|host| host.is_labelled(label)) {
            ("LabelsPending", "a WindowsNodePolicy has not written yet")
        } else {
            ("LabelsNotRequired", "placement does not require now")
        };
        let names = list(lacking.iter().map(|host| &host.name), MOST_NAMES);
        let nodes = count(lacking.len(), "Windows node");
        let text = format!("{nodes} without the label of the build, which {why}: {names}");
        (!lacking.is_empty()).then_some((reason, text))
    });
    let met = (
        "LabelsPresent",
        "every node has the build label that placement would require",
    );
    let update = ConditionUpdate::expect_true("BuildLabelsPresent", unmet, met);
    ConditionUpdate { is_bad, ..update }.with_events(EventPolicy::Turns)
}

/// The nodes without the label, whether placement requires it or not. Of a node to which a node policy will write it, the facts
/// have it already.
fn lacking<'f>(policy: &Policy, snapshot: &'f Snapshot) -> Vec<&'f Host> {
    let label = policy.build_label();
    let is_stored = |host: &Host| {
        let node = snapshot.cache.nodes.get(&host.name);
        node.is_none_or(|node| node.labels.get(label).and_then(|text| Build::parse_label(text)) == host.build)
    };
    let hosts = snapshot.facts.hosts().iter();
    hosts
        .filter(|host| host.build.is_some() && !(host.is_labelled(label) && is_stored(host)))
        .collect()
}

/// Those of the nodes without the label that matter, because placement may require it: the cluster has several builds.
fn missing<'f>(policy: &Policy, facts: &Facts, lacking: &[&'f Host]) -> Vec<&'f Host> {
    let declared = facts.pools.iter().filter_map(|pool| pool.build);
    let has_several = {
        let mut builds = facts.builds().iter().copied().chain(declared);
        let first = builds.next();
        builds.any(|other| Some(other) != first)
    };
    if policy.placement == PlacementMode::Disabled
        || !policy.places(PlacementField::WindowsBuild)
        || !has_several
    {
        return Vec::new();
    }
    let label = policy.build_label();
    // With mode Enforce, the node policy writes what it only audits now.
    let would_be_written = |host: &&&Host| {
        policy.placement == PlacementMode::Audit
            && host.audited_labels.iter().any(|(audited, _)| *audited == label)
    };
    lacking
        .iter()
        .filter(|host| !host.is_labelled(label) && !would_be_written(host))
        .copied()
        .collect()
}
