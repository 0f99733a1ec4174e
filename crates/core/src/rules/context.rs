//! The input of a check: the object, its pod as currently evaluated, the verdict, the facts and the policy.

mod image;
mod reach;

use std::cell::OnceCell;

pub use self::image::{Image, KnownVersions};
pub use self::reach::{HostFit, Reach, Reached};
use crate::model::cluster::facts::{Facts, RuntimeClassFacts};
use crate::model::cluster::policy::Policy;
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::{
    BUILD_LABELS, HOSTNAME_LABEL, Host, NodeSigns, OS_SKU_LABELS, POOL_LABELS, build_of_sku,
};
use crate::model::nodes::node_affinity::holds;
use crate::model::nodes::os_selectors::is_build_label;
use crate::model::objects::object::{Body, Object, Template};
use crate::model::objects::pod::{
    Container, ContainerList, Expression, NodeSelectorTerm, PodSpec, REQUIRED_TERMS, Volume,
};
use crate::model::objects::resources::Meta;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::path::Path;
use crate::model::windows::build::{Build, ContainerIsolation};
use crate::model::windows::os::Inference;
use crate::rules::scheduling::Constraints;

/// The input of a check on any object.
#[derive(Clone, Copy)]
pub struct Cx<'c> {
    pub subject: &'c Object<'c>,
    /// Its pod as currently evaluated: as written, or with admission's edits; `None` for kinds without a pod.
    pub template: Option<&'c Template<'c>>,
    /// The verdict and the evidence for it.
    pub inference: &'c Inference,
    /// The facts about the cluster and the date.
    pub facts: &'c Facts,
    /// The effective policy.
    pub policy: &'c Policy,
    /// The node: the object itself, or one of a cluster, of which only what rules read is known.
    pub node: Option<&'c dyn NodeSigns>,
    /// The images of the pod's containers, in the order of [`PodSpec::visit_containers`]: parsed once for all rules.
    pub images: &'c [Option<Image<'c>>],
    /// The fields that the pod has, as currently evaluated.
    fields: FieldSet,
}

impl<'c> Cx<'c> {
    /// The context of an object as written.
    pub fn new(
        subject: &'c Object<'c>,
        inference: &'c Inference,
        facts: &'c Facts,
        policy: &'c Policy,
        images: &'c [Option<Image<'c>>],
    ) -> Self {
        let template = subject.template();
        Cx {
            subject,
            template,
            inference,
            facts,
            policy,
            node: match &subject.body {
                Body::Node(node) => Some(&**node),
                _ => None,
            },
            images,
            fields: template.map_or(FieldSet::ALL, FieldSet::of),
        }
    }

    /// The same for a node of a cluster.
    #[must_use]
    pub fn with_node(&self, node: &'c dyn NodeSigns) -> Self {
        Cx {
            node: Some(node),
            ..*self
        }
    }

    /// The same object with another pod: the one with edits.
    #[must_use]
    pub fn with_template(&self, template: &'c Template<'c>) -> Self {
        Cx {
            template: Some(template),
            fields: FieldSet::of(template),
            ..*self
        }
    }

    /// The same, as if every field were present: no rule is skipped because the pod has none of its fields.
    #[must_use]
    pub fn with_every_field(&self) -> Self {
        Cx {
            fields: FieldSet::ALL,
            ..*self
        }
    }

    /// The same object with a draft of its pod. The fields of the draft are not scanned: that would take longer than
    /// calling the few rules that run on a draft.
    #[must_use]
    pub fn with_draft(&self, template: &'c Template<'c>) -> Self {
        Cx {
            template: Some(template),
            ..self.with_every_field()
        }
    }

    /// Whether the pod has one of these fields, or may have; always true for an object without a pod.
    pub fn has_any(&self, fields: FieldSet) -> bool {
        self.fields.any_of(fields)
    }

    /// The context of checks on pods, if the object has a pod.
    pub fn pod(&self) -> Option<PodCx<'c>> {
        Some(PodCx::new(*self, self.template?))
    }

    /// A container's image, if it is an image reference.
    pub fn image(&self, container: &ContainerAt<'_>) -> Option<&'c Image<'c>> {
        self.images.get(container.order)?.as_ref()
    }

    /// The known Windows nodes, and the pools that the policy declares.
    pub fn hosts(&self) -> impl Iterator<Item = &'c Host> + use<'c> {
        self.facts.hosts().iter().chain(&self.facts.pools)
    }

    /// The distinct builds of the known Windows nodes and pools, ascending.
    pub fn host_builds(&self) -> Vec<Build> {
        let mut builds: Vec<Build> = self.facts.builds().iter().copied().collect();
        for build in self.facts.pools.iter().filter_map(|pool| pool.build) {
            if let Err(at) = builds.binary_search(&build) {
                builds.insert(at, build);
            }
        }
        builds
    }

    /// The builds that the pod may land on: those that it selects, else those of the known nodes.
    pub fn targets(&self) -> Vec<Build> {
        let selected = self.pod().map(|pod| pod.selected_builds()).unwrap_or_default();
        if selected.is_empty() {
            self.host_builds()
        } else {
            selected
        }
    }

    /// Whether the pod may land on a build below this one.
    pub(super) fn may_land_below(&self, build: u32) -> bool {
        let known = self.facts.builds().first().copied();
        let declared = self.facts.pools.iter().filter_map(|pool| pool.build).min();
        let nowhere = [known, declared]
            .into_iter()
            .flatten()
            .all(|host| host.number() >= build);
        let selects = self.pod().is_some_and(|pod| pod.may_select_build());
        // Most clusters have no such node and most pods select no build, so this check is usually enough.
        (selects || !nowhere) && self.targets().iter().any(|target| target.number() < build)
    }
}

