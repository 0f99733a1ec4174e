//! What administrators state about their cluster, as it is written: the file of `--cluster-config`, the chart's value `cluster`,
//! and the key `cluster` of `.transom.yaml`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};

use super::field_error::{FieldError, FieldStep, place};
use super::node_policy::TaintEffect;
use super::schema;
use super::selector::{wrong_key, wrong_prefix, wrong_value};
use crate::model::cluster::config::{ClusterConfig, PodNodeSelector};
use crate::model::nodes::node::{MOST_NODE_LABELS, NodeLabel};
use crate::model::objects::pod::Toleration;
use crate::model::objects::requester::{ListedController, is_named, qualified};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::configured::{ConfiguredKind, PodTemplateKind, PodTemplateKindError};
use crate::model::syntax::string_enum::StringEnum as _;

/// The most entries of `controllers`, of `defaultNodeSelector` and of `allowedTolerations`.
const MOST_ENTRIES: usize = 64;
/// The most entries of `podTemplates`, and the most kinds of a controller.
const MOST_KINDS: usize = 32;

/// Facts about the cluster that its API does not show. They are the same for every namespace, whatever policy applies there.
// The comments of the fields are the descriptions that editors and the values of the chart show.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "Facts about a cluster (transom serve --cluster-config)")]
pub struct ClusterConfigSpec {
    /// Users that are the controllers of kinds: of custom resources, whose controllers are never known otherwise, or of
    /// Kubernetes' kinds, if the platform names their controllers differently. Objects that such a user creates for an
    /// owner of one of its kinds are denied only if they could not run anyway, so name no user here that people or
    /// pipelines use.
    #[schemars(length(max = MOST_ENTRIES))]
    pub controllers: Vec<ControllerSpec>,
    /// Custom resources that describe pods and that Transom does not know: they are evaluated like Deployments. An entry for
    /// a kind that this version evaluates itself has no effect.
    #[schemars(length(max = MOST_KINDS))]
    pub pod_templates: Vec<PodTemplateKind>,
    /// Labels of nodes that mean Windows, in addition to those of AKS, GKE and OpenShift, which are built in: a pod whose
    /// nodeSelector or affinity requires one is for Windows. All entries together may have 64 values and prefixes.
    #[schemars(length(max = MOST_NODE_LABELS))]
    pub node_labels: Vec<NodeLabelSpec>,
    /// Whether the API server adds the namespace annotation scheduler.alpha.kubernetes.io/node-selector to pods, which is
    /// then evidence for their templates too: only where stored pods show it (Detected), always (Enabled) or never
    /// (Disabled). With Enabled or a defaultNodeSelector, the API server also calls Transom for templates without any
    /// evidence, as it must for the project selectors of OpenShift too.
    #[schemars(schema_with = "schema::one_of::<PodNodeSelector>")]
    pub pod_node_selector: PodNodeSelector,
    /// The clusterDefaultNodeSelector of PodNodeSelector's configuration file, which Transom cannot read: labels that the
    /// API server adds to the nodeSelector of pods in namespaces without the annotation. Not used if podNodeSelector is
    /// Disabled.
    #[schemars(schema_with = "schema::labels")]
    pub default_node_selector: BTreeMap<String, String>,
    /// The whitelist in the configuration file of the plug-in PodTolerationRestriction, which Transom cannot read: placement
    /// adds only tolerations that it allows, in namespaces without a whitelist of their own. Empty: every toleration is
    /// allowed.
    #[schemars(length(max = MOST_ENTRIES))]
    pub allowed_tolerations: Vec<AllowedToleration>,
}

/// A controller that is not one of Kubernetes' own.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControllerSpec {
    /// Its complete user name, such as system:serviceaccount:argo-rollouts:argo-rollouts.
    #[schemars(schema_with = "schema::user")]
    pub username: String,
    /// The kinds of the owners for which it creates objects, such as Rollout.argoproj.io or Job.batch.
    #[schemars(schema_with = "schema::kinds")]
    pub kinds: Vec<String>,
}

