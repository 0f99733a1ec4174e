//! One object that rules check, parsed into views, with the path of its pod template.

mod custom_pods;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeSeed;
use serde::{Deserialize, Deserializer};

use self::custom_pods::CustomPod;
use super::api_fields::UnknownField;
use super::debugger;
use super::mirror::{self, Witness};
use super::pod::PodSpec;
use super::requester::Origin;
use super::resources::{
    Autoscaler, Claim, CsiNode, EndpointSlice, Meta, MetaOnly, NamedClaimTemplate, NetworkPolicy, Node,
    PersistentVolume, RuntimeClass, Service, StorageClass,
};
use super::workload::Kind;
use super::workload::custom::PodLayout;
use crate::model::objects::known_claims::ObjectSource;
use crate::model::syntax::json_types::{List, SharedList, Str, nullable};
use crate::model::syntax::path::Path;
use crate::model::syntax::strict_json::{self, Strict};
use crate::model::windows::os::Os;

/// The stage at which the object is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReviewStage {
    /// As its author wrote it, before other webhooks: files, and the mutating phase.
    Written,
    /// As it will be stored, after every mutating webhook: the validating phase.
    Stored,
}

/// What admission may change in an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Editable {
    /// Nothing: an update, a deletion, a pod that is already placed.
    Nothing,
    /// The whole pod: a creation.
    Pod,
    /// The ephemeral containers only: `pods/ephemeralcontainers`.
    EphemeralContainers,
}

/// Who wrote the fields of an object.
pub trait FieldOwners: fmt::Debug + Sync {
    /// Whether a field manager owns a field; otherwise admission added it.
    fn owns(&self, path: &Path) -> bool;
}

/// What is known of an object in addition to its text. It is complete before the object is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct ReviewContext<'a> {
    /// The stage at which the object is evaluated.
    pub stage: ReviewStage,
    /// What admission may change in it.
    pub editable: Editable,
    pub origin: Origin,
    /// Whether it is the mirror of a static pod, which no answer can stop.
    pub is_mirror: bool,
    /// The container that `kubectl debug node/…` created, if it created the pod ([`Object::debugger`]).
    pub debugger: Option<usize>,
    /// The operating system that the author states for the file (`--os`): it applies to a pod without other evidence.
    pub stated_os: Option<Os>,
    /// The owners of its fields; `None` if its author is responsible for all of them, as in a file.
    pub owners: Option<&'a dyn FieldOwners>,
}

impl ReviewContext<'_> {
    /// An object of which nothing else is known: its author created it.
    fn of_author(kind: Kind, stage: ReviewStage) -> Self {
        let is_new_pod = kind == Kind::Pod && stage == ReviewStage::Written;
        ReviewContext {
            stage,
            editable: if is_new_pod {
                Editable::Pod
            } else {
                Editable::Nothing
            },
            origin: Origin::Author,
            is_mirror: false,
            debugger: None,
            stated_os: None,
            owners: None,
        }
    }
}

/// One object with everything that rules read. It is never changed: who knows more about it than its text makes another
/// value of it (`Object { context, ..object }`).
#[derive(Clone, Debug)]
pub struct Object<'a> {
    pub kind: Kind,
    /// The `apiVersion` as its author wrote it in a file; empty for an object of an API server, which serves all of its own.
    pub api_version: Str<'a>,
    pub meta: Arc<Meta<'a>>,
    /// The namespace: the request's, else the object's own.
    pub namespace: Str<'a>,
    pub body: Body<'a>,
    /// The pods of a custom resource, each of which is evaluated; [`Object::template`] is the first one. Empty for
    /// Kubernetes' own kinds.
    pub custom_pods: Vec<CustomPod>,
    /// Its source; `None` for an object of a cluster.
    pub source: ObjectSource,
    /// The fields that its type does not have. Only of an object of a file: the API server has dropped those of others.
    pub unknown_fields: Vec<UnknownField>,
    /// What is known of it in addition to its text.
    pub context: ReviewContext<'a>,
}