/// The input of a check on pods: the [`Cx`] with the pod spec and the pod's metadata.
pub struct PodCx<'c> {
    /// The object that contains the pod, facts and policy.
    pub cx: Cx<'c>,
    pub spec: &'c PodSpec<'c>,
    /// The metadata of the pod: of the bare pod, or of the workload's template.
    pub meta: &'c Meta<'c>,
    /// The nodes that the pod can reach, found when the first rule asks.
    reach: OnceCell<Reach<'c>>,
}

impl<'c> std::ops::Deref for PodCx<'c> {
    type Target = Cx<'c>;
    fn deref(&self) -> &Cx<'c> {
        &self.cx
    }
}

impl<'c> PodCx<'c> {
    /// The context of a pod: that of the object, or a draft of it.
    pub fn new(cx: Cx<'c>, template: &'c Template<'c>) -> Self {
        PodCx {
            cx,
            spec: &template.spec,
            meta: &template.meta,
            reach: OnceCell::new(),
        }
    }

    /// The nodes that the pod can reach, and what decides that.
    pub fn reach(&self) -> &Reach<'c> {
        self.reach.get_or_init(|| Reach::of(self))
    }

    /// What keeps the pod off nodes, as if it had this RuntimeClass.
    pub fn constraints_with<'k>(&self, class: Option<&'k RuntimeClassFacts>) -> Constraints<'k>
    where
        'c: 'k,
    {
        let constraints = Constraints::new(self.spec, class).without_address();
        constraints.with_selector(self.cx.facts.node_selector_for(self.cx.subject))
    }

    /// The known Windows nodes of the builds that the pod may land on; no pools.
    pub(super) fn target_nodes(&self) -> impl Iterator<Item = &'c Host> + use<'c> {
        let targets = self.targets();
        let known = self.cx.facts.hosts().iter().filter(|host| !host.may_be_at_zero);
        known.filter(move |host| host.build.is_some_and(|build| targets.contains(&build)))
    }

    /// The path of a field below the pod spec.
    pub fn at(&self, fields: &[&'static str]) -> Path {
        self.cx.subject.spec_path().fields(fields)
    }

    /// The path of a field below the pod's metadata.
    pub fn meta_at(&self, field: &'static str) -> Path {
        self.cx.subject.template_path().field("metadata").field(field)
    }

    /// All init, app and ephemeral containers.
    pub fn containers(&self) -> impl Iterator<Item = ContainerAt<'c>> + use<'c> {
        let subject = self.cx.subject;
        (self.spec.visit_containers().enumerate()).map(move |(order, (list, index, container))| ContainerAt {
            subject,
            order,
            list,
            index,
            container,
        })
    }

    /// The expressions of all terms of the required node affinity.
    pub fn required_expressions(&self) -> impl Iterator<Item = ExpressionAt<'c>> + use<'c> {
        let subject = self.cx.subject;
        (self.spec.required_terms().iter().enumerate()).flat_map(move |(term, of_term)| {
            let expressions = of_term.match_expressions.iter().enumerate();
            expressions.map(move |(index, expression)| ExpressionAt {
                subject,
                term,
                index,
                expression,
            })
        })
    }

    /// The volumes, with their indexes.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeAt<'c>> + use<'c> {
        let subject = self.cx.subject;
        (self.spec.volumes.iter().enumerate()).map(move |(index, volume)| VolumeAt {
            subject,
            index,
            volume,
        })
    }

    /// The RuntimeClass of the pod; `None` if it is unknown.
    pub fn runtime_class(&self) -> Option<&'c RuntimeClassFacts> {
        self.cx
            .facts
            .runtime_classes
            .get(&**self.spec.runtime_class_name.as_ref()?)
    }

    /// Whether the pod names a RuntimeClass that is not known: it may use Hyper-V isolation, which also runs older
    /// images.
    pub(super) fn has_unknown_runtime_class(&self) -> bool {
        let name = self.spec.runtime_class_name.as_deref().unwrap_or_default();
        !name.is_empty() && self.runtime_class().is_none()
    }

    /// How the pod's containers are isolated from the host.
    pub fn isolation(&self) -> ContainerIsolation {
        if self.spec.has_host_process() {
            ContainerIsolation::HostProcess
        } else {
            self.runtime_class()
                .map_or(ContainerIsolation::Process, RuntimeClassFacts::isolation)
        }
    }

    /// The Windows versions of a container's image, if they are known.
    pub fn image_versions(&self, container: &ContainerAt<'_>) -> Option<&'c KnownVersions> {
        self.image(container)?.versions.as_ref()
    }

    /// The value of a label on every node that the pod can land on: from the nodeSelector, else from its RuntimeClass.
    pub fn selected(&self, label: &str) -> Option<&'c str> {
        let own = self.spec.node_selector.get(label).map(|value| &**value);
        own.or_else(|| self.runtime_class()?.node_selector.get(label).map(String::as_str))
    }

    /// Whether the nodeSelector or the RuntimeClass names a build.
    pub(super) fn selects_build(&self) -> bool {
        (BUILD_LABELS.into_iter()).any(|label| self.selected(label).is_some())
    }

    /// Whether this is the template of a DaemonSet: its controller evaluates it without its RuntimeClass.
    pub(super) fn is_daemonset_template(&self) -> bool {
        self.cx.subject.kind.is_daemon_set()
    }

    /// Whether a requirement of the pod may select builds.
    fn may_select_build(&self) -> bool {
        (BUILD_LABELS
            .into_iter()
            .chain(OS_SKU_LABELS)
            .chain([HOSTNAME_LABEL])
            .chain(POOL_LABELS))
        .any(|label| self.selected(label).is_some())
            || !self.spec.required_terms().is_empty()
    }

    /// The build of the pool or the node that the nodeSelector or the RuntimeClass selects.
    pub(super) fn build_of_pool(&self) -> Option<Build> {
        let named = |label| self.build_of(label, self.selected(label)?);
        let by_sku = OS_SKU_LABELS.into_iter().find_map(named);
        by_sku
            .or_else(|| named(HOSTNAME_LABEL))
            .or_else(|| POOL_LABELS.into_iter().find_map(named))
    }

    /// The builds of the pools or nodes that an expression allows; empty if one of them is unknown.
    pub(super) fn builds_of(&self, expression: &Expression<'_>) -> Vec<Build> {
        if &*expression.operator != "In" {
            return Vec::new();
        }
        let values = expression.values.iter();
        let builds: Option<Vec<Build>> = values
            .map(|value| self.build_of(&expression.key, value))
            .collect();
        builds.unwrap_or_default()
    }

    /// The build of the nodes with this value of a label that implies a build but is not a build label.
    fn build_of(&self, label: &str, value: &str) -> Option<Build> {
        match label {
            _ if OS_SKU_LABELS.contains(&label) => build_of_sku(value),
            HOSTNAME_LABEL => {
                let mut nodes = self.cx.facts.hosts().iter();
                nodes
                    .find(|node| {
                        !node.may_be_at_zero && node.labels.get(label).is_some_and(|name| name == value)
                    })?
                    .build
            }
            // Of a pool, only the nodes that are known say it, if they agree.
            _ if POOL_LABELS.contains(&label) => {
                let known = self.cx.facts.sorts().chain(&self.cx.facts.pools);
                let of_pool = known.filter(|host| host.labels.get(label).is_some_and(|pool| pool == value));
                let mut builds = of_pool.map(|host| host.build);
                let first = builds.next()?;
                first.filter(|_| builds.all(|build| build == first))
            }
            _ => None,
        }
    }

    /// Whether the pod selects builds only because all known nodes of its pool have one: the pool may get others.
    pub(super) fn selects_builds_by_pool(&self) -> bool {
        let states = |label| {
            self.selected(label)
                .is_some_and(|value| self.build_of(label, value).is_some())
        };
        let is_stated = self.selects_build() || OS_SKU_LABELS.into_iter().chain([HOSTNAME_LABEL]).any(states);
        let names_pool = |term: &NodeSelectorTerm<'_>| {
            let has = |is: &dyn Fn(&str) -> bool| term.match_expressions.iter().any(|of| is(&of.key));
            has(&|key| POOL_LABELS.contains(&key)) && !has(&is_build_label)
        };
        !is_stated
            && (POOL_LABELS
                .into_iter()
                .any(|label| self.selected(label).is_some())
                || self.spec.required_terms().iter().any(names_pool))
    }

    /// The builds that the pod's nodeSelector, RuntimeClass or required affinity allows; empty if they require none.
    pub fn selected_builds(&self) -> Vec<Build> {
        let (named, any_other) = self.named_builds();
        if any_other { Vec::new() } else { named }
    }

    /// The builds that the pod's nodeSelector, RuntimeClass or required affinity names, and whether some term of the
    /// affinity allows nodes of any other build.
    pub fn named_builds(&self) -> (Vec<Build>, bool) {
        for label in BUILD_LABELS {
            if let Some(build) = self.selected(label).and_then(Build::parse_label) {
                return (vec![build], false);
            }
        }
        if let Some(build) = self.build_of_pool() {
            return (vec![build], false);
        }
        let mut builds = Vec::new();
        let mut any_other = false;
        // An empty term matches no node.
        for term in self.spec.required_terms().iter().filter(|term| !term.is_empty()) {
            let of_build = || term.match_expressions.iter().filter(|e| is_build_label(&e.key));
            if let Some(expression) = of_build().find(|e| &*e.operator == "In") {
                // Further requirements on the label allow fewer of them.
                let left = |value: &&Str<'_>| {
                    of_build()
                        .filter(|e| e.key == expression.key)
                        .all(|e| holds(e, Some(value)))
                };
                let values = expression.values.iter().filter(left);
                builds.extend(values.filter_map(|value| Build::parse_label(value)));
            } else if let Some(of_pool) = (term.match_expressions.iter())
                .map(|expression| self.builds_of(expression))
                .find(|builds| !builds.is_empty())
            {
                builds.extend(of_pool);
            } else {
                // A term for nodes without the label selects no build; the other terms do.
                any_other |= !of_build().any(|e| &*e.operator == "DoesNotExist");
            }
        }
        builds.sort_unstable();
        builds.dedup();
        (builds, any_other)
    }
}

