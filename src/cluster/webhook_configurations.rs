//! Watches both webhook configurations: their content for snapshots, whether they exist for the log and the metrics, and
//! the stored objects for the certificate task, which writes their `caBundle`.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use super::watch_staleness::WatchStaleness;
use super::watches::object::{ObservedObject, watch_object};
use crate::process::metrics::{MetricLabels, Metrics};
use crate::process::tasks::Tasks;
use crate::registration::configurations::{Configuration, Configurations};

/// What the watches of both configurations publish.
#[derive(Debug)]
pub struct WebhookConfigurations {
    /// The content of both, once both were listed; it changes only if an entry does.
    pub registered: watch::Receiver<Option<Arc<Configurations>>>,
    /// Each one as it is stored, the mutating one first.
    pub stored: [watch::Receiver<ObservedObject<DynamicObject>>; 2],
}

impl WebhookConfigurations {
    /// Starts the watches of the two configurations of this name.
    pub fn start(
        tasks: &mut Tasks,
        client: &Client,
        staleness: &WatchStaleness,
        name: &str,
        metrics: &Metrics,
    ) -> Self {
        let (publish, registered) = watch::channel(None);
        let presence = Arc::new(Mutex::new(ConfigurationPresence::new(metrics, publish)));
        let mut start = |which, task, resource: &ApiResource, watched: &'static str| {
            let (send, stored) = watch::channel(None);
            let api = Api::all_with(staleness.client(client, watched), resource);
            let title = format!("{} {name}", resource.kind);
            let (name, presence) = (name.to_owned(), Arc::clone(&presence));
            tasks.spawn(task, async move {
                let seen = |object: Option<Arc<DynamicObject>>| {
                    let mut presence = presence.lock().unwrap_or_else(PoisonError::into_inner);
                    presence.see(which, &title, object.as_deref());
                    send.send_replace(Some(object));
                };
                watch_object(api, &name, watched, seen).await;
            });
            stored
        };
        let [mutating, validating] = resources();
        let stored = [
            start(0, "mutating webhooks", &mutating, "mutatingwebhookconfigurations"),
            start(
                1,
                "validating webhooks",
                &validating,
                "validatingwebhookconfigurations",
            ),
        ];
        WebhookConfigurations { registered, stored }
    }
}

/// The resources of both configurations, the mutating one first.
pub fn resources() -> [ApiResource; 2] {
    [
        ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    ]
}

/// The content of a configuration; of one that does not exist, `None`.
pub fn configuration(title: String, object: Option<&DynamicObject>) -> Configuration {
    let read = Configuration::read(title, object.map(|object| &object.data["webhooks"]));
    match object.and_then(|object| object.metadata.annotations.as_ref()) {
        Some(annotations) => read.annotated(annotations),
        None => read,
    }
}

/// The values of the label, in the order of the two configurations.
const TYPES: [&str; 2] = ["mutating", "validating"];

/// The last observed state of both configurations.
struct ConfigurationPresence {
    present: Family<MetricLabels, Gauge>,
    drift: Family<MetricLabels, Gauge>,
    seen: [Option<Configuration>; 2],
    registered: watch::Sender<Option<Arc<Configurations>>>,
}

impl ConfigurationPresence {
    /// Nothing was observed yet.
    fn new(metrics: &Metrics, registered: watch::Sender<Option<Arc<Configurations>>>) -> Self {
        let drift = "Entries of a webhook configuration that are not as Transom registers them";
        ConfigurationPresence {
            present: metrics.add(
                "webhook_configuration_present",
                "Whether a webhook configuration exists and has entries",
            ),
            drift: metrics.add("webhook_configuration_drift", drift),
            seen: [None, None],
            registered,
        }
    }

