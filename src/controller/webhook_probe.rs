//! Checks whether webhook calls of the API server arrive: the leader creates a pod as a dry run that its own webhooks
//! answer. A replica cannot notice otherwise that a firewall blocks the calls, that its certificate is not trusted,
//! or that its Service has no endpoints.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::leader_loop::{Controller, PassResult};
use crate::cluster::errors::words;
use crate::cluster::snapshot::Snapshot;
use crate::model::objects::webhook_probe::{PROBE_ANNOTATION, PROBED_ANNOTATION, marked_by, parse_rejection};
use crate::registration::configurations::{Configurations, CoverageGap};
use crate::registration::names;

const EVERY: Duration = Duration::from_secs(60);
/// The delay after a change of the registration: API servers follow it within about a second.
const SETTLE: Duration = Duration::from_secs(3);
/// How many probes in a row must fail before this is reported: a single endpoint may just be terminating.
const TIMES: usize = 3;
/// The delay between two of them.
const AGAIN: Duration = Duration::from_secs(2);
/// The timeout of a probe: both webhooks may use up their own timeouts.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whether webhook calls arrive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    /// The calls of both webhooks arrive.
    Arrives,
    /// They arrive, and at these other installations too.
    Shared(String),
    /// Some calls do not arrive.
    Lost {
        /// Whether calls of `/mutate` arrive.
        mutating: bool,
        /// Whether calls of `/validate` arrive.
        validating: bool,
        /// The error of the API server.
        why: String,
    },
    /// The probe gave no result, for this reason.
    Unknown(String),
}

impl ProbeResult {
    /// Keeps the previous result if the failure is the same. The text contains a port or a name that differs each
    /// time, and that must not cause another status write.
    fn after(self, before: Option<&ProbeResult>) -> ProbeResult {
        let is_same = match (&self, before) {
            (
                ProbeResult::Lost {
                    mutating, validating, ..
                },
                Some(ProbeResult::Lost {
                    mutating: m,
                    validating: v,
                    ..
                }),
            ) => (mutating, validating) == (m, v),
            (ProbeResult::Unknown(_), Some(ProbeResult::Unknown(_))) => true,
            _ => false,
        };
        match before {
            Some(before) if is_same => before.clone(),
            _ => self,
        }
    }

    /// What to do if calls do not arrive, or arrive elsewhere too.
    pub fn problem(&self) -> Option<CoverageGap> {
        let (reason, message) = match self {
            ProbeResult::Arrives | ProbeResult::Unknown(_) => return None,
            ProbeResult::Lost {
                mutating,
                validating,
                why,
            } => ("WebhookProbeFailed", lost(*mutating, *validating, why)),
            ProbeResult::Shared(others) => (
                "InstalledTwice",
                format!(
                    "another installation of Transom reviews the same pods ({others}), so two leaders write the same \
                     statuses and nodes; uninstall one of them"
                ),
            ),
        };
        Some(CoverageGap { reason, message })
    }
}

fn lost(mutating: bool, validating: bool, why: &str) -> String {
    let which = match (mutating, validating) {
        (false, false) => "/mutate and /validate",
        (false, true) => "/mutate",
        _ => "/validate",
    };
    format!(
        "calls of the API server to {which} do not arrive, so failurePolicy decides about Windows pods ({why}); check that \
         the webhooks are registered (transom scan), the firewall between the API server and the nodes, the endpoints of the \
         Service, and the messages \"failed calling \
         webhook\" in the API server's log"
    )
}

/// The result if these installations have answered. `own`: `None` if any one is right.
fn answered_by(installations: &[&str], own: Option<&str>) -> ProbeResult {
    let mut others = installations.to_vec();
    let Some(own) = own
        .or(installations.first().copied())
        .filter(|own| installations.contains(own))
    else {
        return ProbeResult::Lost {
            mutating: false,
            validating: true,
            why: "/validate received a probe that /mutate did not".to_owned(),
        };
    };
    others.retain(|other| *other != own);
    match others.as_slice() {
        [] => ProbeResult::Arrives,
        others => ProbeResult::Shared(others.join(", ")),
    }
}

