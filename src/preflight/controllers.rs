//! The controllers of custom resources: which run in the cluster, by what accounts, and whether those may be trusted with
//! what they create. An image is a sign, never a proof, because a tenant can run the same one: an account is proposed only if
//! it may create the objects in every namespace, and the administrator confirms it by installing with the values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::gmsa::account_of;
use super::helm_values::HelmValues;
use super::{ClusterInput, PreflightFinding};
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::environment::Account;
use crate::model::objects::object::Object;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::requester::qualified;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::count;
use crate::model::windows::image::ImageRef;
use crate::scan::{OwnerOutcome, OwnerResult};

/// The maximum number of accounts that are asked about.
const MOST_ACCOUNTS: usize = 64;

/// The controller of a project, as the project's manifests install it.
struct KnownController {
    project: &'static str,
    /// The ends of the repositories of its image: whole parts of the path; `*` at the end stands for any end of the last part.
    images: &'static [&'static str],
    /// The kinds of which it is the controller. Empty: it creates objects whose owners Transom does not evaluate, or that
    /// have none.
    kinds: &'static [Kind],
    /// Where the image is named.
    #[cfg_attr(not(test), expect(dead_code, reason = "for those who maintain the rows"))]
    source: &'static str,
}

/// As of 2026-11-29.
static CONTROLLERS: [KnownController; 10] = [
    KnownController {
        project: "Argo Rollouts",
        images: &["argo-rollouts"],
        kinds: &[Kind::Rollout],
        source: "https://github.com/argoproj/argo-rollouts/blob/master/manifests/base/argo-rollouts-deployment.yaml",
    },
    KnownController {
        project: "Argo Workflows",
        images: &["workflow-controller"],
        kinds: &[Kind::Workflow, Kind::CronWorkflow],
        source: "https://github.com/argoproj/argo-workflows/blob/main/manifests/base/workflow-controller/workflow-controller-deployment.yaml",
    },
    KnownController {
        project: "Tekton Pipelines",
        images: &[
            "tektoncd/pipeline/cmd/controller",
            "tektoncd/pipeline/controller*",
            "pipelines-controller*",
        ],
        kinds: &[Kind::TaskRun, Kind::PipelineRun],
        source: "https://github.com/tektoncd/pipeline/blob/main/config/controller.yaml",
    },
    KnownController {
        project: "OpenKruise",
        images: &["kruise-manager"],
        kinds: &[Kind::CloneSet, Kind::AdvancedDaemonSet],
        source: "https://github.com/openkruise/charts/blob/master/versions/kruise/next/values.yaml",
    },
    KnownController {
        project: "KEDA",
        images: &["keda", "keda-operator"],
        kinds: &[Kind::ScaledJob],
        source: "https://github.com/kedacore/charts/blob/main/keda/values.yaml",
    },
    KnownController {
        project: "Knative Serving",
        images: &["serving/cmd/controller"],
        kinds: &[],
        source: "https://github.com/knative/serving/blob/main/config/core/deployments/controller.yaml",
    },
    KnownController {
        project: "Jenkins",
        images: &["jenkins/jenkins"],
        kinds: &[],
        source: "https://github.com/jenkinsci/helm-charts/blob/main/charts/jenkins/values.yaml",
    },
    KnownController {
        project: "GitLab Runner",
        images: &["gitlab-runner"],
        kinds: &[],
        source: "https://gitlab.com/gitlab-org/charts/gitlab-runner/-/blob/main/values.yaml",
    },
    KnownController {
        project: "Actions Runner Controller",
        images: &["gha-runner-scale-set-controller"],
        kinds: &[],
        source: "https://github.com/actions/actions-runner-controller/blob/master/charts/gha-runner-scale-set-controller/values.yaml",
    },
    KnownController {
        project: "Agones",
        images: &["agones-controller"],
        kinds: &[Kind::Fleet, Kind::GameServerSet, Kind::GameServer],
        source: "https://github.com/googleforgames/agones/blob/main/install/helm/agones/values.yaml",
    },
];

impl KnownController {
    /// The controller that an image is of, by its repository.
    fn of_image(text: &str) -> Option<&'static Self> {
        let image = ImageRef::parse(text).ok()?;
        let parts: Vec<&str> = image.repository.split('/').collect();
        let ends_with = |end: &str| {
            let end: Vec<&str> = end.split('/').collect();
            let last = parts
                .len()
                .checked_sub(end.len())
                .and_then(|from| parts.get(from..));
            last.is_some_and(|last| last.iter().zip(end).all(|(part, wanted)| is_like(part, wanted)))
        };
        CONTROLLERS
            .iter()
            .find(|known| known.images.iter().any(|end| ends_with(end)))
    }
}

/// Whether a part of a path is this one, or begins like it if it ends in `*`.
fn is_like(part: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(begin) => part.starts_with(begin),
        None => part == wanted,
    }
}

