//! The DaemonSets that make pods for nodes that cannot run them, and those for Windows that Windows nodes keep off.

use std::collections::BTreeSet;

use super::selects::{Place, kept_off_by, selects};
use super::{MOST, Sight, Statement};
use crate::cluster::around::AnyNode;
use crate::engine::{Admission, untolerated};
use crate::model::facts::Facts;
use crate::model::node::Taint;
use crate::model::os::Verdict;
use crate::model::pod::PodSpec;
use crate::model::policy::Policy;
use crate::model::subject::Subject;
use crate::model::text::list;
use crate::scan::Judged;

/// How many DaemonSets are told of one by one.
const MOST_TOLD: usize = 30;

/// What is said of DaemonSets, as they come by.
#[derive(Debug)]
pub struct DaemonSets<'w> {
    facts: &'w Facts,
    windows_nodes: Vec<Place<'w>>,
    linux_nodes: Vec<Place<'w>>,
    statements: Vec<Statement>,
    more: usize,
}

impl<'w> DaemonSets<'w> {
    /// None has come by yet.
    pub fn new(sight: Sight<'w>) -> Self {
        let nodes = |windows: bool| {
            let nodes = sight.around.nodes.iter();
            let these = nodes.filter(move |node| node.is_windows() == windows);
            these.map(place).collect()
        };
        DaemonSets {
            facts: &sight.snapshot.facts,
            windows_nodes: nodes(true),
            linux_nodes: nodes(false),
            statements: Vec::new(),
            more: 0,
        }
    }

    /// Looks at one of them.
    pub fn look(&mut self, judged: &Judged, subject: &Subject<'_>, pod: &PodSpec<'_>) {
        let name = format!("{}/{}", judged.namespace, judged.name);
        let title = format!("DaemonSet {name}");
        let evidence = [&title];
        let lands = |places: &[Place<'w>]| -> Vec<String> {
            let on = |place: &&Place<'w>| selects(pod, **place) && kept_off_by(pod, **place).is_none();
            places
                .iter()
                .filter(on)
                .map(|place| place.name.to_owned())
                .collect()
        };
        if judged.verdict == Verdict::Windows {
            let off = self.keeping_off(subject, pod);
            if !off.is_empty() {
                self.tell(Statement::act(
                    format!("the pods of {} are for Windows, and it does not tolerate {} of Windows nodes", title, list(&off, MOST)),
                    "write the tolerations into its template: its controller reads it, and placement of its pods comes too late",
                ).by(evidence));
            }
            let wrong = lands(&self.linux_nodes);
            if !wrong.is_empty() {
                self.tell(
                    Statement::act(
                        format!(
                            "the pods of {} are for Windows, and it makes them for Linux nodes too: {}",
                            title,
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
            let what = if judged.verdict == Verdict::Linux {
                "is for Linux"
            } else {
                "says no operating system"
            };
            self.tell(Statement::act(
                format!("{title} {what}, and makes pods for Windows nodes: {}", list(&wrong, MOST)),
                "write nodeSelector kubernetes.io/os: linux into its template, or taint the Windows nodes; the reverse guard \
                 only warns of a DaemonSet, and nothing of Transom moves pods that are there",
            ).by(evidence));
        }
    }

    /// The taints of Windows nodes that it selects and does not tolerate.
    fn keeping_off(&self, subject: &Subject<'_>, pod: &PodSpec<'_>) -> BTreeSet<String> {
        let mut off = BTreeSet::new();
        let policy = &Policy::standalone();
        for place in self.windows_nodes.iter().filter(|place| selects(pod, **place)) {
            let lasting: Vec<Taint> = place
                .taints
                .iter()
                .filter(|taint| taint.lasts())
                .cloned()
                .collect();
            let facts = self.facts;
            let taints = untolerated(subject, &lasting, facts, policy, Admission::AsWritten);
            off.extend(taints.into_iter().map(ToString::to_string));
        }
        off
    }

    fn tell(&mut self, statement: Statement) {
        if self.statements.len() < MOST_TOLD {
            self.statements.push(statement);
        } else {
            self.more += 1;
        }
    }

    /// What is said of DaemonSets.
    /// `is_whole`: whether all of them, and all nodes, could be listed.
    pub fn statements(&self, is_whole: bool) -> Vec<Statement> {
        let mut all = self.statements.clone();
        if self.more > 0 {
            all.push(Statement::act(
                format!("so it is with {} more", self.more),
                "mend these first, and run this again",
            ));
        }
        if !is_whole {
            all.push(Statement::fine(
                "not known (not read): DaemonSets, or the nodes that they select",
            ));
        } else if all.is_empty() {
            all.push(Statement::fine(
                "each DaemonSet selects and tolerates the nodes that it is for",
            ));
        }
        all
    }
}

/// A node as a place for pods.
fn place(node: &AnyNode) -> Place<'_> {
    Place {
        name: &node.name,
        labels: &node.labels,
        taints: &node.taints,
    }
}
