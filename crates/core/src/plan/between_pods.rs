//! What a pod template requires of its node with regard to other pods: inter-pod affinity, anti-affinity and topology spread.
//! A plan does not evaluate them, and says so if the upgrade changes their domains.

use super::plan_finding::{FindingSource, PlanFinding, UpgradeClass};
use crate::model::nodes::node::VersionLabel;
use crate::model::nodes::os_selectors::is_build_label;
use crate::model::objects::pod::PodAffinity;
use crate::model::syntax::text::shown;
use crate::rules::PodCx;

const AFFINITY: &str = "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity";
const SPREAD: &str = "https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/";

/// The maximum number of constraints that are read; real manifests have fewer.
const MOST: usize = 16;

/// A required constraint between pods.
pub(super) struct PodConstraint {
    path: String,
    /// Its name for people, with its source.
    what: (&'static str, &'static str),
    /// The label that defines the domains.
    key: String,
}

impl PodConstraint {
    /// The required constraints of a pod or template.
    pub(super) fn all_of(cx: &PodCx<'_>) -> Vec<PodConstraint> {
        let affinity = cx.spec.affinity.as_ref();
        let terms = |field: &'static str, what: &'static str, of: Option<&PodAffinity<'_>>| -> Vec<_> {
            let terms = of.iter().flat_map(|of| &of.required).enumerate().take(MOST);
            let path = |index| {
                let list = cx.at(&[
                    "affinity",
                    field,
                    "requiredDuringSchedulingIgnoredDuringExecution",
                ]);
                list.item(index).field("topologyKey").named()
            };
            let constraint = |(index, key): (usize, &str)| PodConstraint {
                path: path(index),
                what: (what, AFFINITY),
                key: key.to_owned(),
            };
            terms
                .map(|(index, term)| constraint((index, &term.topology_key)))
                .collect()
        };
        let mut all = terms(
            "podAffinity",
            "pod affinity",
            affinity.and_then(|it| it.pod_affinity.as_ref()),
        );
        all.extend(terms(
            "podAntiAffinity",
            "pod anti-affinity",
            affinity.and_then(|it| it.pod_anti_affinity.as_ref()),
        ));
        let spreads = cx.spec.topology_spread_constraints.iter().enumerate();
        let required =
            spreads.filter(|(_, spread)| spread.when_unsatisfiable.as_deref() != Some("ScheduleAnyway"));
        all.extend(required.take(MOST).map(|(index, spread)| {
            PodConstraint {
                path: cx
                    .at(&["topologySpreadConstraints"])
                    .item(index)
                    .field("topologyKey")
                    .named(),
                what: ("topology spread", SPREAD),
                key: spread.topology_key.to_string(),
            }
        }));
        all
    }

    /// The finding about a constraint whose domains the upgrade changes.
    pub(super) fn changed(&self) -> Option<PlanFinding> {
        let changes = is_build_label(&self.key) || VersionLabel::find(&self.key).is_some();
        changes.then(|| {
            let (what, _) = self.what;
            let message = format!(
                "the plan does not evaluate its required {what} by {}, a label that changes with the build",
                shown(&self.key)
            );
            self.finding(message)
        })
    }

    /// The finding about pods that only these pools can run afterwards.
    pub(super) fn elsewhere(&self, pools: &str) -> PlanFinding {
        let (what, _) = self.what;
        self.finding(format!(
            "only {pools} can run its pods afterwards, and the plan does not evaluate its required {what} by {} there",
            shown(&self.key)
        ))
    }

    fn finding(&self, message: String) -> PlanFinding {
        let (what, source) = self.what;
        let source = FindingSource::row(format!("scheduling: {what}"), source);
        PlanFinding::new(UpgradeClass::Unknown, self.path.as_str(), message, source)
            .remedy("upgrade one node first, and look whether its pods are scheduled")
    }
}