/// The content of an object in addition to its metadata.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    Pod(Box<Template<'a>>),
    Service(Box<Service<'a>>),
    EndpointSlice(EndpointSlice<'a>),
    NetworkPolicy(NetworkPolicy<'a>),
    Claim(Claim<'a>),
    Volume(Box<PersistentVolume<'a>>),
    StorageClass(StorageClass<'a>),
    CsiNode(CsiNode<'a>),
    Node(Box<Node<'a>>),
    RuntimeClass(RuntimeClass<'a>),
    Autoscaler(Autoscaler<'a>),
}

/// A pod, or the template of one.
#[derive(Clone, Debug, Default)]
pub struct Template<'a> {
    /// The metadata of the pod: of the bare pod, or of the workload's template.
    pub meta: Arc<Meta<'a>>,
    pub spec: PodSpec<'a>,
    /// Whether the object has a spec; without one there is nothing to edit.
    pub has_spec: bool,
    /// A StatefulSet's volumeClaimTemplates.
    pub claim_templates: Vec<NamedClaimTemplate<'a>>,
    /// The replicas of a workload, if it has that field.
    pub replicas: Option<i64>,
}

/// Parses only some fields of the JSON of an object.
///
/// # Errors
/// A field has the wrong type.
pub fn read_fields<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, ObjectError> {
    serde_json::from_str(json).map_err(|error| ObjectError::of(".".to_owned(), &error))
}

impl<'a> Object<'a> {
    /// Parses the JSON of an object of a known kind.
    ///
    /// # Errors
    /// The field that has the wrong type, and why.
    pub fn parse(kind: Kind, json: &'a str, stage: ReviewStage) -> Result<Self, ObjectError> {
        if let Some(layout) = kind.layout() {
            return Object::parse_custom(kind, layout, json, stage);
        }
        let reading = ObjectSeed { kind, stage };
        strict_json::read(json, reading).map_err(|first| {
            // Finding the field takes time, so it happens only after an error.
            let mut deserializer = serde_json::Deserializer::from_str(json);
            let mut track = serde_path_to_error::Track::new();
            let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
            let (path, error) = match reading.deserialize(Strict(tracked)) {
                Err(error) => (track.path().to_string(), error),
                Ok(_) => (".".to_owned(), first),
            };
            ObjectError::of(path, &error)
        })
    }

    /// Whether each of its pods has `spec.os.name: windows`.
    pub fn is_for_windows(&self) -> bool {
        let is_windows = |template: &Template<'_>| template.spec.os_name() == Some(Os::Windows.label());
        match self.custom_pods.as_slice() {
            [] => self.template().is_some_and(is_windows),
            pods => pods.iter().all(|pod| is_windows(&pod.template)),
        }
    }

    /// Parses a custom resource, whose pods are not where those of a workload are.
    fn parse_custom(
        kind: Kind,
        layout: PodLayout,
        json: &'a str,
        stage: ReviewStage,
    ) -> Result<Self, ObjectError> {
        let MetaOnly { metadata } =
            strict_json::from_str(json).map_err(|error| ObjectError::of("metadata".to_owned(), &error))?;
        let (custom_pods, claim_templates) = custom_pods::read(kind, layout, json)?;
        let mut template = custom_pods
            .first()
            .map_or_else(|| Box::new(Template::default()), |pod| pod.template.clone());
        template.claim_templates = claim_templates;
        Ok(Object {
            custom_pods,
            ..Object::of_author(kind, Arc::new(metadata), Body::Pod(template), stage)
        })
    }

    /// An object of which only the text is known.
    fn of_author(kind: Kind, meta: Arc<Meta<'a>>, body: Body<'a>, stage: ReviewStage) -> Self {
        Object {
            kind,
            api_version: Str::default(),
            namespace: meta.namespace.clone(),
            meta,
            body,
            custom_pods: Vec::new(),
            source: None,
            unknown_fields: Vec::new(),
            context: ReviewContext::of_author(kind, stage),
        }
    }

    /// One of the custom pods of the object, as an object with that pod only.
    #[must_use]
    pub fn of_custom_pod(&self, pod: &CustomPod) -> Self {
        let claim_templates = self.template().map(|first| first.claim_templates.clone());
        let template = Template {
            claim_templates: claim_templates.unwrap_or_default(),
            ..Template::clone(&pod.template)
        };
        Object {
            api_version: self.api_version.clone(),
            namespace: self.namespace.clone(),
            source: self.source.clone(),
            context: self.context,
            ..Object::of_author(
                self.kind,
                Arc::clone(&self.meta),
                Body::Pod(Box::new(template)),
                self.context.stage,
            )
        }
    }

    /// The object without its debug containers.
    #[must_use]
    pub fn without_debug_containers(&self) -> Self {
        let mut without = self.clone();
        if let Body::Pod(template) = &mut without.body {
            template.spec.ephemeral_containers = SharedList::default();
        }
        without
    }

    /// Hands the object to `visit`, once for each pod that it describes. A custom resource can describe several pods, or
    /// none.
    pub fn for_each_pod(&self, mut visit: impl FnMut(&Self)) {
        if !self.kind.is_custom() {
            return visit(self);
        }
        for pod in &self.custom_pods {
            visit(&self.of_custom_pod(pod));
        }
    }

    /// The pod template, if the kind has one.
    pub fn template(&self) -> Option<&Template<'a>> {
        match &self.body {
            Body::Pod(template) => Some(template),
            _ => None,
        }
    }

    /// The pod spec, if the kind has one.
    pub fn pod(&self) -> Option<&PodSpec<'a>> {
        self.template().map(|t| &t.spec)
    }

    /// The path of the pod template, which contains its metadata and spec.
    pub fn template_path(&self) -> Path {
        Path::of(self.kind.template().unwrap_or_default())
    }

    /// The path of the pod spec.
    pub fn spec_path(&self) -> Path {
        self.template_path().field("spec")
    }

    /// The kind of the object's controlling owner, if objects of that kind are evaluated and its controller makes
    /// objects of this kind from their template.
    pub fn owner_kind(&self) -> Option<Kind> {
        self.creator_kind()
            .filter(|kind| kind.creates_unchanged() == Some(self.kind))
    }

    /// The kind of the object's controlling owner, if that kind's controller creates objects of this kind.
    pub fn creator_kind(&self) -> Option<Kind> {
        let owner = self.meta.controller()?;
        Kind::of_api_version(&owner.api_version, &owner.kind).filter(|kind| kind.creates() == Some(self.kind))
    }

    /// Whether the pod has a DaemonSet owner, in any API group: then it is already pinned to a node, and anything more
    /// than a toleration could make its controller replace the pod.
    pub fn is_daemonset_pod(&self) -> bool {
        self.kind == Kind::Pod
            && self
                .meta
                .controller()
                .is_some_and(|owner| &*owner.kind == "DaemonSet")
    }

    /// Whether the DaemonSet controller has assigned the pod to its node.
    pub fn is_placed_by_daemonset(&self) -> bool {
        self.context.origin == Origin::Controller && self.is_daemonset_pod()
    }

    /// Whether the pod is a mirror pod according to this witness ([`ReviewContext::is_mirror`]).
    pub fn is_mirror_by(&self, witness: &Witness<'_>) -> bool {
        let node = self.pod().and_then(|pod| pod.node_name.as_deref());
        mirror::is_mirror(self.kind, &self.meta, node, witness)
    }

    /// Whether `kubectl debug node/…` set the field at this path.
    pub fn is_written_by_kubectl(&self, path: &Path) -> bool {
        let (Some(container), Some(pod)) = (self.context.debugger, self.pod()) else {
            return false;
        };
        debugger::is_written_by_kubectl(pod, container, path)
    }

    /// The container that `kubectl debug node/…` created, if it created the pod. `owners`: see [`ReviewContext::owners`].
    pub fn debugger(&self, owners: Option<&dyn FieldOwners>) -> Option<usize> {
        let pod = self.pod().filter(|_| self.kind == Kind::Pod)?;
        let is_authors = |path: &Path| owners.is_none_or(|owners| owners.owns(path));
        debugger::container_of(&self.meta, pod, is_authors)
    }

    /// Whether the author, not admission, wrote a field.
    pub fn is_of_author(&self, path: &Path) -> bool {
        self.context.owners.is_none_or(|owners| owners.owns(path))
    }
}

/// An object whose fields do not have the types that Kubernetes defines.
#[derive(thiserror::Error, Debug)]
#[error("{path}: {reason}")]
pub struct ObjectError {
    /// The field, `.` for the object itself.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

impl ObjectError {
    /// An error of serde_json at a path, with the remedy for the most frequent one.
    fn of(path: String, error: &serde_json::Error) -> Self {
        let reason = strict_json::reason(error);
        let remedy = if reason.ends_with("expected a string") {
            "; write it in quotes"
        } else {
            ""
        };
        ObjectError {
            path,
            reason: format!("{reason}{remedy}"),
        }
    }
}

/// Parses an object of a known kind from any deserializer that accepts structs from objects only ([`Strict`]).
#[derive(Clone, Copy, Debug)]
pub struct ObjectSeed {
    pub kind: Kind,
    /// The stage at which the object is evaluated.
    pub stage: ReviewStage,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed {
    type Value = Object<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object<'de>, D::Error> {
        macro_rules! view {
            ($body:ident, $view:ty) => {{
                let view: $view = Deserialize::deserialize(deserializer)?;
                (Arc::new(view.metadata.clone()), Body::$body(view))
            }};
        }
        let ObjectSeed { kind, stage } = self;
        let (meta, body) = match kind {
            Kind::Service => view!(Service, Box<Service<'de>>),
            Kind::EndpointSlice => view!(EndpointSlice, EndpointSlice<'de>),
            Kind::NetworkPolicy => view!(NetworkPolicy, NetworkPolicy<'de>),
            Kind::PersistentVolumeClaim => view!(Claim, Claim<'de>),
            Kind::StorageClass => view!(StorageClass, StorageClass<'de>),
            Kind::CsiNode => view!(CsiNode, CsiNode<'de>),
            Kind::PersistentVolume => view!(Volume, Box<PersistentVolume<'de>>),
            Kind::Node => view!(Node, Box<Node<'de>>),
            Kind::RuntimeClass => view!(RuntimeClass, RuntimeClass<'de>),
            Kind::HorizontalPodAutoscaler => view!(Autoscaler, Autoscaler<'de>),
            _ => {
                let (meta, template) = read_template(kind, deserializer)?;
                (meta, Body::Pod(Box::new(template)))
            }
        };
        Ok(Object::of_author(kind, meta, body, stage))
    }
}

#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "S: Deserialize<'de>"))]
struct Shell<'a, S: Default> {
    #[serde(borrow, deserialize_with = "nullable")]
    metadata: Meta<'a>,
    spec: Option<S>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadSpec<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    template: Shell<'a, PodSpec<'a>>,
    volume_claim_templates: List<NamedClaimTemplate<'a>>,
    replicas: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CronJobSpec<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    job_template: JobTemplate<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobTemplate<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    spec: WorkloadSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodTemplateObject<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    metadata: Meta<'a>,
    #[serde(deserialize_with = "nullable")]
    template: Shell<'a, PodSpec<'a>>,
}

fn read_template<'de, D: Deserializer<'de>>(
    kind: Kind,
    deserializer: D,
) -> Result<(Arc<Meta<'de>>, Template<'de>), D::Error> {
    type Pod<'a> = Shell<'a, PodSpec<'a>>;
    let mut replicas = None;
    let (meta, pod, claims): (_, Pod<'_>, List<_>) = match kind {
        Kind::Pod => (None, Pod::deserialize(deserializer)?, List::default()),
        Kind::PodTemplate => {
            let object = PodTemplateObject::deserialize(deserializer)?;
            (Some(object.metadata), object.template, List::default())
        }
        Kind::CronJob => {
            let object: Shell<'_, CronJobSpec<'_>> = Shell::deserialize(deserializer)?;
            let spec = object.spec.unwrap_or_default();
            (
                Some(object.metadata),
                spec.job_template.spec.template,
                List::default(),
            )
        }
        _ => {
            let object: Shell<'_, WorkloadSpec<'_>> = Shell::deserialize(deserializer)?;
            let spec = object.spec.unwrap_or_default();
            replicas = spec.replicas;
            (Some(object.metadata), spec.template, spec.volume_claim_templates)
        }
    };
    let template = Template {
        meta: Arc::new(pod.metadata),
        has_spec: pod.spec.is_some(),
        spec: pod.spec.unwrap_or_default(),
        claim_templates: claims.0,
        replicas,
    };
    // A pod is its own template.
    let meta = meta.map_or_else(|| Arc::clone(&template.meta), Arc::new);
    Ok((meta, template))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_spec_is_found_in_every_kind() {
        for kind in Kind::ALL
            .into_iter()
            .filter(|kind| kind.has_pod() && !kind.is_custom())
        {
            let mut json = r#"{"spec": {"hostPID": true}}"#.to_owned();
            for field in kind.template().unwrap().iter().rev() {
                json = format!(r#"{{"{field}": {json}}}"#);
            }
            let subject = Object::parse(kind, &json, ReviewStage::Written).unwrap();
            assert!(subject.pod().unwrap().host_pid.0, "{kind}");
        }
    }

    #[test]
    fn only_an_owner_whose_kind_is_evaluated_and_makes_such_objects_counts() {
        for (kind, api_version, owner, expected) in [
            (Kind::Pod, "apps/v1", "ReplicaSet", Some(Kind::ReplicaSet)),
            (Kind::Pod, "apps/v1", "StatefulSet", Some(Kind::StatefulSet)),
            (Kind::Pod, "apps/v1", "DaemonSet", Some(Kind::DaemonSet)),
            (Kind::Pod, "batch/v1", "Job", Some(Kind::Job)),
            (
                Kind::Pod,
                "v1",
                "ReplicationController",
                Some(Kind::ReplicationController),
            ),
            (Kind::ReplicaSet, "apps/v1", "Deployment", Some(Kind::Deployment)),
            (Kind::Job, "batch/v1", "CronJob", Some(Kind::CronJob)),
            (Kind::Pod, "apps/v1", "Deployment", None),
            (Kind::Pod, "batch/v1", "CronJob", None),
            (Kind::Pod, "v1", "Pod", None),
            (Kind::Pod, "v1", "ReplicaSet", None),
            (Kind::Pod, "apps.kruise.io/v1beta1", "StatefulSet", None),
            (Kind::Pod, "tekton.dev/v1", "TaskRun", None),
            (Kind::Pod, "argoproj.io/v1alpha1", "Workflow", None),
            (
                Kind::ReplicaSet,
                "argoproj.io/v1alpha1",
                "Rollout",
                Some(Kind::Rollout),
            ),
            (Kind::Deployment, "serving.knative.dev/v1", "Revision", None),
            (Kind::Job, "keda.sh/v1alpha1", "ScaledJob", Some(Kind::ScaledJob)),
            (
                Kind::Pod,
                "apps.kruise.io/v1alpha1",
                "CloneSet",
                Some(Kind::CloneSet),
            ),
            (
                Kind::Pod,
                "apps.kruise.io/v1beta1",
                "DaemonSet",
                Some(Kind::AdvancedDaemonSet),
            ),
            (Kind::ReplicaSet, "apps/v1", "ReplicaSet", None),
            (Kind::Job, "jobset.x-k8s.io/v1alpha2", "JobSet", None),
            (Kind::Deployment, "apps/v1", "Deployment", None),
            (Kind::StatefulSet, "monitoring.coreos.com/v1", "Prometheus", None),
        ] {
            for controller in [true, false] {
                let json = format!(
                    r#"{{"metadata": {{"ownerReferences": [{{"apiVersion": "{api_version}", "kind": "{owner}",
                        "name": "o", "controller": {controller}}}]}}}}"#
                );
                let found = Object::parse(kind, &json, ReviewStage::Stored)
                    .unwrap()
                    .owner_kind();
                let expected = expected.filter(|_| controller);
                assert_eq!(found, expected, "{kind} of {owner}, {controller}");
            }
        }
    }

    #[test]
    fn null_is_absent() {
        for json in [
            "null",
            r#"{"metadata": null, "spec": null}"#,
            r#"{"spec": {"containers": null}}"#,
        ] {
            let read = Object::parse(Kind::Pod, json, ReviewStage::Written);
            assert_eq!(read.is_ok(), json != "null", "{json}");
        }
        assert!(
            Object::parse(
                Kind::CronJob,
                r#"{"spec": {"jobTemplate": null}}"#,
                ReviewStage::Written
            )
            .is_ok()
        );
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let json = r#"{"spec": {"containers": [{"name": "a"}, {"name": 7}]}}"#;
        let error = Object::parse(Kind::Pod, json, ReviewStage::Written).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.containers[1].name: invalid type: integer `7`, expected a string; write it in quotes"
        );
    }
}