/// A label of nodes that means Windows, with values, prefixes of values, or both.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("anyOf" = [{"required": ["values"]}, {"required": ["valuePrefixes"]}]))]
pub struct NodeLabelSpec {
    /// The label's key.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::QUALIFIED_NAME))]
    pub key: String,
    /// Its values that mean Windows; case-sensitive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_values")]
    pub values: Vec<String>,
    /// Prefixes of such values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_value_prefixes")]
    pub value_prefixes: Vec<String>,
}

impl NodeLabelSpec {
    /// Each of its values and prefixes.
    pub fn labels(&self) -> impl Iterator<Item = NodeLabel> {
        let values = self.values.iter().map(|value| NodeLabel::exact(&self.key, value));
        let prefixes = self.value_prefixes.iter();
        values.chain(prefixes.map(|prefix| NodeLabel::prefix(&self.key, prefix)))
    }
}

/// A toleration that pods may have.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowedToleration {
    /// The key of the taint; unset with the operator Exists: every key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taint_key")]
    pub key: Option<String>,
    /// How the value is compared: Equal or Exists. Unset: Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::toleration_operator")]
    pub operator: Option<String>,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taint_value")]
    pub value: Option<String>,
    /// The effect of the taint; unset: every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_of::<TaintEffect>")]
    pub effect: Option<String>,
}

impl From<&AllowedToleration> for Toleration<'static> {
    fn from(written: &AllowedToleration) -> Self {
        let AllowedToleration {
            key,
            operator,
            value,
            effect,
        } = written.clone();
        Toleration {
            key: key.map(Into::into),
            operator: operator.map(Into::into),
            value: value.map(Into::into),
            effect: effect.map(Into::into),
            toleration_seconds: None,
        }
    }
}

impl ClusterConfigSpec {
    /// What the engine reads.
    ///
    /// # Errors
    /// Everything that cannot be used, with its place in the file.
    pub fn compile(&self) -> Result<ClusterConfig, Vec<FieldError>> {
        let mut compiler = ClusterConfigCompiler::default();
        compiler.bounded("controllers", self.controllers.len(), MOST_ENTRIES);
        compiler.bounded("podTemplates", self.pod_templates.len(), MOST_KINDS);
        compiler.bounded("allowedTolerations", self.allowed_tolerations.len(), MOST_ENTRIES);
        compiler.bounded(
            "defaultNodeSelector",
            self.default_node_selector.len(),
            MOST_ENTRIES,
        );
        compiler.default_node_selector(&self.default_node_selector);
        compiler.tolerations(&self.allowed_tolerations);
        let config = ClusterConfig {
            controllers: compiler.controllers(&self.controllers, &self.pod_templates),
            pod_templates: compiler.pod_templates(&self.pod_templates),
            node_labels: compiler.node_labels(&self.node_labels),
            pod_node_selector: self.pod_node_selector,
            default_node_selector: self.default_node_selector.clone(),
            allowed_tolerations: self.allowed_tolerations.iter().map(Into::into).collect(),
        };
        if compiler.problems.is_empty() {
            Ok(config)
        } else {
            Err(compiler.problems)
        }
    }

    /// The JSON schema of the file.
    pub fn schema() -> serde_json::Value {
        // In one piece, so that other schemas can contain it.
        let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
        settings
            .into_generator()
            .into_root_schema_for::<ClusterConfigSpec>()
            .to_value()
    }
}

/// Takes what can be used, and notes what cannot.
#[derive(Default)]
struct ClusterConfigCompiler {
    problems: Vec<FieldError>,
}

impl ClusterConfigCompiler {
    fn note(&mut self, path: &[&str], what: &str) {
        self.problems.push(FieldError::at(place(path), what));
    }

    fn bounded(&mut self, field: &str, count: usize, most: usize) {
        if count > most {
            self.note(
                &[field],
                &format!("it has {count} entries, and the limit is {most}"),
            );
        }
    }