/// Reads the answer to a probe that carries this token. `own`: this installation, as `NAMESPACE/NAME`.
fn read(word: &str, own: Option<&str>, answer: &Result<Pod, kube::Error>) -> ProbeResult {
    let error = match answer {
        Ok(pod) => {
            let annotations = pod.metadata.annotations.as_ref();
            let marked = annotations.and_then(|all| all.get(PROBED_ANNOTATION));
            return ProbeResult::Lost {
                mutating: !marked_by(word, marked.map(String::as_str)).is_empty(),
                validating: false,
                why: "a probe passed without an answer".to_owned(),
            };
        }
        Err(error) => error,
    };
    let message = words(error);
    match parse_rejection(&message, word) {
        Some(installations) => answered_by(&installations, own),
        // Another vendor's webhook may fail as well, which proves nothing about Transom's webhooks. The names of all of these
        // end with one of two.
        None if message.contains("failed calling webhook")
            && [names::MUTATE, names::VALIDATE]
                .iter()
                .any(|name| message.contains(name)) =>
        {
            // `/mutate` is called first, and fails open.
            let of_mutate = message.contains(names::MUTATE);
            ProbeResult::Lost {
                mutating: !of_mutate,
                validating: of_mutate,
                why: message,
            }
        }
        None => ProbeResult::Unknown(message),
    }
}

/// Probes every minute, and after a change of the registration, and publishes the result; publishes nothing while another
/// replica leads.
pub struct ProbeController {
    pods: Api<Pod>,
    namespace: String,
    /// This installation, as `NAMESPACE/NAME`.
    installation: Arc<str>,
    publish: watch::Sender<Option<Arc<ProbeResult>>>,
    /// What was registered at the last probe.
    registered: Option<Arc<Configurations>>,
    due: Instant,
}

impl ProbeController {
    /// A controller that creates its probes in this namespace. `installation`: as `NAMESPACE/NAME`.
    pub fn new(
        client: Client,
        namespace: &str,
        installation: Arc<str>,
        publish: watch::Sender<Option<Arc<ProbeResult>>>,
    ) -> Self {
        ProbeController {
            pods: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            installation,
            publish,
            registered: None,
            due: Instant::now(),
        }
    }

    fn publish(&self, known: Option<ProbeResult>) {
        let before = self.publish.borrow().clone();
        let known = known.map(|known| Arc::new(known.after(before.as_deref())));
        log_change(&self.namespace, before.as_deref(), known.as_deref());
        self.publish.send_replace(known);
    }
}

impl Controller for ProbeController {
    const EVERY: Duration = EVERY;

    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        let now = Instant::now();
        if self.registered != snapshot.registered {
            self.registered.clone_from(&snapshot.registered);
            let is_first = self.publish.borrow().is_none();
            // Gives every API server of the cluster time to follow the change.
            self.due = self.due.min(now + if is_first { Duration::ZERO } else { SETTLE });
        }
        if now >= self.due {
            let known = match unprovable(&self.namespace, snapshot) {
                Some(why) => ProbeResult::Unknown(why),
                None => probe_again(&self.pods, Some(&self.installation)).await,
            };
            self.publish(Some(known));
            self.due = Instant::now() + EVERY;
        }
        let mut result = PassResult::default();
        result.wake_at(self.due);
        result
    }

    fn lost(&mut self) {
        self.publish(None);
        self.due = Instant::now();
    }
}

/// Probes without knowing what is registered, for a single check.
pub async fn once(client: Client, namespace: &str) -> ProbeResult {
    probe_again(&Api::namespaced(client, namespace), None).await
}

/// Why a probe would prove nothing.
fn unprovable(namespace: &str, snapshot: &Snapshot) -> Option<String> {
    let Some(registered) = &snapshot.registered else {
        return Some("the webhook configurations are not known yet".to_owned());
    };
    let Some(known) = snapshot.facts.namespaces.get(namespace) else {
        return Some(format!(
            "there is no namespace {namespace}; create it, or name another one"
        ));
    };
    (!registered.mutates_in(&known.labels)).then(|| {
        format!(
            "the webhooks exclude the namespace {namespace}, or are not registered; name one that they select"
        )
    })
}

async fn probe_again(pods: &Api<Pod>, own: Option<&str>) -> ProbeResult {
    let mut known = probe(pods, own).await;
    for _ in 1..TIMES {
        if !matches!(known, ProbeResult::Lost { .. }) {
            break;
        }
        sleep(AGAIN).await;
        known = probe(pods, own).await;
    }
    known
}

async fn probe(pods: &Api<Pod>, own: Option<&str>) -> ProbeResult {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let word = format!("{:x}", since.as_nanos());
    let pod = serde_json::from_value(json!({
        "metadata": {"generateName": "transom-probe-", "annotations": {PROBE_ANNOTATION: word}},
        "spec": {
            "automountServiceAccountToken": false, "restartPolicy": "Never",
            // Pod Security in a restricted namespace requires these fields of a Windows pod, and runs before
            // `/validate`.
            "os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true},
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "probe", "image": "transom.dev/probe"}],
        },
    }));
    let Ok(pod) = pod else {
        return ProbeResult::Unknown("the probe is not a pod".to_owned());
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match timeout(PATIENCE, pods.create(&params, &pod)).await {
        Ok(answer) => read(&word, own, &answer),
        Err(_) => ProbeResult::Unknown(format!("no answer from the API server within {PATIENCE:?}")),
    }
}

