//! The draft: a pod as it will be, together with the edits for it. Every method changes both.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::model::nodes::node::{ARCH_LABEL, BETA_ARCH_LABEL, BETA_OS_LABEL, OS_LABEL, Taint};
use crate::model::nodes::node_affinity::holds;
use crate::model::nodes::os_selectors::is_build_label;
use crate::model::objects::object::Template;
use crate::model::objects::pod::{
    Affinity, ContainerList, Expression, NodeAffinity, NodeSelector, NodeSelectorTerm, PodOs,
    PodSecurityContext, PodSpec, REQUIRED_TERMS, Resources, SecurityContext, Toleration,
};
use crate::model::syntax::edit::{Edit, string_map};
use crate::model::syntax::json_types::{Flag, IsPresent, List, Map, Quantity, Str};
use crate::model::syntax::path::{Path, Segment};
use crate::model::windows::build::Build;
use crate::rules::Resolver;

/// A pod as it will be, and the edits for it.
///
/// The pod is copied at the first edit only.
#[derive(Clone, Debug)]
pub struct PodPatch<'t, 'a> {
    template: Cow<'t, Template<'a>>,
    spec: Path,
    edits: Vec<(Edit, Resolver)>,
}

impl<'t, 'a> PodPatch<'t, 'a> {
    /// A draft that changes nothing yet.
    pub fn new(template: &'t Template<'a>, spec: Path) -> Self {
        PodPatch {
            template: Cow::Borrowed(template),
            spec,
            edits: Vec::new(),
        }
    }

