//! Reads what shows which default node selectors of namespaces are in effect: a page of pods of each namespace that
//! states one, and OpenShift's Scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use serde_json::Value;

use super::cache::CachedNamespace;
use super::errors::ApiError;
use super::list::Listing;
use crate::engine::namespace_selector::is_added_to;
use crate::model::cluster::facts::Facts;
use crate::model::nodes::namespace_selector::parse;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::process::today;

/// How many namespaces are checked, in the order of their names. The policy decides for the others.
const MOST_NAMESPACES: usize = 100;
/// How many pods of each.
const MOST_PODS: u32 = 50;

/// The namespaces with the annotation of PodNodeSelector, with its value.
pub fn stated(namespaces: &BTreeMap<String, Arc<CachedNamespace>>) -> BTreeMap<String, String> {
    let stated = namespaces.iter().filter_map(|(name, namespace)| {
        let stated = namespace.stated_selectors.plugin.as_ref()?;
        Some((name.clone(), stated.clone()))
    });
    stated.take(MOST_NAMESPACES).collect()
}

/// Those of these namespaces whose pods show that the API server adds the selector. A namespace whose pods cannot be read
/// without the right shows nothing; after another error, it shows what it showed `before`.
pub async fn shown(
    client: &Client,
    stated: &BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let facts = Facts::new(Facts::KUBERNETES, today());
    let mut shown = BTreeMap::new();
    for (namespace, text) in stated {
        let Some(selector) = parse(text) else { continue };
        let mut is_shown = false;
        let visit = |json: &str| {
            let pod = Object::parse(Kind::Pod, json, ReviewStage::Stored);
            is_shown = is_shown || pod.is_ok_and(|pod| is_added_to(&pod, &selector, &facts));
        };
        let pods = Listing::new("/api/v1/pods").in_namespace(namespace);
        match pods.first(client, MOST_PODS, visit).await {
            Ok(()) => {}
            // Without the right, the other namespaces cannot be read either.
            Err(ApiError::Forbidden(why)) => {
                tracing::debug!("cannot look at the pods of namespaces with a default node selector: {why}");
                break;
            }
            Err(why) => {
                tracing::debug!(namespace, "cannot read pods: {why}");
                is_shown = before.get(namespace) == Some(text);
            }
        }
        if is_shown {
            shown.insert(namespace.clone(), text.clone());
        }
    }
    shown
}

/// The default node selector of OpenShift's Scheduler; empty if it states none, or may not be read.
///
/// # Errors
/// The API server does not answer.
pub async fn openshift_default(client: &Client) -> Result<String, ApiError> {
    let schedulers = Listing::new("/apis/config.openshift.io/v1/schedulers");
    match schedulers.get(client, "cluster").await {
        Ok(json) => {
            let scheduler: Value = serde_json::from_str(&json).unwrap_or_default();
            let default = scheduler.pointer("/spec/defaultNodeSelector");
            Ok(default.and_then(Value::as_str).unwrap_or_default().to_owned())
        }
        Err(ApiError::Forbidden(_) | ApiError::NotFound) => Ok(String::new()),
        Err(why) => Err(why),
    }
}
