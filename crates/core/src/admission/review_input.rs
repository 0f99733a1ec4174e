//! The evaluation of the object of a request, with what the request shows about it; on update, against the old object.

use std::borrow::Cow;
use std::collections::HashMap;

use super::audit_record::Phase;
use super::request::Request;
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::engine::{Evaluation, evaluate, evaluate_as, evaluate_each, infer_os, ratchet};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{IgnoredFields, PlacementMode, Policy};
use crate::model::objects::debugger;
use crate::model::objects::managed_fields::ManagedFields;
use crate::model::objects::mirror::Witness;
use crate::model::objects::object::{Editable, FieldOwners, Object, ReviewContext, ReviewStage};
use crate::model::objects::requester::{self, Origin};
use crate::model::objects::workload::Kind;
use crate::model::windows::os::{EvidenceKind, Inference, Verdict};
use crate::rules::documentation::DocumentationUrl;

/// The facts and policies for a review.
#[derive(Clone, Copy)]
pub struct AdmissionContext<'c> {
    /// The facts about the cluster and the date.
    pub facts: &'c Facts,
    pub policies: &'c PolicySet,
}

/// The policy that applies to a request.
pub(super) fn policy_for<'c>(request: &Request<'_>, context: &AdmissionContext<'c>) -> Cow<'c, Policy> {
    let namespace = context.facts.namespaces.get(&*request.namespace);
    context.policies.effective(&PolicyQuery {
        namespace: &request.namespace,
        labels: namespace.map(|namespace| &namespace.labels),
        user: &request.user_info.username,
        groups: &request.user_info.groups,
        today: context.facts.today,
    })
}

/// A request, and what it is evaluated with.
#[derive(Clone, Copy)]
pub(super) struct ReviewInput<'r> {
    pub(super) phase: Phase,
    pub(super) request: &'r Request<'r>,
    pub(super) facts: &'r Facts,
    pub(super) policy: &'r Policy,
    /// Where the rules of a denial are documented.
    pub(super) documentation: Option<&'r DocumentationUrl>,
}

impl ReviewInput<'_> {
    /// An object of the request, with what the request shows: that a controller created it, or that it is a mirror pod.
    pub(super) fn in_context<'s>(
        &self,
        read: Object<'s>,
        editable: Editable,
        owners: &'s dyn FieldOwners,
    ) -> Object<'s>
    where
        Self: 's,
    {
        let Request {
            namespace, user_info, ..
        } = self.request;
        let user = &*user_info.username;
        // Parsing the field owners takes time, so it is done for few pods.
        let is_debugger = debugger::is_labelled(&read.meta);
        let context = ReviewContext {
            stage: match self.phase {
                Phase::Mutate => ReviewStage::Written,
                Phase::Validate => ReviewStage::Stored,
            },
            editable,
            origin: Origin::requester(read.creator_kind(), user, &self.facts.config.controllers),
            is_mirror: read.is_mirror_by(&Witness::Requester {
                user,
                groups: &user_info.groups.0,
            }),
            debugger: is_debugger.then(|| read.debugger(Some(owners))).flatten(),
            stated_os: None,
            owners: Some(owners),
        };
        Object {
            namespace: if namespace.is_empty() {
                read.namespace.clone()
            } else {
                namespace.clone()
            },
            context,
            ..read
        }
    }

    /// What the answer to the request may change in its object.
    pub(super) fn editable(&self, kind: Kind) -> Editable {
        let Request {
            operation,
            sub_resource,
            ..
        } = self.request;
        match (self.phase, &**operation, &**sub_resource) {
            (Phase::Mutate, "CREATE", "") if kind == Kind::Pod => Editable::Pod,
            (Phase::Mutate, "UPDATE", "ephemeralcontainers") => Editable::EphemeralContainers,
            _ => Editable::Nothing,
        }
    }

    /// Evaluates an object; on UPDATE, findings that the old object had too cannot deny.
    pub(super) fn evaluate(&self, subject: &Object<'_>) -> Evaluation {
        let mut evaluation = self.evaluate_version(subject);
        if self.phase == Phase::Validate && self.is_unplaced(subject, &evaluation) {
            ratchet::downgrade_all(&mut evaluation);
        }
        if self.request.is_update()
            && ratchet::needs_old(subject.kind, &evaluation)
            && let Some(old) = self.request.old_object
            && let Ok(old) = Object::parse(subject.kind, old.get(), ReviewStage::Stored)
        {
            let owners = ManagedFields::of(old.meta.managed_fields);
            let old = self.in_context(old, Editable::Nothing, &owners);
            let old = self.evaluate_old(&old, &evaluation.inference);
            ratchet::downgrade_existing(subject.kind, &mut evaluation, &old);
        }
        evaluation
    }

    /// Evaluates the old object of an update by its own evidence: what the update turns into a finding, by adding the
    /// evidence, is new. `new`: what the operating system of the new object is.
    ///
    /// Two kinds of updates add evidence to a pod whose other fields cannot be changed, and must not be blocked: a debug
    /// container in a running pod, and the selectors that the controller of a queue adds to a gated pod, a suspended Job
    /// or a custom resource. For these, the old object is evaluated with the evidence of the new one. A contradiction of
    /// the evidence is a finding of the update, so it is not assumed of the old object.
    fn evaluate_old(&self, old: &Object<'_>, new: &Inference) -> Evaluation {
        let adds_only_evidence = || {
            let labels = old.meta.labels.iter().map(|(label, _)| &**label);
            let user = &self.request.user_info.username;
            let listed = &self.facts.config.controllers;
            self.request.adds_debugger() || requester::adds_selectors(user, old.kind, listed, labels)
        };
        if (matches!(old.kind, Kind::Pod | Kind::Job) || old.kind.is_custom())
            && new.verdict != Verdict::Conflicting
            && adds_only_evidence()
        {
            evaluate_each(old, self.facts, self.policy, |_| new.clone())
        } else {
            self.evaluate_version(old)
        }
    }

    /// Evaluates one version of an object. In an update, a debug container is evidence only if the request may add one:
    /// otherwise a debug container would make the fields of a pod without a sign known findings, and the selector that
    /// makes it a Windows pod could be added in a third step.
    fn evaluate_version(&self, subject: &Object<'_>) -> Evaluation {
        let is_debugged = || {
            let pod = subject.pod();
            pod.is_some_and(|pod| !pod.ephemeral_containers.is_empty())
        };
        if !self.request.is_update() || self.request.adds_debugger() || !is_debugged() {
            return evaluate(subject, self.facts, self.policy);
        }
        let inference = infer_os(&subject.without_debug_containers(), self.facts, self.policy);
        evaluate_as(subject, inference, self.facts, self.policy)
    }

    /// Whether `/mutate` cannot have known what a registry reports about this pod: otherwise it would have placed the pod,
    /// which then had a selector. The look-up ended in between, and must not deny what `/mutate` would have removed or
    /// added.
    fn is_unplaced(&self, subject: &Object<'_>, evaluation: &Evaluation) -> bool {
        let ReviewInput {
            request,
            facts,
            policy,
            ..
        } = self;
        let changes_pods =
            policy.placement == PlacementMode::Apply || policy.ignored_fields == IgnoredFields::Remove;
        let first = evaluation.inference.evidence.first();
        let without_images = || infer_os(subject, &facts.with_images(HashMap::new()), policy).verdict;
        subject.kind == Kind::Pod
            && &*request.operation == "CREATE"
            && !facts.images.is_empty()
            && changes_pods
            && first.is_some_and(|evidence| evidence.kind == EvidenceKind::Image)
            && without_images() != evaluation.inference.verdict
    }
}