    /// The pod as it will be.
    pub fn template(&self) -> &Template<'a> {
        &self.template
    }

    /// The pod spec as it will be.
    pub fn pod(&self) -> &PodSpec<'a> {
        &self.template.spec
    }

    /// The edits so far, each with the part that made it.
    pub fn edits(&self) -> &[(Edit, Resolver)] {
        &self.edits
    }

    /// The final edits, and the pod as it will be if there are any.
    pub fn into_parts(self) -> (Vec<(Edit, Resolver)>, Option<Template<'a>>) {
        let template = match self.template {
            Cow::Owned(template) if !self.edits.is_empty() => Some(template),
            _ => None,
        };
        (self.edits, template)
    }

    /// Adds an edit. The caller makes the same change to the pod.
    fn record(&mut self, edit: Edit) -> &mut PodSpec<'a> {
        self.edits.push((edit, Resolver::Placement));
        &mut self.template.to_mut().spec
    }

    fn at(&self, fields: &[&'static str]) -> Path {
        self.spec.clone().fields(fields)
    }

    /// Sets `spec.os.name: windows`.
    pub fn set_os_name(&mut self) {
        let edit = Edit::Set(self.at(&["os"]), json!({"name": "windows"}));
        self.record(edit).os = Some(PodOs {
            name: Some("windows".into()),
        });
    }

    /// Removes `spec.os`.
    pub fn unset_os_name(&mut self) {
        let edit = Edit::Remove(self.at(&["os"]));
        self.record(edit).os = None;
    }

    /// Adds an entry to the nodeSelector.
    pub fn select(&mut self, key: &str, value: &str) {
        let selector = self.at(&["nodeSelector"]);
        let edit = if self.pod().node_selector.is_empty() {
            Edit::Set(selector, string_map(key, value))
        } else {
            Edit::Set(selector.key(key), Value::from(value))
        };
        self.record(edit)
            .node_selector
            .set(key.to_owned().into(), value.to_owned().into());
    }

    /// Removes an entry from the nodeSelector.
    pub fn unselect(&mut self, key: &str) {
        let edit = Edit::Remove(self.at(&["nodeSelector"]).key(key));
        self.record(edit).node_selector.remove(key);
    }

    /// Appends a toleration of exactly this taint.
    pub fn tolerate(&mut self, taint: &Taint) {
        let path = self.at(&["tolerations"]);
        let value =
            json!({"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect});
        let edit = if self.pod().tolerations.is_empty() {
            Edit::Set(path, json!([value]))
        } else {
            Edit::Append(path, value)
        };
        self.record(edit).tolerations.0.push(Toleration {
            key: Some(taint.key.clone().into()),
            operator: Some("Equal".into()),
            value: Some(taint.value.clone().into()),
            effect: Some(taint.effect.clone().into()),
            toleration_seconds: None,
        });
    }

    /// Sets `spec.runtimeClassName`.
    pub fn set_runtime_class(&mut self, name: &str) {
        let edit = Edit::Set(self.at(&["runtimeClassName"]), Value::from(name));
        self.record(edit).runtime_class_name = Some(name.to_owned().into());
    }

    /// Requests one unit of a resource in the first container, as limit and as request.
    pub fn request_one(&mut self, resource: &'static str) {
        let Some(first) = self.pod().containers.first() else {
            return;
        };
        let own = self
            .at(&["containers"])
            .named_item(0, &first.name)
            .field("resources");
        let edits = if let Some(resources) = &first.resources {
            let ask = |(name, list): (&'static str, &Map<'a, Quantity<'a>>)| {
                let list_at = own.clone().field(name);
                if list.is_empty() {
                    Edit::Set(list_at, string_map(resource, "1"))
                } else {
                    Edit::Set(list_at.key(resource), Value::from("1"))
                }
            };
            let lists = [("limits", &resources.limits), ("requests", &resources.requests)];
            lists.map(ask).into()
        } else {
            let both = json!({"limits": {resource: "1"}, "requests": {resource: "1"}});
            vec![Edit::Set(own, both)]
        };
        for edit in edits {
            if let Some(first) = self.record(edit).containers.make_mut().first_mut() {
                let resources = first.resources.get_or_insert_with(Resources::default);
                resources.limits.set(resource.into(), Quantity("1".into()));
                resources.requests.set(resource.into(), Quantity("1".into()));
            }
        }
    }

    /// Requires one of these builds by node affinity: in every term that does not yet exclude the other builds. Some
    /// autoscalers do not know the build label of nodes that do not exist yet. For each of these pools, a second term is
    /// added next to each of these terms, with labels that the templates of its nodes have.
    pub fn require_builds(
        &mut self,
        label: &'static str,
        builds: &[Build],
        wrong: &[Build],
        pools: &[PoolTerm],
    ) {
        let of_build = expression(label, "In", builds.iter().map(ToString::to_string));
        let existing = self.pod().required_terms();
        if existing.is_empty() {
            let terms = std::iter::once(vec![of_build])
                .chain(pools.iter().map(|pool| not_yet(label, pool)))
                .map(|expressions| NodeSelectorTerm {
                    match_expressions: List(expressions),
                    ..NodeSelectorTerm::default()
                });
            return self.require(terms.collect());
        }
        let open = self.terms_open_to(wrong);
        self.append_to_terms(&open, &of_build);
        if open.len() * pools.len() > MOST_TERMS || !open.iter().all(|(_, term)| is_sound(term)) {
            return;
        }
        for (_, term) in &open {
            for pool in pools {
                let mut term = term.clone();
                term.match_expressions.0.extend(not_yet(label, pool));
                let edit = Edit::Append(self.at(REQUIRED_TERMS), json_of_term(&term));
                if let Some(terms) = required_terms_mut(self.record(edit)) {
                    terms.push(term);
                }
            }
        }
    }

    /// Excludes these builds with node affinity, inside every term that does not exclude them yet. Nodes without the
    /// label stay allowed.
    pub fn exclude_builds(&mut self, label: &'static str, wrong: &[Build]) {
        let not_of = expression(label, "NotIn", wrong.iter().map(ToString::to_string));
        if self.pod().required_terms().is_empty() {
            return self.require(vec![NodeSelectorTerm {
                match_expressions: List(vec![not_of]),
                ..NodeSelectorTerm::default()
            }]);
        }
        let open = self.terms_open_to(wrong);
        self.append_to_terms(&open, &not_of);
    }

    /// The terms of the required node affinity that a node with a label of these builds could match.
    fn terms_open_to(&self, wrong: &[Build]) -> Vec<(usize, NodeSelectorTerm<'a>)> {
        let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let excludes = |term: &NodeSelectorTerm<'_>, build: &str| {
            let mut of_builds = term.match_expressions.iter().filter(|e| is_build_label(&e.key));
            of_builds.any(|requirement| !holds(requirement, Some(build)))
        };
        (self.pod().required_terms().iter().enumerate())
            // An empty term matches no node; with an expression it would.
            .filter(|(_, term)| !term.is_empty() && !wrong.iter().all(|build| excludes(term, build)))
            .map(|(index, term)| (index, term.clone()))
            .collect()
    }

    fn append_to_terms(&mut self, terms: &[(usize, NodeSelectorTerm<'a>)], requirement: &Expression<'a>) {
        for (index, term) in terms {
            let path = self.at(REQUIRED_TERMS).item(*index).field("matchExpressions");
            let edit = if term.match_expressions.is_empty() {
                Edit::Set(path, json!([json_of(requirement)]))
            } else {
                Edit::Append(path, json_of(requirement))
            };
            let pod = self.record(edit);
            if let Some(term) = required_terms_mut(pod).and_then(|terms| terms.get_mut(*index)) {
                term.match_expressions.0.push(requirement.clone());
            }
        }
    }

    /// Adds the required node affinity if there is none, with any missing parents.
    fn require(&mut self, terms: Vec<NodeSelectorTerm<'a>>) {
        let required = json!({"nodeSelectorTerms": terms.iter().map(json_of_term).collect::<Vec<_>>()});
        let affinity = self.pod().affinity.as_ref();
        let edit = match affinity.map(|affinity| affinity.node_affinity.as_ref()) {
            None => Edit::Set(
                self.at(&["affinity"]),
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}),
            ),
            Some(None) => Edit::Set(
                self.at(&["affinity", "nodeAffinity"]),
                json!({"requiredDuringSchedulingIgnoredDuringExecution": required}),
            ),
            Some(Some(_)) => Edit::Set(
                self.at(&[
                    "affinity",
                    "nodeAffinity",
                    "requiredDuringSchedulingIgnoredDuringExecution",
                ]),
                required,
            ),
        };
        let pod = self.record(edit);
        let affinity = pod.affinity.get_or_insert_with(Affinity::default);
        let node_affinity = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
        node_affinity.required = Some(NodeSelector {
            node_selector_terms: List(terms),
        });
    }

    /// Removes an ignored field. Returns whether the draft knows the field; if not, nothing changes.
    pub fn remove(&mut self, path: &Path) -> bool {
        let is_gone = |(edit, _): &(Edit, Resolver)| matches!(edit, Edit::Remove(gone) if gone == path);
        if self.edits.iter().any(is_gone) {
            return true;
        }
        let Some(rest) = path.segments().strip_prefix(self.spec.segments()) else {
            return false;
        };
        if !clear(&mut self.template.to_mut().spec, rest) {
            return false;
        }
        self.edits.push((Edit::Remove(path.clone()), Resolver::Removal));
        true
    }
}

/// More terms for pools that do not exist yet do not help a pod, and every scheduler would have to evaluate them.
const MOST_TERMS: usize = 32;

/// An expression of node affinity.
fn expression<'a>(key: &str, operator: &'static str, values: impl Iterator<Item = String>) -> Expression<'a> {
    Expression {
        key: key.to_owned().into(),
        operator: operator.into(),
        values: List(values.map(Str::from).collect()),
    }
}