/// Logs a change of the result.
fn log_change(namespace: &str, before: Option<&ProbeResult>, now: Option<&ProbeResult>) {
    if before == now {
        return;
    }
    match now {
        Some(ProbeResult::Lost { .. } | ProbeResult::Shared(_)) => {
            let problem = now.and_then(ProbeResult::problem);
            // The same failure with another text is not logged again.
            if before
                .and_then(ProbeResult::problem)
                .map(|problem| problem.reason)
                != problem.as_ref().map(|it| it.reason)
            {
                tracing::error!(namespace, "{}", problem.map_or_else(String::new, |it| it.message));
            }
        }
        Some(ProbeResult::Arrives) if matches!(before, Some(ProbeResult::Lost { .. })) => {
            tracing::info!(namespace, "calls of the API server arrive again");
        }
        Some(ProbeResult::Unknown(why)) => {
            tracing::warn!(
                namespace,
                "cannot determine whether calls of the API server arrive: {why}"
            );
        }
        Some(ProbeResult::Arrives) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::model::objects::webhook_probe::{mark, rejection_message};

    #[test]
    fn the_same_trouble_keeps_its_first_words() {
        let lost = |mutating, why: &str| ProbeResult::Lost {
            mutating,
            validating: false,
            why: why.to_owned(),
        };
        let first = lost(false, "read tcp a:1");
        assert_eq!(lost(false, "read tcp a:2").after(Some(&first)), first);
        assert_eq!(lost(true, "b").after(Some(&first)), lost(true, "b"));
        let unknown = ProbeResult::Unknown("transom-probe-a is forbidden".to_owned());
        assert_eq!(
            ProbeResult::Unknown("b".to_owned()).after(Some(&unknown)),
            unknown
        );
        assert_eq!(ProbeResult::Arrives.after(Some(&first)), ProbeResult::Arrives);
        assert_eq!(lost(true, "b").after(None), lost(true, "b"));
    }

    #[test]
    fn what_the_api_server_answers_shows_which_calls_arrive() {
        let refused = |text: &str| {
            let status = Status::failure(text, "Forbidden");
            Box::new(Err(kube::Error::Api(Box::new(status))))
        };
        let passed = |annotations: serde_json::Value| {
            let pod = json!({"metadata": {"annotations": annotations}});
            Box::new(Ok(serde_json::from_value(pod).unwrap()))
        };
        let denied = |mutated_by: &[&str]| {
            let all = mutated_by.iter();
            let marked = all.fold(None, |before, one| Some(mark("w", before.as_deref(), one)));
            refused(&format!(
                "admission webhook denied the request: {}",
                rejection_message("w", marked.as_deref())
            ))
        };
        let failing = |entry: &str| {
            refused(&format!(
                "Internal error occurred: failed calling webhook \"{entry}\": timeout"
            ))
        };
        // Whether calls of /mutate and of /validate arrive; `None` if unknown.
        for (answer, expected) in [
            (denied(&["s/a"]), Some((true, true))),
            (denied(&["s/b"]), Some((false, true))),
            (denied(&[]), Some((false, true))),
            (passed(json!({})), Some((false, false))),
            (passed(json!({PROBED_ANNOTATION: "w s/a"})), Some((true, false))),
            (
                passed(json!({PROBED_ANNOTATION: "another s/a"})),
                Some((false, false)),
            ),
            (failing("validate.transom.dev"), Some((true, false))),
            (failing("certain.validate.transom.dev"), Some((true, false))),
            (failing("mutate.transom.dev"), Some((false, true))),
            (failing("validate.kyverno.svc-fail"), None),
            (refused("pods is forbidden: User cannot create resource"), None),
            (refused(&rejection_message("another", Some("another s/a"))), None),
        ] {
            let known = read("w", Some("s/a"), &answer);
            let found = match &known {
                ProbeResult::Arrives => Some((true, true)),
                ProbeResult::Lost {
                    mutating, validating, ..
                } => Some((*mutating, *validating)),
                ProbeResult::Unknown(_) | ProbeResult::Shared(_) => None,
            };
            assert_eq!(found, expected, "{answer:?}");
            assert_eq!(
                known.problem().is_some(),
                matches!(known, ProbeResult::Lost { .. })
            );
        }
        let shared = ProbeResult::Shared("t/b".to_owned());
        for own in [Some("s/a"), None] {
            assert_eq!(read("w", own, &denied(&["s/a", "t/b"])), shared);
        }
        assert_eq!(shared.problem().map(|it| it.reason), Some("InstalledTwice"));
        assert_eq!(read("w", None, &denied(&["s/a"])), ProbeResult::Arrives);
    }
}