    /// Users who are believed to be controllers. A pattern would trust too many, and no name at all is every unknown
    /// user. A kind that is not known would silently have no effect.
    fn controllers(
        &mut self,
        written: &[ControllerSpec],
        pod_templates: &[PodTemplateKind],
    ) -> Vec<ListedController> {
        let is_configured = |name: &str| {
            let mut configured = pod_templates.iter();
            configured.any(|kind| name.split_once('.') == Some((kind.kind.as_str(), kind.group.as_str())))
        };
        for (i, ControllerSpec { username, kinds }) in written.iter().enumerate() {
            let at = i.to_string();
            match username.trim() {
                "" => self.note(&["controllers", &at, "username"], "the user name is empty"),
                name if name.contains('*') => {
                    self.note(&["controllers", &at, "username"], schema::USERS_IN_FULL);
                }
                name if written.iter().take(i).any(|other| other.username == name) => self.note(
                    &["controllers", &at, "username"],
                    "the user is named twice; write all its kinds in one entry",
                ),
                _ if kinds.is_empty() => self.note(
                    &["controllers", &at, "kinds"],
                    "name the kinds of which the user is the controller",
                ),
                _ => {}
            }
            for name in kinds {
                if !Kind::ALL.into_iter().any(|kind| is_named(kind, name)) && !is_configured(name) {
                    let message = format!("unknown kind \"{name}\"; {}", kind_meant(name));
                    self.note(&["controllers", &at, "kinds"], &message);
                }
            }
        }
        let listed = written
            .iter()
            .map(|ControllerSpec { username, kinds }| ListedController {
                username: username.clone(),
                kinds: kinds.clone(),
            });
        listed.collect()
    }

    /// Custom resources. The file may name one that this version evaluates itself: its own path then applies.
    fn pod_templates(&mut self, written: &[PodTemplateKind]) -> Vec<ConfiguredKind> {
        let mut kinds: Vec<ConfiguredKind> = Vec::new();
        for (i, entry) in written.iter().enumerate() {
            match entry.configured() {
                Ok(kind) if kinds.iter().any(|known| known.is(kind.group(), kind.kind())) => {
                    self.note(&["podTemplates", &i.to_string()], "the kind is named twice");
                }
                Ok(kind) => kinds.push(kind),
                Err(PodTemplateKindError::BuiltIn(_)) => {}
                Err(error) => self.note(&["podTemplates", &i.to_string()], &error.to_string()),
            }
        }
        kinds
    }

    /// Labels that mean Windows. Their keys and values become part of the conditions of the webhooks.
    fn node_labels(&mut self, written: &[NodeLabelSpec]) -> Vec<NodeLabel> {
        for (i, entry) in written.iter().enumerate() {
            let at = i.to_string();
            if entry.labels().next().is_none() {
                self.note(&["nodeLabels", &at], schema::VALUES_OR_PREFIXES);
            } else if written.iter().take(i).any(|other| other.key == entry.key) {
                let what = "the key is named twice; write all its values in one entry";
                self.note(&["nodeLabels", &at], what);
            }
            self.problem(&["nodeLabels", &at, "key"], wrong_key(&entry.key));
            for (j, value) in entry.values.iter().enumerate() {
                self.problem(&["nodeLabels", &at, "values", &j.to_string()], wrong_value(value));
            }
            for (j, prefix) in entry.value_prefixes.iter().enumerate() {
                let path = ["nodeLabels", &at, "valuePrefixes", &j.to_string()];
                self.problem(&path, wrong_prefix(prefix));
            }
        }
        let labels: Vec<NodeLabel> = written.iter().flat_map(NodeLabelSpec::labels).collect();
        if labels.len() > MOST_NODE_LABELS {
            self.note(&["nodeLabels"], schema::TOO_MANY_NODE_LABEL_VALUES);
        }
        labels
    }

    fn default_node_selector(&mut self, written: &BTreeMap<String, String>) {
        for (key, value) in written {
            for what in [wrong_key(key), wrong_value(value)].into_iter().flatten() {
                let list = place(&["defaultNodeSelector"]);
                let FieldError { message, .. } = FieldError::at(list.clone(), &what);
                let path = [&list[..], &[FieldStep::Key(key.clone())]].concat();
                self.problems.push(FieldError { path, message });
            }
        }
    }

