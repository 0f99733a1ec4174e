//! Which custom resources with pods a cluster serves, by discovery. A kind that it does not have is not listed, and its absence
//! is no gap.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;

use super::errors::{ApiError, answered};
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::objects::workload::{CUSTOM_WORKLOADS, Kind};

/// What a cluster serves.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CustomLists {
    /// The kinds, with the paths of their lists.
    pub kinds: Vec<(Kind, String)>,
    /// The API groups, or all of them (`*`), for which the API server did not say what it serves.
    pub unknown: Vec<(String, ApiError)>,
}

impl CustomLists {
    /// Asks the API server for the built-in custom resources and these.
    pub async fn read(client: &Client, configured: &[ConfiguredKind]) -> Self {
        let built_in = CUSTOM_WORKLOADS.iter().map(|custom| custom.kind);
        let configured = configured.iter().map(|kind| Kind::Configured(*kind));
        let wanted: Vec<Kind> = built_in.chain(configured).collect();
        let mut lists = CustomLists::default();
        let groups = match answered(client.list_api_groups()).await {
            Ok(list) => list.groups,
            Err(error) => {
                lists.unknown.push(("*".to_owned(), error));
                return lists;
            }
        };
        for group in groups {
            let mut wanted: Vec<Kind> = (wanted.iter().copied())
                .filter(|kind| kind.group() == group.name)
                .collect();
            // Not every version has every kind: OpenKruise prefers one without its DaemonSet.
            for version in preferred_first(&group) {
                if wanted.is_empty() {
                    break;
                }
                match answered(client.list_api_group_resources(version)).await {
                    Ok(served) => wanted.retain(|kind| {
                        let path = path_of(*kind, &served);
                        let is_served = path.is_some();
                        lists.kinds.extend(path.map(|path| (*kind, path)));
                        !is_served
                    }),
                    Err(error) => {
                        lists.unknown.push((group.name.clone(), error));
                        break;
                    }
                }
            }
        }
        lists
    }
}

/// The versions of a group, the preferred one first.
fn preferred_first(group: &APIGroup) -> impl Iterator<Item = &str> {
    let preferred = group.preferred_version.iter();
    let others = group.versions.iter();
    let others = others.filter(|version| Some(*version) != group.preferred_version.as_ref());
    let all = preferred.chain(others);
    all.map(|version| version.group_version.as_str())
}

/// The path of the list of a kind; `None` if this version of its group does not have it.
fn path_of(kind: Kind, served: &APIResourceList) -> Option<String> {
    let mut resources = served.resources.iter();
    let resource = resources.find(|resource| {
        resource.kind == kind.as_str() && resource.namespaced && !resource.name.contains('/')
    })?;
    Some(format!("/apis/{}/{}", served.group_version, resource.name))
}

/// Whether objects of a kind are read themselves if these custom resources are listed, so that what their controllers make
/// need not be evaluated.
pub fn reads(custom: &[(Kind, String)], kind: Kind) -> bool {
    !kind.is_custom() || custom.iter().any(|(listed, _)| *listed == kind)
}