    /// Records the current state of one of the two configurations.
    fn see(&mut self, which: usize, title: &str, object: Option<&DynamicObject>) {
        // `which` is 0 or 1: there are two configurations, and both lists have two elements.
        let seen = &mut self.seen[which];
        let gone = if object.is_some() {
            "has no entries"
        } else {
            "is not there"
        };
        let now = configuration(title.to_owned(), object);
        let is_there = !now.entries.is_empty();
        let labels = [("type", TYPES[which])];
        (self.present.get_or_create(&labels)).set(i64::from(is_there));
        let drift = now.drift(which == 0);
        let entries = i64::try_from(drift.len()).unwrap_or(i64::MAX);
        self.drift.get_or_create(&labels).set(entries);
        let is_known = seen
            .as_ref()
            .is_some_and(|before| before.drift(which == 0) == drift);
        if !drift.is_empty() && !is_known {
            tracing::warn!(
                configuration = title,
                "the webhook configuration is not as Transom registers it: {}; restore it with helm upgrade, or with transom \
                 generate webhooks",
                drift.join("; ")
            );
        }
        let was_there = seen.as_ref().map(|before| !before.entries.is_empty());
        match (was_there, is_there) {
            (Some(true), false) => tracing::warn!(
                configuration = title,
                "the webhook configuration {gone} any more: the API server no longer calls Transom; restore it with helm \
                 upgrade, or with transom generate webhooks"
            ),
            (None, false) => tracing::info!(
                configuration = title,
                "the webhook configuration {gone} yet: the API server does not call Transom; it comes with the chart, or \
                 from transom generate webhooks"
            ),
            (Some(false), true) => tracing::info!(
                configuration = title,
                "the webhook configuration exists: the API server calls Transom"
            ),
            (Some(true) | None, true) | (Some(false), false) => {}
        }
        *seen = Some(now);
        self.publish();
    }

    /// Publishes both configurations once both are known.
    fn publish(&self) {
        if let [Some(mutating), Some(validating)] = &self.seen {
            let registered = Configurations {
                mutating: mutating.clone(),
                validating: validating.clone(),
            };
            self.registered.send_if_modified(|published| {
                let differs = published.as_deref() != Some(&registered);
                if differs {
                    *published = Some(Arc::new(registered));
                }
                differs
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::process::test_log::Log;
    use crate::registration::{RegistrationOptions, mutating};

    fn levels(log: &Log) -> Vec<String> {
        let text = log.take();
        let level = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        text.lines().map(level).collect()
    }

    #[test]
    fn a_configuration_that_goes_and_comes_back_is_reported_once_each_time_and_shown_as_a_gauge() {
        let log = Log::default();
        let _listening = log.listen();
        let (metrics, (sender, latest)) = (Metrics::new("0", None), watch::channel(None));
        let mut presence = ConfigurationPresence::new(&metrics, sender);
        let shown = |name: &str, r#type: &str| {
            let text = metrics.expose();
            let start = format!("transom_{name}{{type=\"{type}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&start).map(str::to_owned))
        };
        let gauge = |r#type: &str| shown("webhook_configuration_present", r#type);
        let published = |entries: serde_json::Value| -> DynamicObject {
            let object = json!({"metadata": {"name": "zz-transom"}, "webhooks": entries});
            serde_json::from_value(object).unwrap()
        };
        let registered = serde_json::to_value(mutating(&RegistrationOptions::default())).unwrap();
        let there = published(registered["webhooks"].clone());
        let empty = published(json!([]));

        assert_eq!(gauge("mutating"), None);
        presence.see(0, "m", Some(&there));
        assert!(latest.borrow().is_none(), "the other one is not known yet");
        presence.see(1, "v", None);
        assert_eq!(
            (gauge("mutating").as_deref(), gauge("validating").as_deref()),
            (Some("1"), Some("0"))
        );
        assert_eq!(levels(&log), ["INFO"], "it is not there yet");
        assert_eq!(latest.borrow().as_ref().unwrap().mutating.entries.len(), 1);

        presence.see(0, "m", None);
        presence.see(0, "m", None);
        presence.see(0, "m", Some(&empty));
        assert_eq!(levels(&log), ["WARN"]);
        assert_eq!(gauge("mutating").as_deref(), Some("0"));
        presence.see(0, "m", Some(&there));
        presence.see(0, "m", Some(&there));
        assert_eq!(levels(&log), ["INFO"]);
        presence.see(0, "m", Some(&empty));
        assert_eq!(levels(&log), ["WARN"]);
        assert!(latest.borrow().as_ref().unwrap().mutating.entries.is_empty());

        // Someone widened the rules manually.
        let drift = || shown("webhook_configuration_drift", "mutating");
        assert_eq!(drift().as_deref(), Some("0"));
        let mut widened = registered["webhooks"].clone();
        widened[0]["rules"] =
            json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
        presence.see(0, "m", Some(&published(widened)));
        assert_eq!(drift().as_deref(), Some("1"));
        assert!(
            log.take()
                .contains("its rules match more than Transom evaluates (* */*/*/*)")
        );
        presence.see(0, "m", Some(&there));
        assert_eq!(drift().as_deref(), Some("0"));
    }
}