/// A workload that runs the image of a controller.
struct FoundController {
    known: &'static KnownController,
    /// As in `Deployment argo-rollouts/argo-rollouts`.
    title: String,
    account: Account,
}

/// The Windows workloads of a custom kind.
#[derive(Default)]
struct CustomOwners {
    all: usize,
    denied: usize,
}

/// What was seen of custom resources and their controllers.
#[derive(Default)]
pub struct Controllers {
    found: Vec<FoundController>,
    /// By the name of the kind.
    owners: BTreeMap<String, CustomOwners>,
    /// The kinds that the cluster serves.
    served: Vec<Kind>,
    /// Which accounts may create objects of which kinds in every namespace.
    may_create: BTreeMap<(Account, &'static str), bool>,
    /// What could not be asked.
    unread: Option<String>,
}

impl std::fmt::Debug for Controllers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controllers").finish_non_exhaustive()
    }
}

impl Controllers {
    /// The kinds that the cluster serves.
    pub fn serve(&mut self, lists: &CustomLists) {
        self.served = lists.kinds.iter().map(|(kind, _)| *kind).collect();
    }

    /// Visits an evaluated owner.
    pub fn visit(&mut self, owner_result: &OwnerResult, is_windows: bool) {
        let kind = owner_result.kind;
        if kind.is_custom() && kind.creates().is_some() && is_windows {
            let owners = self.owners.entry(qualified(kind)).or_default();
            owners.all += 1;
            owners.denied += usize::from(owner_result.outcome == OwnerOutcome::Denied);
        }
    }

    /// Visits an object: it may run a controller.
    pub fn visit_object(&mut self, subject: &Object<'_>, json: &str) {
        if !matches!(
            subject.kind,
            Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet
        ) {
            return;
        }
        let mut images = subject.pod().into_iter().flat_map(PodSpec::images);
        if let Some(known) = images.find_map(KnownController::of_image) {
            self.found.push(FoundController {
                known,
                title: WorkloadName::of(subject.kind, &subject.namespace, &subject.meta.name).to_string(),
                account: Account {
                    namespace: subject.namespace.to_string(),
                    name: account_of(subject, json),
                },
            });
        }
    }

    /// The accounts, each with the kinds that it must be able to create.
    pub fn questions(&self) -> BTreeMap<(Account, &'static str), Kind> {
        let mut questions = BTreeMap::new();
        for found in self.found.iter().take(MOST_ACCOUNTS) {
            for created in self.kinds_of(found.known).filter_map(Kind::creates) {
                questions.insert((found.account.clone(), created.as_str()), created);
            }
        }
        questions
    }

