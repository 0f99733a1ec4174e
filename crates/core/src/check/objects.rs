//! The objects of inputs, each read once: facts of the cluster, the images of pods, and every evaluation use the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::document_role::{DocumentRole, ObjectType};
use super::environment::in_order;
use super::input::{DocumentSource, InputDocument, SourceRole};
use super::manifests::Manifests;
use super::note::UnreadableInput;
use crate::engine::policy_set::PolicySet;
use crate::engine::{infer_os, namespace_selector};
use crate::manifest::NodeStep;
use crate::model::cluster::facts::{Facts, GMSA_GROUP, GMSA_KIND, NamespaceFacts, WindowsWorkload};
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::Host;
use crate::model::nodes::node_groups::{NodeGroupResource, ec2_node_class};
use crate::model::objects::api_fields::unknown_fields;
use crate::model::objects::object::{Object, ObjectError, ReviewContext, ReviewStage};
use crate::model::objects::requester::Origin;
use crate::model::objects::resources::{Meta, MetaOnly};
use crate::model::objects::workload::Kind;
use crate::model::windows::build::Build;
use crate::model::windows::os::{Inference, Os, Verdict};

/// The objects of manifests, for one evaluation.
pub struct ManifestObjects<'m> {
    pub(super) manifests: &'m Manifests,
    pub(super) all: Vec<InputObject<'m>>,
}

/// A document, and the object that it is.
pub(super) struct InputObject<'m> {
    pub source: &'m DocumentSource,
    pub document: &'m InputDocument,
    /// `None` if it is of a kind that Transom does not read.
    pub object: Option<Result<Object<'m>, (Kind, ObjectError)>>,
    /// The operating system of each of its pods, inferred when it is first used.
    inferences: OnceLock<Vec<Inference>>,
}

impl<'m> InputObject<'m> {
    /// The operating system of each pod of the object, in the order of its pods.
    pub fn inferences(&self, object: &Object<'_>, facts: &Facts, policy: &Policy) -> &[Inference] {
        self.inferences.get_or_init(|| {
            let mut inferences = Vec::new();
            object.for_each_pod(|pod| inferences.push(infer_os(pod, facts, policy)));
            inferences
        })
    }

    /// The object, if it could be read and has pods, or has none.
    fn with_pod(&self, has_pod: bool) -> Option<&Object<'m>> {
        let object = self.object.as_ref()?.as_ref().ok()?;
        (object.kind.has_pod() == has_pod).then_some(object)
    }

    /// The name and the metadata of an object of any kind.
    fn named_meta(&self) -> Option<(String, Meta<'m>)> {
        let object: MetaOnly<'m> = serde_json::from_str(self.document.content.json()).ok()?;
        Some((object.metadata.name.to_string(), object.metadata))
    }

    /// The object, if it has pods that are checked.
    pub fn workload_to_check(&self) -> Option<&Object<'m>> {
        self.with_pod(true)
            .filter(|_| self.source.role != SourceRole::Facts)
    }

    /// The object to check; `None` if there is nothing to check in the document.
    pub fn to_check(&self) -> Result<Option<&Object<'m>>, UnreadableInput> {
        let (source, content) = (self.source, &self.document.content);
        match (&self.object, &self.document.object_type) {
            (_, Err(_)) if source.role == SourceRole::Found => Ok(None),
            (_, Err(message)) => Err(source.unreadable_document(content, message.clone())),
            _ if source.role == SourceRole::Facts => Ok(None),
            (Some(Err((kind, error))), _) => {
                let line = content.locate(&steps_of(error)).line;
                Err(source.unreadable(line, format!("this {kind} cannot be read: {error}")))
            }
            (Some(Ok(object)), _) => Ok(Some(object)),
            (None, _) => Ok(None),
        }
    }
}

fn steps_of(error: &ObjectError) -> Vec<NodeStep<'_>> {
    let parts = error.path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse().map_or(NodeStep::Key(part), NodeStep::Index))
        .collect()
}

/// The NodePools of Karpenter among the inputs, and the builds of the EC2NodeClasses that they use.
#[derive(Default)]
struct KarpenterPools {
    pools: Vec<NodeGroupResource>,
    builds: BTreeMap<String, Build>,
}

impl KarpenterPools {
    fn learn(&mut self, group: &str, kind: &str, json: &str) {
        let read = || serde_json::from_str(json).unwrap_or_default();
        match (group, kind) {
            ("karpenter.sh", "NodePool") => self.pools.push(NodeGroupResource::read(kind, &read())),
            ("karpenter.k8s.aws", "EC2NodeClass") => self.builds.extend(ec2_node_class(&read())),
            _ => {}
        }
    }

    /// Those for Windows, as pools that may be at zero.
    fn hosts(self) -> impl Iterator<Item = Host> {
        let KarpenterPools { pools, builds } = self;
        pools.into_iter().filter_map(move |mut pool| {
            pool.add_node_class(&builds);
            pool.host()
        })
    }
}