/// Labels of the templates of pools: each key with its values.
pub type PoolTerm = Vec<(String, Vec<String>)>;

/// The labels of a node that will have the label, but does not have it in its pool's template.
fn not_yet<'a>(label: &str, pool: &PoolTerm) -> Vec<Expression<'a>> {
    let of_pool = pool
        .iter()
        .map(|(key, values)| expression(key, "In", values.iter().cloned()));
    of_pool
        .chain([expression(label, "DoesNotExist", std::iter::empty())])
        .collect()
}

/// Whether a term may be copied for other nodes: not if a rule reports a problem in it, which would then appear twice.
fn is_sound(term: &NodeSelectorTerm<'_>) -> bool {
    term.match_expressions.iter().all(|expression| {
        let reported =
            |only: &str| &*expression.operator == "In" && expression.values.iter().all(|v| **v == *only);
        match &*expression.key {
            OS_LABEL => reported("windows"),
            ARCH_LABEL => reported("amd64"),
            BETA_OS_LABEL | BETA_ARCH_LABEL => false,
            _ => true,
        }
    })
}

fn json_of(expression: &Expression<'_>) -> Value {
    let values: Vec<&str> = expression.values.iter().map(|value| &**value).collect();
    if values.is_empty() {
        json!({"key": &*expression.key, "operator": &*expression.operator})
    } else {
        json!({"key": &*expression.key, "operator": &*expression.operator, "values": values})
    }
}