/// A container and its position.
#[derive(Clone, Copy)]
pub struct ContainerAt<'c> {
    subject: &'c Object<'c>,
    /// Its index among all containers of the pod.
    order: usize,
    /// The list that contains it.
    pub list: ContainerList,
    /// Its index in that list.
    pub index: usize,
    pub container: &'c Container<'c>,
}

impl<'c> std::ops::Deref for ContainerAt<'c> {
    type Target = Container<'c>;
    fn deref(&self) -> &Container<'c> {
        self.container
    }
}

impl ContainerAt<'_> {
    /// The path of the container.
    pub fn path(&self) -> Path {
        self.subject
            .spec_path()
            .field(self.list.field())
            .named_item(self.index, &self.container.name)
    }

    /// The path of a field below the container.
    pub fn at(&self, fields: &[&'static str]) -> Path {
        self.path().fields(fields)
    }

    /// The path of one of its volume mounts, by the volume's name.
    pub fn mount(&self, index: usize) -> Path {
        let name = self
            .container
            .volume_mounts
            .get(index)
            .map_or("", |mount| &*mount.name);
        // Several mounts of one volume are distinguished by index. So are those of a list that is too long to search
        // for each mount.
        let mounts = &self.container.volume_mounts;
        let unique = mounts.len() <= 256 && mounts.iter().filter(|mount| &*mount.name == name).count() == 1;
        self.at(&["volumeMounts"])
            .named_item(index, if unique { name } else { "" })
    }
}