impl Manifests {
    /// Reads every object, for an evaluation at this stage.
    pub fn objects(&self, stage: ReviewStage) -> ManifestObjects<'_> {
        let documents: Vec<_> = self.documents().collect();
        let mut all = Vec::with_capacity(documents.len());
        let read = |&(source, document)| self.input_object(source, document, stage);
        in_order(self.settings.environment, &documents, read, |object| {
            all.push(object);
        });
        ManifestObjects { manifests: self, all }
    }

    fn input_object<'m>(
        &'m self,
        source: &'m DocumentSource,
        document: &'m InputDocument,
        stage: ReviewStage,
    ) -> InputObject<'m> {
        let read = |object_type: &'m ObjectType| {
            let DocumentRole::Object(kind) = object_type.role else {
                return None;
            };
            let json = document.content.json();
            let object = self.read_object(kind, json, stage, source.stated_os);
            let object = object.map(|object| Object {
                source: source.origin.clone(),
                unknown_fields: if self.settings.for_admission {
                    Vec::new()
                } else {
                    unknown_fields(&object_type.api_version, kind.as_str(), json)
                },
                api_version: if self.settings.for_admission {
                    object.api_version
                } else {
                    object_type.api_version.as_str().into()
                },
                ..object
            });
            Some(object.map_err(|error| (kind, error)))
        };
        InputObject {
            source,
            document,
            object: document.object_type.as_ref().ok().and_then(read),
            inferences: OnceLock::new(),
        }
    }

    /// Reads an object. If it has no namespace, it gets that of the scope, as when it is applied. If it names
    /// an owner, that owner's controller is assumed to have created it.
    pub(super) fn read_object<'j>(
        &self,
        kind: Kind,
        json: &'j str,
        stage: ReviewStage,
        stated_os: Option<Os>,
    ) -> Result<Object<'j>, ObjectError> {
        let object = Object::parse(kind, json, stage)?;
        // The author is responsible for the whole file, including ephemeral containers. A file is never a
        // mirror pod.
        let context = ReviewContext {
            stated_os,
            origin: Origin::assumed(object.owner_kind()),
            debugger: object.debugger(None),
            ..object.context
        };
        let namespace = if object.namespace.is_empty() {
            self.settings.scope.default_namespace().to_owned().into()
        } else {
            object.namespace
        };
        Ok(Object {
            namespace,
            context,
            ..object
        })
    }
}

impl ManifestObjects<'_> {
    /// The namespaces that objects with pods are in, or that are objects themselves.
    pub fn namespaces(&self) -> BTreeSet<String> {
        let name = |input: &InputObject<'_>| {
            if let Some(object) = input.with_pod(true) {
                return Some(object.namespace.to_string()).filter(|namespace| !namespace.is_empty());
            }
            let is_namespace = matches!(input.document.role(), Some(DocumentRole::Namespace));
            let object = is_namespace.then(|| input.document.content.json())?;
            let object: MetaOnly<'_> = serde_json::from_str(object).ok()?;
            Some(object.metadata.name.to_string())
        };
        self.all.iter().filter_map(name).collect()
    }

    /// Collects facts of the cluster from every object: namespaces, nodes, RuntimeClasses, claims, endpoints
    /// and Windows workloads.
    pub fn learn(&self, facts: &mut Facts, policies: &PolicySet) {
        self.learn_cluster(facts, policies);
        self.learn_workloads(facts, policies);
    }

    /// The same without Windows workloads.
    pub fn learn_cluster(&self, facts: &mut Facts, policies: &PolicySet) {
        let mut knows_namespaces = false;
        let mut karpenter = KarpenterPools::default();
        for input in &self.all {
            let object_type = input.document.object_type.as_ref().ok();
            let group = object_type.and_then(ObjectType::group);
            if let Some(group) = group.filter(|group| facts.knowledge.is_of_injector(group)) {
                facts.injector_groups.insert(group.to_owned());
            }
            match input.document.role() {
                Some(DocumentRole::Namespace) => {
                    if let Some((name, namespace)) = input.named_meta() {
                        knows_namespaces = true;
                        Arc::make_mut(&mut facts.namespaces).insert(name, NamespaceFacts::of(&namespace));
                    }
                }
                Some(DocumentRole::NodePool) => {
                    let environment = self.manifests.settings.environment;
                    if let Some(pool) = environment.read_node_pool(&input.document.content) {
                        facts.add_pool(pool);
                    }
                }
                Some(DocumentRole::Other(kind)) => {
                    let group = group.unwrap_or_default();
                    if (group, kind.as_str()) == (GMSA_GROUP, GMSA_KIND)
                        && let Some((name, _)) = input.named_meta()
                    {
                        facts.credential_specs.push((name, input.source.origin.clone()));
                    }
                    karpenter.learn(group, kind, input.document.content.json());
                }
                _ => {
                    if let Some(object) = input.with_pod(false) {
                        facts.learn(object);
                    }
                }
            }
        }
        karpenter.hosts().for_each(|pool| facts.add_pool(pool));
        if knows_namespaces {
            namespace_selector::resolve(facts, policies);
        }
    }

    /// Records which workloads are for Windows, and the DaemonSets of network engines, if objects without pods are checked
    /// for them. The evaluation uses the same facts for the system of each pod.
    pub fn learn_workloads(&self, facts: &mut Facts, policies: &PolicySet) {
        if !self.all.iter().any(|input| input.with_pod(false).is_some()) {
            return;
        }
        for input in &self.all {
            let daemon_set = input
                .with_pod(true)
                .filter(|object| object.kind == Kind::DaemonSet);
            if let Some(object) = daemon_set {
                facts.network.add_daemon_set(&object.namespace, &object.meta.name);
            }
        }
        let mut workloads = Vec::new();
        let known = &*facts;
        let workload_of = |input: &InputObject<'_>| {
            let object = input.with_pod(true)?;
            let policy = policies.in_namespace(&object.namespace, known);
            let first = input.inferences(object, known, &policy).first();
            let is_windows = first.is_some_and(|inference| inference.verdict == Verdict::Windows);
            is_windows.then(|| WindowsWorkload::of(object)).flatten()
        };
        let environment = self.manifests.settings.environment;
        in_order(environment, &self.all, workload_of, |workload| {
            workloads.extend(workload);
        });
        facts.workloads.extend(workloads);
    }
}