fn json_of_term(term: &NodeSelectorTerm<'_>) -> Value {
    let lists = [
        ("matchExpressions", &term.match_expressions),
        ("matchFields", &term.match_fields),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    lists
        .map(|(name, list)| (name.to_owned(), list.iter().map(json_of).collect::<Value>()))
        .collect()
}

fn required_terms_mut<'p, 'a>(pod: &'p mut PodSpec<'a>) -> Option<&'p mut Vec<NodeSelectorTerm<'a>>> {
    Some(
        &mut pod
            .affinity
            .as_mut()?
            .node_affinity
            .as_mut()?
            .required
            .as_mut()?
            .node_selector_terms
            .0,
    )
}

/// Clears the field at a path below the pod spec; false if the field is not one of the removable fields.
fn clear(pod: &mut PodSpec<'_>, path: &[Segment]) -> bool {
    match path {
        [Segment::Field("hostPID")] => pod.host_pid = Flag(false),
        [Segment::Field("hostIPC")] => pod.host_ipc = Flag(false),
        [Segment::Field("dnsPolicy")] => pod.dns_policy = None,
        [Segment::Field("hostUsers")] => pod.host_users = None,
        [Segment::Field("shareProcessNamespace")] => pod.share_process_namespace = None,
        [Segment::Field("securityContext"), Segment::Field(field)] => {
            return clear_of_pod(&mut pod.security_context, field);
        }
        [
            Segment::Field(list),
            Segment::Item(index, _),
            Segment::Field("securityContext"),
            Segment::Field(field),
        ] => {
            let list = ContainerList::ALL.into_iter().find(|l| l.field() == *list);
            let container = list.and_then(|list| pod.list_mut(list).get_mut(*index));
            return container.is_some_and(|it| clear_of_container(&mut it.security_context, field));
        }
        _ => return false,
    }
    true
}

fn clear_of_pod(context: &mut PodSecurityContext<'_>, field: &str) -> bool {
    match field {
        "appArmorProfile" => context.app_armor_profile = None,
        "seLinuxOptions" => context.se_linux_options = None,
        "seccompProfile" => context.seccomp_profile = None,
        "fsGroup" => context.fs_group = IsPresent(false),
        "fsGroupChangePolicy" => context.fs_group_change_policy = None,
        "runAsUser" => context.run_as_user = IsPresent(false),
        "runAsGroup" => context.run_as_group = IsPresent(false),
        "supplementalGroups" => context.supplemental_groups = None,
        "supplementalGroupsPolicy" => context.supplemental_groups_policy = None,
        "seLinuxChangePolicy" => context.se_linux_change_policy = None,
        "runAsNonRoot" => context.run_as_non_root = None,
        _ => return false,
    }
    true
}

fn clear_of_container(context: &mut SecurityContext<'_>, field: &str) -> bool {
    match field {
        "appArmorProfile" => context.app_armor_profile = None,
        "seLinuxOptions" => context.se_linux_options = None,
        "seccompProfile" => context.seccomp_profile = None,
        "capabilities" => context.capabilities = None,
        "readOnlyRootFilesystem" => context.read_only_root_filesystem = None,
        "privileged" => context.privileged = None,
        "allowPrivilegeEscalation" => context.allow_privilege_escalation = None,
        "procMount" => context.proc_mount = None,
        "runAsUser" => context.run_as_user = IsPresent(false),
        "runAsGroup" => context.run_as_group = IsPresent(false),
        "runAsNonRoot" => context.run_as_non_root = None,
        _ => return false,
    }
    true
}
