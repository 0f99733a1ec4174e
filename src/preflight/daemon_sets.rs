//! DaemonSets that create pods on nodes that cannot run them, and Windows DaemonSets that the taints of
//! Windows nodes exclude.

use std::collections::BTreeSet;

use jiff::civil::{Date, date};

use super::{ClusterInput, MOST, PreflightFinding};
use crate::cluster::environment::AnyNode;
use crate::engine::scheduling::{AdmissionStage, Constraints, constraints};
use crate::model::facts::Facts;
use crate::model::image::ImageRef;
use crate::model::node_affinity::Match;
use crate::model::object::Object;
use crate::model::os::Verdict;
use crate::model::pod::PodSpec;
use crate::model::text::{list, shown};
use crate::scan::OwnerResult;
use crate::scan::pods::image_for_windows;

/// How many DaemonSets are listed individually.
const MOST_REPORTED: usize = 30;

/// The last day on which AKS supports Azure Network Policy Manager on Windows nodes.
const AZURE_NPM_ENDS: Date = date(2026, 9, 30);

/// Whether a pod is Azure Network Policy Manager: `containernetworking/azure-npm`.
fn is_azure_npm(pod: &PodSpec<'_>) -> bool {
    let mut images = pod
        .visit_containers()
        .filter_map(|(_, _, container)| container.image.as_deref());
    images.any(|image| {
        ImageRef::parse(image).is_ok_and(|image| image.repository.rsplit('/').next() == Some("azure-npm"))
    })
}

fn azure_npm(today: Date) -> PreflightFinding {
    let tense = if today > AZURE_NPM_ENDS { "ended" } else { "ends" };
    PreflightFinding::act(
        format!(
            "Azure Network Policy Manager enforces the NetworkPolicies of Windows pods; its support on Windows nodes {tense} on \
             {AZURE_NPM_ENDS} (https://learn.microsoft.com/azure/aks/use-network-policies)"
        ),
        "use Calico, or network security groups of the nodes",
    )
}

/// The findings about DaemonSets, collected one object at a time.
#[derive(Debug)]
pub struct DaemonSets<'w> {
    facts: &'w Facts,
    windows_nodes: Vec<&'w AnyNode>,
    linux_nodes: Vec<&'w AnyNode>,
    findings: Vec<PreflightFinding>,
    more: usize,
}

impl<'w> DaemonSets<'w> {
    /// No DaemonSet visited yet.
    pub fn new(input: ClusterInput<'w>) -> Self {
        let nodes = |windows: bool| {
            let nodes = input.environment.nodes.iter();
            nodes.filter(move |node| node.is_windows == windows).collect()
        };
        DaemonSets {
            facts: &input.snapshot.facts,
            windows_nodes: nodes(true),
            linux_nodes: nodes(false),
            findings: Vec::new(),
            more: 0,
        }
    }

    /// Visits one DaemonSet.
    pub fn visit(&mut self, owner_result: &OwnerResult, subject: &Object<'_>, pod: &PodSpec<'_>) {
        let name = format!("{}/{}", owner_result.namespace, owner_result.name);
        let title = format!("DaemonSet {name}");
        if owner_result.verdict == Verdict::Windows && is_azure_npm(pod) {
            self.push(azure_npm(self.facts.today).by([&title]));
        }
        let evidence = [&title];
        // The controller reads the template: without the RuntimeClass and without placement.
        let Some(constraints) = constraints(subject, self.facts, AdmissionStage::AsWritten) else {
            return;
        };
        let lands = |nodes: &[&'w AnyNode]| -> Vec<String> {
            let on = nodes.iter().filter(|node| {
                constraints.matches(**node) == Match::Yes
                    && constraints.untolerated_lasting(&node.taints).next().is_none()
            });
            on.map(|node| node.name.clone()).collect()
        };
        let by_image = image_for_windows(pod).filter(|_| owner_result.verdict == Verdict::Unknown);
        if owner_result.verdict == Verdict::Windows || by_image.is_some() {
            let what = by_image.map_or_else(
                || format!("the pods of {title} are for Windows"),
                |image| {
                    format!(
                        "the pods of {title} are for Windows by the name of the image {}",
                        shown(image)
                    )
                },
            );
            let off = self.keeping_off(&constraints);
            if !off.is_empty() {
                self.push(PreflightFinding::act(
                    format!("{what}, and it does not tolerate {} of Windows nodes", list(&off, MOST)),
                    "write the tolerations into its template: its controller reads it, and placement of its pods comes too late",
                ).by(evidence));
            }
            let wrong = lands(&self.linux_nodes);
            if !wrong.is_empty() {
                self.push(
                    PreflightFinding::act(
                        format!(
                            "{what}, and it creates them for Linux nodes too: {}",
                            list(&wrong, MOST)
                        ),
                        "write nodeSelector kubernetes.io/os: windows into its template",
                    )
                    .by(evidence),
                );
            }
            return;
        }
        let wrong = lands(&self.windows_nodes);
        if !wrong.is_empty() {
            let what = if owner_result.verdict == Verdict::Linux {
                "is for Linux"
            } else {
                "names no operating system"
            };
            self.push(PreflightFinding::act(
                format!("{title} {what}, and creates pods for Windows nodes: {}", list(&wrong, MOST)),
                "write nodeSelector kubernetes.io/os: linux into its template, or taint the Windows nodes; placement.linuxPods \
                 only warns of a DaemonSet, and Transom does not move pods that exist",
            ).by(evidence));
        }
    }

    /// The taints of Windows nodes that it selects and does not tolerate.
    fn keeping_off(&self, constraints: &Constraints<'_>) -> BTreeSet<String> {
        let selected = self.windows_nodes.iter();
        let selected = selected.filter(|node| constraints.matches(**node) == Match::Yes);
        let taints = selected.flat_map(|node| constraints.untolerated_lasting(&node.taints));
        taints.map(ToString::to_string).collect()
    }

    fn push(&mut self, finding: PreflightFinding) {
        if self.findings.len() < MOST_REPORTED {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// The findings. `is_whole` says whether all DaemonSets and all nodes could be listed.
    pub fn findings(&self, is_whole: bool) -> Vec<PreflightFinding> {
        let mut all = self.findings.clone();
        if self.more > 0 {
            all.push(PreflightFinding::act(
                format!("the same for {} more", self.more),
                "fix these first, and run this again",
            ));
        }
        if !is_whole {
            all.push(PreflightFinding::fine(
                "not known (not read): DaemonSets, or the nodes that they select",
            ));
        } else if all.is_empty() {
            all.push(PreflightFinding::fine(
                "each DaemonSet selects and tolerates the nodes that it is for",
            ));
        }
        all
    }
}
