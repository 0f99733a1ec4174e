//! DaemonSets that create pods on nodes that cannot run them, and Windows DaemonSets that the taints of
//! Windows nodes exclude.

use std::collections::BTreeSet;

use jiff::civil::Date;

use super::{ClusterInput, MOST, PreflightFinding, taints};
use crate::cluster::environment::AnyNode;
use crate::engine::scheduling::{AdmissionStage, Constraints, constraints};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::network_policy_engine::AZURE_NPM_ENDS;
use crate::model::nodes::node::Taint;
use crate::model::nodes::node_affinity::Match;
use crate::model::objects::object::Object;
use crate::model::objects::pod::PodSpec;
use crate::model::syntax::text::{list, shown};
use crate::model::windows::image::ImageRef;
use crate::model::windows::os::Verdict;
use crate::rules::MISSING_WINDOWS_TOLERATION;
use crate::scan::OwnerResult;
use crate::scan::pods::image_for_windows;

/// How many DaemonSets are listed individually.
const MOST_REPORTED: usize = 30;

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
    /// Whether new Windows nodes have the startup taint.
    are_gated: bool,
    /// The taints that all Windows nodes will have.
    planned: Vec<Taint>,
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
            are_gated: input.gates_nodes(),
            planned: taints::planned(input),
            findings: Vec::new(),
            more: 0,
        }
    }

    /// Records how a Windows DaemonSet meets the taints of nodes.
    pub fn visit(&mut self, owner_result: &OwnerResult, subject: &Object<'_>, pod: &PodSpec<'_>) {
        let title = format!("DaemonSet {}/{}", owner_result.namespace, owner_result.name);
        let verdict = owner_result.verdict;
        if verdict == Verdict::Windows && is_azure_npm(pod) {
            self.push(&title, azure_npm(self.facts.today));
        }
        // The controller reads the template: without the RuntimeClass and without placement.
        let Some(constraints) = constraints(subject, self.facts, AdmissionStage::AsWritten) else {
            return;
        };
        let pods = format!("the pods of {title} are for Windows");
        let by_image = image_for_windows(pod).filter(|_| verdict == Verdict::Unknown);
        if let Some(image) = by_image {
            let by_name = format!("{pods} by the name of the image {}", shown(image));
            self.of_windows(&title, &by_name, &constraints);
        } else if verdict == Verdict::Windows {
            self.of_windows(&title, &pods, &constraints);
        } else {
            self.of_others(&title, verdict, &constraints);
        }
    }

    /// A DaemonSet for Windows; `what` says why it is.
    fn of_windows(&mut self, title: &str, what: &str, constraints: &Constraints<'_>) {
        let off = self.keeping_off(constraints);
        if !off.is_empty() {
            let text = format!(
                "{what}, and it does not tolerate {} of Windows nodes",
                list(&off, MOST)
            );
            let remedy = "write the tolerations into its template: its controller reads it, and placement of its pods comes too late";
            self.push(title, PreflightFinding::act(text, remedy));
        }
        self.of_planned_taints(title, what, constraints, &off);
        let gate = [Taint::no_schedule(Taint::STARTUP_KEY, "")];
        if self.are_gated && constraints.untolerated(&gate).next().is_some() {
            let text = format!(
                "{what}, and it does not tolerate the startup taint {}: new nodes wait for its images, and have no pod of it until \
                 then. A node without its network, storage or log agent may never be ready",
                Taint::STARTUP_KEY
            );
            let remedy = "write a toleration of the startup taint into its template";
            self.push(title, PreflightFinding::act(text, remedy));
        }
        let wrong = landing(&self.linux_nodes, constraints);
        if !wrong.is_empty() {
            let nodes = list(&wrong, MOST);
            let text = format!("{what}, and it creates them for Linux nodes too: {nodes}");
            let remedy = "write nodeSelector kubernetes.io/os: windows into its template";
            self.push(title, PreflightFinding::act(text, remedy));
        }
    }

    /// What the taints do that nodes do not have yet. `off`: those that it is already reported for.
    fn of_planned_taints(
        &mut self,
        title: &str,
        what: &str,
        constraints: &Constraints<'_>,
        off: &BTreeSet<String>,
    ) {
        let lacks = |node: &&&AnyNode| self.planned.iter().any(|taint| !node.taints.contains(taint));
        let mut selected = self.windows_nodes.iter().filter(lacks);
        if !selected.any(|node| constraints.matches(*node) == Match::Yes) {
            return;
        }
        let lacking = constraints.untolerated(&self.planned).map(ToString::to_string);
        let lacking: BTreeSet<String> = lacking.filter(|taint| !off.contains(taint)).collect();
        if lacking.is_empty() {
            return;
        }
        let text = format!(
            "{what}, and once all nodes have the taint {}, it would be denied ({}) and get no pods: it does not tolerate the taint",
            list(&lacking, MOST),
            MISSING_WINDOWS_TOLERATION.id
        );
        let remedy = "write the toleration into its template before nodes are tainted; with taints.mode: Reconcile, Transom taints \
                      no node until then";
        self.push(title, PreflightFinding::act(text, remedy));
    }

    fn of_others(&mut self, title: &str, verdict: Verdict, constraints: &Constraints<'_>) {
        let wrong = landing(&self.windows_nodes, constraints);
        if wrong.is_empty() {
            return;
        }
        let what = if verdict == Verdict::Linux {
            "is for Linux"
        } else {
            "names no operating system"
        };
        let nodes = list(&wrong, MOST);
        let text = format!("{title} {what}, and creates pods for Windows nodes: {nodes}");
        let remedy = "write nodeSelector kubernetes.io/os: linux into its template, or taint the Windows nodes; placement.linuxPods \
                      only warns of a DaemonSet, and Transom does not move pods that exist";
        self.push(title, PreflightFinding::act(text, remedy));
    }

    /// The taints of Windows nodes that it selects and does not tolerate.
    fn keeping_off(&self, constraints: &Constraints<'_>) -> BTreeSet<String> {
        let selected = self.windows_nodes.iter();
        let selected = selected.filter(|node| constraints.matches(**node) == Match::Yes);
        let taints = selected.flat_map(|node| constraints.untolerated_lasting(&node.taints));
        taints.map(ToString::to_string).collect()
    }

    fn push(&mut self, title: &str, finding: PreflightFinding) {
        if self.findings.len() < MOST_REPORTED {
            self.findings.push(finding.by([title]));
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
        let unread = (!is_whole).then_some("DaemonSets, or the nodes that they select");
        let nothing = "each DaemonSet selects and tolerates the nodes that it is for";
        let ending = PreflightFinding::ending(&all, unread.into_iter(), nothing);
        all.extend(ending);
        all
    }
}

/// The nodes for which a DaemonSet with these constraints creates pods.
fn landing<'n>(nodes: &[&'n AnyNode], constraints: &Constraints<'_>) -> Vec<&'n str> {
    let on = nodes.iter().filter(|node| {
        constraints.matches(**node) == Match::Yes && constraints.tolerates_lasting(&node.taints)
    });
    on.map(|node| node.name.as_str()).collect()
}
