//! Other installations of Transom in the same cluster: what they manage is not removed.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::ObjectMeta;
use kube::{Client, Resource};

use super::OURS;
use crate::cluster::list::{Listing, collect};
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
    let listing = Listing::new(MutatingWebhookConfiguration::url_path(&(), None)).with_labels(OURS);
    let mutating: Vec<MutatingWebhookConfiguration> = collect(client, listing).await.map_err(unknown)?;
    let listing = Listing::new(ValidatingWebhookConfiguration::url_path(&(), None)).with_labels(OURS);
    let validating: Vec<ValidatingWebhookConfiguration> = collect(client, listing).await.map_err(unknown)?;
    let mutating = mutating.into_iter().map(|found| {
        let webhooks = found.webhooks.into_iter().flatten();
        installation(found.metadata, webhooks.map(|webhook| webhook.client_config))
    });
    let validating = validating.into_iter().map(|found| {
        let webhooks = found.webhooks.into_iter().flatten();
        installation(found.metadata, webhooks.map(|webhook| webhook.client_config))
    });
    Ok(of(mutating.chain(validating), own))
}

fn installation(found: ObjectMeta, mut clients: impl Iterator<Item = WebhookClientConfig>) -> Installation {
    Installation {
        configuration: found.name.unwrap_or_default(),
        namespace: clients.find_map(|client| Some(client.service?.namespace)),
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