    fn tolerations(&mut self, written: &[AllowedToleration]) {
        for (i, toleration) in written.iter().enumerate() {
            let at = i.to_string();
            let path = |field| ["allowedTolerations", &at, field];
            let AllowedToleration {
                key,
                operator,
                value,
                effect,
            } = toleration;
            self.problem(&path("key"), key.as_deref().and_then(wrong_key));
            self.problem(&path("value"), value.as_deref().and_then(wrong_value));
            let is_unknown =
                |known: &[&str], it: &Option<String>| it.as_deref().is_some_and(|it| !known.contains(&it));
            if is_unknown(&["Equal", "Exists"], operator) {
                self.note(&path("operator"), "write Equal or Exists");
            }
            if is_unknown(TaintEffect::NAMES, effect) {
                let names = TaintEffect::NAMES.join(", ");
                self.note(
                    &path("effect"),
                    &format!("use one of {names}, or leave it out for every effect"),
                );
            }
            if key.is_none() && operator.as_deref() != Some("Exists") {
                self.note(
                    &path("key"),
                    "without a key, the operator must be Exists: every taint",
                );
            }
        }
    }

    fn problem(&mut self, path: &[&str], what: Option<String>) {
        if let Some(what) = what {
            self.note(path, &what);
        }
    }
}