    /// Records the answers. `unread`: what could not be asked.
    pub fn answer(&mut self, may_create: BTreeMap<(Account, &'static str), bool>, unread: Option<String>) {
        (self.may_create, self.unread) = (may_create, unread);
    }

    /// The kinds of a controller that the cluster serves.
    fn kinds_of(&self, known: &'static KnownController) -> impl Iterator<Item = Kind> + '_ {
        known
            .kinds
            .iter()
            .copied()
            .filter(|kind| self.served.contains(kind))
    }

    /// The kinds of a found controller whose objects it may create in every namespace; `None` if that is not known.
    fn trusted_kinds(&self, found: &FoundController) -> Option<BTreeSet<String>> {
        let mut kinds = BTreeSet::new();
        for kind in self.kinds_of(found.known) {
            let created = kind.creates()?.as_str();
            if *self.may_create.get(&(found.account.clone(), created))? {
                kinds.insert(qualified(kind));
            }
        }
        Some(kinds)
    }

    /// The proposed accounts, with their kinds.
    fn proposals(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut proposals: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for found in &self.found {
            let kinds = self.trusted_kinds(found).unwrap_or_default();
            if !kinds.is_empty() {
                proposals
                    .entry(found.account.username())
                    .or_default()
                    .extend(kinds);
            }
        }
        proposals
    }

    /// Adds the proposed accounts to the values.
    pub fn add_to(&self, values: &mut HelmValues) {
        let proposals = self.proposals();
        if proposals.is_empty() {
            return;
        }
        let entries = proposals.into_iter();
        let entries: Vec<Value> = entries
            .map(|(username, kinds)| json!({"username": username, "kinds": kinds}))
            .collect();
        values.add(
            &["cluster", "controllers"],
            Value::from(entries),
            "each account runs the controller of these kinds, by its image, and may create their objects in every namespace; \
             remove the accounts that you do not trust",
        );
    }

    /// The findings about the controllers whose objects were visited.
    pub fn findings(&self, input: ClusterInput<'_>, not_listed: &BTreeSet<String>) -> Vec<PreflightFinding> {
        let mut all: Vec<PreflightFinding> = self.found.iter().map(|found| self.of_found(found)).collect();
        all.extend(self.without_controller());
        let lists = ["deployments", "statefulsets", "daemonsets"].into_iter();
        let unread = lists
            .filter(|resource| not_listed.contains(*resource))
            .chain(input.unread(&["API groups"]));
        let ending = PreflightFinding::ending(&all, unread, "none is recognized");
        all.extend(ending);
        all
    }

    fn of_found(&self, found: &FoundController) -> PreflightFinding {
        let (project, username) = (found.known.project, found.account.username());
        let runs = format!("{project} runs as {username}");
        let kinds: Vec<String> = self.kinds_of(found.known).map(qualified).collect();
        let finding = if kinds.is_empty() {
            PreflightFinding::fine(format!(
                "{runs}: what it creates is evaluated as if a person had created it"
            ))
        } else {
            let kinds = kinds.join(" and ");
            match self.trusted_kinds(found) {
                None => PreflightFinding::act(
                    format!(
                        "{runs}, and whether it may create the objects of {kinds} is not known (not read)"
                    ),
                    "run this again with an account that may create subjectaccessreviews",
                ),
                Some(trusted) if trusted.is_empty() => PreflightFinding::act(
                    format!(
                        "{runs}, which may not create the objects of {kinds} in every namespace: the values do not list it"
                    ),
                    "if you trust it with the objects of every namespace, list it in cluster.controllers",
                ),
                Some(trusted) => PreflightFinding::act(
                    format!(
                        "{runs}: until you confirm it as the controller of {}, the next rollout or run of a workload that would be \
                         denied is denied too",
                        trusted.into_iter().collect::<Vec<_>>().join(" and ")
                    ),
                    "the values below list it in cluster.controllers; remove the entry if you do not trust it",
                ),
            }
        };
        finding.by([&found.title])
    }

    /// Windows workloads of kinds for which no account is proposed.
    fn without_controller(&self) -> impl Iterator<Item = PreflightFinding> {
        let proposed: BTreeSet<String> = self.proposals().into_values().flatten().collect();
        let owners = self
            .owners
            .iter()
            .filter(move |(kind, _)| !proposed.contains(*kind));
        owners.map(|(kind, owners)| {
            let denied = match owners.denied {
                0 => String::new(),
                denied => format!("; the next rollouts or runs of {denied} of them are denied"),
            };
            PreflightFinding::act(
                format!(
                    "the controller of {} of kind {kind} is not known, so what it creates is evaluated as if a person had created \
                     it{denied}",
                    count(owners.all, "Windows workload")
                ),
                "list the account of its controller in cluster.controllers",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::objects::workload::CUSTOM_WORKLOADS;

    #[test]
    fn a_controller_is_recognized_by_the_whole_end_of_its_repository() {
        for (image, project) in [
            ("quay.io/argoproj/argo-rollouts:v1.8.0", Some("Argo Rollouts")),
            (
                "mirror.example/argo-rollouts@sha256:0123456789012345678901234567890123456789012345678901234567890123",
                Some("Argo Rollouts"),
            ),
            ("quay.io/argoproj/kubectl-argo-rollouts:v1.8.0", None),
            (
                "gcr.io/tekton-releases/github.com/tektoncd/pipeline/cmd/controller:v0.60.0",
                Some("Tekton Pipelines"),
            ),
            (
                "ghcr.io/tektoncd/pipeline/controller-10a3e32792f33651396d02b6855a6e36:v1.0.0",
                Some("Tekton Pipelines"),
            ),
            (
                "ghcr.io/tektoncd/pipeline/webhook-d4749e605405422fd87700164e31b2d1:v1.0.0",
                None,
            ),
            ("openkruise/kruise-manager:v1.7.0", Some("OpenKruise")),
            ("ghcr.io/kedacore/keda:2.16.0", Some("KEDA")),
            ("ghcr.io/kedacore/keda-metrics-apiserver:2.16.0", None),
            ("jenkins/jenkins:lts", Some("Jenkins")),
            ("registry.example/app:1", None),
        ] {
            let known = KnownController::of_image(image);
            assert_eq!(known.map(|known| known.project), project, "{image}");
        }
        for known in &CONTROLLERS {
            assert!(known.source.starts_with("https://"), "{}", known.project);
            assert!(
                known.kinds.iter().all(|kind| kind.creates().is_some()),
                "{}",
                known.project
            );
        }
        let without = CUSTOM_WORKLOADS.iter().map(|custom| custom.kind).filter(|kind| {
            let is_known = CONTROLLERS.iter().any(|known| known.kinds.contains(kind));
            kind.creates().is_some() && !is_known
        });
        assert_eq!(
            without.collect::<Vec<_>>(),
            [],
            "whose controller nobody would be told to confirm"
        );
    }
}
