//! Which custom resources with pods a cluster serves, by discovery. A kind that it does not have is not listed, and its absence
//! is no gap.

use std::collections::BTreeSet;

use kube::Client;

use super::errors::{ApiError, answered};
use crate::model::workload::Kind;
use crate::model::workload::configured::ConfiguredKind;
use crate::model::workload::custom::CUSTOM_WORKLOADS;

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
    pub async fn read(client: &Client, configured: &BTreeSet<ConfiguredKind>) -> Self {
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
            let wanted: Vec<Kind> = (wanted.iter().copied())
                .filter(|kind| kind.group() == group.name)
                .collect();
            let version = group
                .preferred_version
                .or_else(|| group.versions.first().cloned());
            let Some(version) = version.filter(|_| !wanted.is_empty()) else {
                continue;
            };
            match answered(client.list_api_group_resources(&version.group_version)).await {
                Ok(served) => lists.kinds.extend(wanted.into_iter().filter_map(|kind| {
                    let resource = (served.resources.iter()).find(|resource| {
                        resource.kind == kind.as_str() && resource.namespaced && !resource.name.contains('/')
                    })?;
                    Some((kind, format!("/apis/{}/{}", version.group_version, resource.name)))
                })),
                Err(error) => lists.unknown.push((group.name, error)),
            }
        }
        lists
    }
}