/// An expression of the required node affinity and its position.
#[derive(Clone, Copy)]
pub struct ExpressionAt<'c> {
    subject: &'c Object<'c>,
    term: usize,
    index: usize,
    expression: &'c Expression<'c>,
}

impl<'c> std::ops::Deref for ExpressionAt<'c> {
    type Target = Expression<'c>;
    fn deref(&self) -> &Expression<'c> {
        self.expression
    }
}

impl ExpressionAt<'_> {
    /// The path of one of its fields.
    pub fn at(&self, field: &'static str) -> Path {
        let terms = self.subject.spec_path().fields(REQUIRED_TERMS);
        let expressions = terms.item(self.term).field("matchExpressions");
        expressions.item(self.index).field(field)
    }
}

/// A volume and its position.
#[derive(Clone, Copy)]
pub struct VolumeAt<'c> {
    subject: &'c Object<'c>,
    pub index: usize,
    pub volume: &'c Volume<'c>,
}

impl<'c> std::ops::Deref for VolumeAt<'c> {
    type Target = Volume<'c>;
    fn deref(&self) -> &Volume<'c> {
        self.volume
    }
}

impl VolumeAt<'_> {
    /// The path of a field below the volume.
    pub fn at(&self, fields: &[&'static str]) -> Path {
        let volumes = self.subject.spec_path().field("volumes");
        volumes.named_item(self.index, &self.volume.name).fields(fields)
    }
}
