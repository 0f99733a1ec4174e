//! The facts that administrators state about their cluster, as an installation of Transom has them: in a ConfigMap that its
//! webhook configurations name.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use kube::{Api, Client};

use super::errors::{ApiError, answered_within};
use super::list::UnreadPart;
use super::snapshot::StatedCluster;
use super::webhook_configurations::{configuration, resources};
use crate::api::{in_one_line, read_cluster_config};
use crate::registration::configuration_name;
use crate::registration::configurations::Configuration;

/// The key of the file in its ConfigMap.
pub const CLUSTER_CONFIG_KEY: &str = "cluster.yaml";
/// The longest text about a file that cannot be used.
const LONGEST_PROBLEM: usize = 2048;

/// Reads the facts of a file. `name`: of the file, for the problem.
///
/// # Errors
/// Why the file cannot be used, as one line.
pub fn read(name: &str, bytes: Vec<u8>) -> Result<StatedCluster, String> {
    match read_cluster_config(bytes) {
        Ok(file) => Ok(StatedCluster {
            config: Arc::new(file.config),
            hash: Some(file.hash.into()),
            problem: None,
        }),
        Err(problems) => {
            let lines: Vec<String> = problems
                .iter()
                .map(|problem| format!("{name}:{problem}"))
                .collect();
            Err(in_one_line(&lines, LONGEST_PROBLEM))
        }
    }
}

/// Reads the facts of an installation from the ConfigMap that one of its webhook configurations names; `None` if it names none.
///
/// # Errors
/// The ConfigMap cannot be read, or what it says cannot be used.
pub async fn of_installation(
    client: &Client,
    registered: &Configuration,
    patience: Duration,
) -> Result<Option<StatedCluster>, UnreadPart> {
    let named = registered.cluster_config_map.as_deref();
    let Some((namespace, name)) = named.and_then(|named| named.split_once('/')) else {
        return Ok(None);
    };
    let part = format!("configmap {name} of {namespace}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = answered_within(patience, maps.get(name)).await;
    let map = map.map_err(|why| UnreadPart::new(&part, &why))?;
    let text = map
        .data
        .unwrap_or_default()
        .remove(CLUSTER_CONFIG_KEY)
        .unwrap_or_default();
    match read(&part, text.into_bytes()) {
        Ok(stated) => Ok(Some(stated)),
        Err(problem) => Err(UnreadPart::new(&part, &ApiError::Other(problem))),
    }
}

/// The same for an installation of which only the name is known.
///
/// # Errors
/// The configuration or the ConfigMap cannot be read, or what it says cannot be used.
pub async fn of_installation_named(
    client: &Client,
    installation: &str,
    patience: Duration,
) -> Result<Option<StatedCluster>, UnreadPart> {
    let [_, validating] = resources();
    let name = configuration_name(installation);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &validating);
    let found = answered_within(patience, api.get_opt(&name)).await;
    let found = found.map_err(|why| UnreadPart::new(&*validating.plural, &why))?;
    of_installation(client, &configuration(name, found.as_ref()), patience).await
}
