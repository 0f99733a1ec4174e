//! Image builds against node builds: which container runs on which node, and the number of workloads.

use std::collections::BTreeMap;

use super::release_name;
use crate::model::syntax::text::count;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, compatibility};
use crate::model::windows::os::Verdict;
use crate::scan::OwnerResult;
use crate::scan::report::ScanReport;

/// The compatibility of a container of one build with a node of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CellFit {
    /// It runs with process isolation, the default.
    Runs,
    /// The published tables disagree about process isolation.
    Disputed,
    /// It runs only with Hyper-V isolation.
    HyperV,
    /// It does not run.
    Fails,
    /// No table contains the pair, or the image name does not contain a build.
    Unknown,
}

impl CellFit {
    /// The compatibility of an image build with a node build.
    pub(super) fn of(image: Build, node: Build) -> CellFit {
        let with = |isolation| compatibility(image, node, isolation);
        match with(ContainerIsolation::Process) {
            Compatibility::Runs => CellFit::Runs,
            Compatibility::Disputed => CellFit::Disputed,
            Compatibility::Unknown => CellFit::Unknown,
            Compatibility::Fails if with(ContainerIsolation::HyperV) == Compatibility::Runs => {
                CellFit::HyperV
            }
            Compatibility::Fails => CellFit::Fails,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            CellFit::Runs => "runs (process isolation)",
            CellFit::Disputed => "disputed",
            CellFit::HyperV => "only Hyper-V",
            CellFit::Fails => "does not run",
            CellFit::Unknown => "not known",
        }
    }

    /// The CSS class of its cell.
    pub(super) fn class(self) -> &'static str {
        match self {
            CellFit::Runs => "ok",
            CellFit::Disputed | CellFit::HyperV => "warning",
            CellFit::Fails => "error",
            CellFit::Unknown => "quiet",
        }
    }
}

/// One build of nodes.
pub(super) struct Column {
    pub(super) build: Build,
    /// Its release.
    pub(super) name: &'static str,
    /// How many nodes have it.
    pub(super) nodes: usize,
}

/// One build of images; `None` for images whose names do not contain it.
#[derive(Default)]
pub(super) struct MatrixLine {
    pub(super) build: Option<Build>,
    /// The workloads with such an image.
    pub(super) workloads: usize,
    /// The pods that these workloads request.
    pub(super) pods: u64,
    /// The workloads that specify no number.
    pub(super) uncounted: usize,
    /// The compatibility, by column.
    pub(super) cells: Vec<CellFit>,
}

impl MatrixLine {
    fn add(&mut self, owner: &OwnerResult) {
        self.workloads += 1;
        match pods(owner) {
            Some(pods) => self.pods = self.pods.saturating_add(pods),
            None => self.uncounted += 1,
        }
    }

    /// The name of the build.
    pub(super) fn name(&self) -> &'static str {
        self.build.map_or("not shown by the name", release_name)
    }

    /// The number of pods as text.
    pub(super) fn pods_in_words(&self) -> String {
        match (self.pods, self.uncounted) {
            (pods, 0) => pods.to_string(),
            (0, _) => "without a number".to_owned(),
            (pods, uncounted) => format!("{pods}, and {} without a number", count(uncounted, "workload")),
        }
    }
}

/// How many pods an owner requests; a pod is one.
fn pods(owner: &OwnerResult) -> Option<u64> {
    let alone = owner.kind == crate::model::objects::workload::Kind::Pod && owner.owner.is_none();
    owner.replicas.or(alone.then_some(1))
}

pub(super) struct Matrix {
    /// The builds of the nodes, lowest first.
    pub(super) columns: Vec<Column>,
    /// The builds of the images, lowest first; unknown builds last.
    pub(super) lines: Vec<MatrixLine>,
    /// Nodes that do not report their build.
    pub(super) nodes_without_build: usize,
}

impl Matrix {
    /// The table for the Windows workloads and nodes of a report.
    pub(super) fn of(report: &ScanReport) -> Matrix {
        let (nodes, nodes_without_build) = nodes(report);
        let columns: Vec<Column> = (nodes.into_iter())
            .map(|(build, nodes)| Column {
                build,
                name: release_name(build),
                nodes,
            })
            .collect();
        let mut lines: BTreeMap<Build, MatrixLine> = BTreeMap::new();
        let mut untold = MatrixLine::default();
        for owner in report
            .owners
            .iter()
            .filter(|owner| owner.verdict == Verdict::Windows)
        {
            for build in &owner.image_builds {
                lines.entry(*build).or_default().add(owner);
            }
            if owner.has_unknown_images {
                untold.add(owner);
            }
        }
        let mut lines: Vec<MatrixLine> = (lines.into_iter())
            .map(|(image, line)| MatrixLine {
                build: Some(image),
                cells: columns
                    .iter()
                    .map(|node| CellFit::of(image, node.build))
                    .collect(),
                ..line
            })
            .collect();
        if untold.workloads > 0 {
            untold.cells = vec![CellFit::Unknown; columns.len()];
            lines.push(untold);
        }
        Matrix {
            columns,
            lines,
            nodes_without_build,
        }
    }
}

/// The number of nodes per build, and of nodes that do not report theirs.
pub(super) fn nodes(report: &ScanReport) -> (BTreeMap<Build, usize>, usize) {
    let mut known = BTreeMap::new();
    let mut untold = 0;
    for node in &report.nodes {
        match node.build.as_deref().and_then(Build::parse_kernel_version) {
            Some((build, _)) => *known.entry(build).or_default() += 1,
            None => untold += 1,
        }
    }
    (known, untold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_runs_where_the_tables_say() {
        for (image, node, fit) in [
            (17763, 17763, CellFit::Runs),
            (17763, 20348, CellFit::HyperV),
            (20348, 17763, CellFit::Fails),
            (20348, 20348, CellFit::Runs),
            (20348, 25398, CellFit::Runs),
            (20348, 26100, CellFit::Runs),
            (20348, 29000, CellFit::Disputed),
            (26100, 20348, CellFit::Fails),
            (10240, 20348, CellFit::Unknown),
        ] {
            assert_eq!(
                CellFit::of(Build::new(image), Build::new(node)),
                fit,
                "{image} on {node}"
            );
        }
    }
}