/// What to write instead of the name of a kind that is not known.
fn kind_meant(name: &str) -> String {
    let kind = name.split('.').next().unwrap_or_default();
    let of_name = Kind::ALL
        .into_iter()
        .filter(|known| known.creates().is_some() && known.as_str() == kind);
    let meant: Vec<String> = of_name.map(qualified).collect();
    if meant.is_empty() {
        return "write the kind with its group, as in Rollout.argoproj.io, and add it to podTemplates if Transom does not know it"
            .to_owned();
    }
    format!("did you mean {}?", meant.join(" or "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The config, or the messages of its problems.
    fn compiled(written: Value) -> Result<ClusterConfig, Vec<String>> {
        let spec: ClusterConfigSpec = serde_json::from_value(written).unwrap();
        let messages = |problems: Vec<FieldError>| problems.into_iter().map(|it| it.message).collect();
        spec.compile().map_err(messages)
    }

    #[test]
    fn a_controller_is_a_user_who_is_named_in_full_with_kinds_that_are_known() {
        let with = |controllers: Value| {
            let set = json!({"group": "example.com", "kind": "Set", "path": "spec.template"});
            compiled(json!({"controllers": controllers, "podTemplates": [set]}))
        };
        let of = |name: &str, kinds: &[&str]| json!({"username": name, "kinds": kinds});
        let kinds = [
            "Rollout.argoproj.io",
            "Job.batch",
            "ReplicationController",
            "Set.example.com",
        ];
        assert_eq!(
            with(json!([of("platform:workloads", &kinds)]))
                .unwrap()
                .controllers
                .len(),
            1
        );
        let wrong = json!([
            of(" ", &["Job.batch"]),
            of("system:*", &["Job.batch"]),
            of("a", &[]),
            of("b", &["DaemonSet", "Bus.example.com"]),
            of("b", &["Job.batch"]),
        ]);
        assert_eq!(
            with(wrong).unwrap_err(),
            [
                "controllers[0].username: the user name is empty",
                "controllers[1].username: write the complete user name, without *",
                "controllers[2].kinds: name the kinds of which the user is the controller",
                "controllers[3].kinds: unknown kind \"DaemonSet\"; did you mean DaemonSet.apps or DaemonSet.apps.kruise.io?",
                "controllers[3].kinds: unknown kind \"Bus.example.com\"; write the kind with its group, as in \
                 Rollout.argoproj.io, and add it to podTemplates if Transom does not know it",
                "controllers[4].username: the user is named twice; write all its kinds in one entry",
            ]
        );
    }

    #[test]
    fn labels_that_mean_windows_are_read_with_values_and_prefixes_and_bad_entries_are_named() {
        let with = |labels: Value| compiled(json!({"nodeLabels": labels})).map(|config| config.node_labels);
        let both = json!([{"key": "pool", "values": ["a"], "valuePrefixes": ["win-", "windows-"]}]);
        assert_eq!(
            with(both),
            Ok(vec![
                NodeLabel::exact("pool", "a"),
                NodeLabel::prefix("pool", "win-"),
                NodeLabel::prefix("pool", "windows-"),
            ])
        );
        let wrong = json!([
            {"key": "pool"}, {"key": "team", "values": ["a"]}, {"key": "team", "values": ["b"]},
            {"key": "a' || true || 'b", "values": ["c'd"], "valuePrefixes": ["'"]},
        ]);
        let found = with(wrong).unwrap_err();
        let starts = [
            "nodeLabels[0]: name at least one of values or valuePrefixes",
            "nodeLabels[2]: the key is named twice; write all its values in one entry",
            "nodeLabels[3].key: \"a' || true || 'b\" is not a label key",
            "nodeLabels[3].values[0]: no label has the value",
            "nodeLabels[3].valuePrefixes[0]: no value of a label begins with \"'\"",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        let values = |count: u32| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert!(with(json!([{"key": "pool", "values": values(64)}])).is_ok());
        let many = with(json!([{"key": "pool", "values": values(60), "valuePrefixes": values(5)}]));
        assert!(many.unwrap_err()[0].contains("more than 64 values"));
    }

    #[test]
    fn a_pod_template_that_cannot_be_used_is_a_problem_of_its_entry() {
        let with = |texts: &[&str]| {
            let kinds = texts.iter().map(|text| PodTemplateKind::parse(text).unwrap());
            compiled(json!({"podTemplates": kinds.collect::<Vec<_>>()})).map(|config| config.pod_templates)
        };
        let good = "example.com/GameServerSet=spec.template";
        let machine = "kubevirt.io/VirtualMachine=spec.template";
        assert_eq!(with(&[good]).unwrap()[0].kind(), "GameServerSet");
        assert_eq!(
            with(&[good, good, machine]).unwrap_err(),
            [
                "podTemplates[1]: the kind is named twice",
                "podTemplates[2]: kind: VirtualMachine.kubevirt.io is not evaluated: its pods are Linux pods, \
                 whatever system the virtual machine runs; remove the entry",
            ]
        );
        // A newer version may know a kind that the file of an older one adds.
        assert_eq!(with(&["argoproj.io/Rollout=spec.template"]), Ok(vec![]));
    }

    #[test]
    fn a_selector_and_tolerations_that_the_api_server_could_not_have_are_refused() {
        let selector = json!({"kubernetes.io/os": "windows"});
        let every = json!({"operator": "Exists"});
        let good = json!({"defaultNodeSelector": selector, "allowedTolerations": [every, {"key": "os"}]});
        let config = compiled(good).unwrap();
        assert_eq!(
            (
                config.default_node_selector.len(),
                config.allowed_tolerations.len()
            ),
            (1, 2)
        );
        let wrong = json!({
            "defaultNodeSelector": {"a b": "c d"},
            "allowedTolerations": [{"key": "a b"}, {"key": "a", "value": "-"}, {"key": "a", "operator": "Is"},
                                   {"key": "a", "effect": "No"}, {}],
        });
        let found = compiled(wrong).unwrap_err();
        let starts = [
            "defaultNodeSelector: \"a b\" is not a label key",
            "defaultNodeSelector: no label has the value \"c d\"",
            "allowedTolerations[0].key: \"a b\"",
            "allowedTolerations[1].value: ",
            "allowedTolerations[2].operator: write Equal or Exists",
            "allowedTolerations[3].effect: use one of NoSchedule, PreferNoSchedule, NoExecute",
            "allowedTolerations[4].key: without a key",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        let many: Vec<Value> = (0..65).map(|n| json!({"key": format!("k{n}")})).collect();
        let many = compiled(json!({"allowedTolerations": many})).unwrap_err();
        assert_eq!(
            many,
            ["allowedTolerations: it has 65 entries, and the limit is 64"]
        );
    }
}
