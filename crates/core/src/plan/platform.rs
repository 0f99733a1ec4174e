//! What the platforms of nodes state about the build to upgrade to.

use std::collections::BTreeSet;

use super::Planner;
use crate::model::knowledge::{NodePlatform, product};
use crate::model::nodes::node::major_minor;
use crate::model::windows::build::Build;

impl Planner<'_> {
    /// What differs on nodes of the new build by the platforms of the Windows nodes, and whether these support it with the
    /// releases of Kubernetes that the nodes run.
    pub(super) fn platform_notes(&self, to: Build) -> Vec<String> {
        let of_node = |versions: &crate::model::knowledge::NodeVersions| {
            let minor = major_minor(&versions.kubelet).map(|(_, minor)| minor);
            versions.platform.map(|platform| (platform, minor))
        };
        let nodes: BTreeSet<(NodePlatform, Option<u32>)> = self
            .nodes
            .all()
            .filter_map(|node| of_node(&node.versions))
            .collect();
        let mut notes = Vec::new();
        for platform in nodes
            .iter()
            .map(|(platform, _)| *platform)
            .collect::<BTreeSet<_>>()
        {
            let Some(row) = self.facts.knowledge.support_of(platform, to) else {
                continue;
            };
            let (product, source) = (product(to), &row.source);
            if let Some(differs) = &row.differs {
                notes.push(format!("{product} on {platform}: {differs} [{source}]"));
            }
            let minors = || {
                nodes
                    .iter()
                    .filter(|(of, _)| *of == platform)
                    .filter_map(|(_, minor)| *minor)
            };
            let too_old = row
                .first_minor
                .zip(minors().min())
                .filter(|(first, minor)| minor < first);
            if let Some((first, minor)) = too_old {
                notes.push(format!(
                    "{platform} supports {product} from Kubernetes 1.{first}, and nodes run 1.{minor}: upgrade Kubernetes first [{source}]"
                ));
            }
            let too_new = row
                .last_minor
                .zip(minors().max())
                .filter(|(last, minor)| minor > last);
            if let Some((last, minor)) = too_new {
                notes.push(format!(
                    "{platform} supports {product} up to Kubernetes 1.{last}, and nodes run 1.{minor} [{source}]"
                ));
            }
        }
        notes
    }
}
