//! Other installations of Transom in the same cluster: what they manage is not removed.

use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::Value;

use super::OURS;
use crate::cluster::list::{Listing, collect};
use crate::cluster::webhook_configurations::resources;
use crate::registration::configuration_name;

/// Another installation, found by its webhook configurations.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Installation {
    /// The name of its webhook configurations.
    configuration: String,
    /// The namespace of its Service, if it has one.
    namespace: Option<String>,
}

impl Installation {
    /// Whether it is in this namespace.
    pub(super) fn is_in(&self, namespace: &str) -> bool {
        self.namespace.as_deref() == Some(namespace)
    }
}

/// The installations that are registered under another name than `own`, without duplicates.
pub(super) async fn others(client: &Client, own: &str) -> Result<Vec<Installation>, String> {
    let unknown = |why| format!("cannot determine whether another Transom maintains nodes here: {why}");
    let mut found = Vec::new();
    for resource in resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listing = Listing::new(api.resource_url()).with_labels(OURS);
        let objects: Vec<DynamicObject> = collect(client, listing).await.map_err(unknown)?;
        found.extend(objects.into_iter().map(installation));
    }
    Ok(of(found.into_iter(), own))
}

fn installation(found: DynamicObject) -> Installation {
    let mut webhooks = found.data["webhooks"].as_array().into_iter().flatten();
    let namespace = |webhook: &Value| webhook.pointer("/clientConfig/service/namespace").cloned();
    Installation {
        namespace: webhooks
            .find_map(namespace)
            .and_then(|it| it.as_str().map(str::to_owned)),
        configuration: found.metadata.name.unwrap_or_default(),
    }
}

fn of(found: impl Iterator<Item = Installation>, own: &str) -> Vec<Installation> {
    // A configuration of another project may carry the label by accident, so the name is checked too.
    let prefix = configuration_name("");
    let mut others: Vec<Installation> = found
        .filter(|it| it.configuration != own && it.configuration.starts_with(&prefix))
        .collect();
    others.sort_by(|a, b| a.configuration.cmp(&b.configuration));
    others.dedup_by(|a, b| a.configuration == b.configuration);
    others
}

/// What stays because of them, and how to remove it.
pub(super) fn kept(others: &[Installation], what: &str) -> String {
    let names: Vec<&str> = others.iter().map(|it| it.configuration.as_str()).collect();
    format!(
        "{what}: Transom is also registered as {}, and maintains them; uninstalling the last installation removes them \
         (if only its webhook configurations are left: transom uninstall --name, without the zz-)",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_installation_is_found_once_and_no_configuration_of_another_program_counts() {
        let found = |name: &str| Installation {
            configuration: name.to_owned(),
            namespace: Some("a".to_owned()),
        };
        let list = ["zz-transom", "zz-b", "other", "zz-b", "zz-a"].map(found);
        let others = of(list.into_iter(), "zz-transom");
        assert_eq!(others, [found("zz-a"), found("zz-b")]);
        assert!(others[0].is_in("a") && !others[0].is_in("b"));
        assert!(kept(&others, "x").starts_with("x: Transom is also registered as zz-a, zz-b"));
        assert_eq!(of([found("zz-transom")].into_iter(), "zz-transom"), []);
    }
}
