//! The match conditions: CEL expressions with which the API server decides, from the fields of an object,
//! whether to call Transom.
//!
//! Every pod of a cluster pays for them, so they are cheap first and exact second. [`PoolSelectors::sign`]
//! reads fields with `has` and `in`, iterates each list once, and compares strings without patterns. It is
//! complete: it is true for everything that [`crate::engine::evaluate`] would deny, warn about or change
//! because of the object and its RuntimeClass. It also never fails on a `null`, because the API server does
//! not call an entry that fails open after an error. A false positive costs one call.
//!
//! If `Fail` is requested, an exact condition is added, [`PoolSelectors::surely`], because a Linux pod must
//! not be denied. A pod larger than any real one ([`CONTAINERS`], [`IMAGE`], [`EXPRESSIONS`], [`FEW`],
//! [`VALUE`]) is not inspected, and goes to an entry that fails open. The worst legal object therefore stays
//! within the API server's CEL cost limit.

mod custom_resources;
mod listed_images;
mod windows_images;

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use self::windows_images::says_windows_in_a_container;
use crate::model::cluster::facts::LINUX_CLASSES;
use crate::model::nodes::node::{
    BETA_OS_LABEL, BUILD_LABEL, NodeLabel, NodeLabelValue, OS_LABEL, RESTRICTED_BUILD_LABEL,
};
use crate::model::nodes::os_selectors::{is_build_label, is_os_label};
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::windows::registry_patterns::{RegistryPattern, RegistryPatterns};

/// The maximum number of containers, of all three lists together, that are inspected.
const CONTAINERS: usize = 300;
/// The maximum length of an image, in characters, that is inspected.
const IMAGE: usize = 512;
/// The maximum number of expressions per term of the required node affinity that are inspected for evidence.
const EXPRESSIONS: usize = 16;
/// The maximum number of expressions per term that are inspected for a selector on the operating system.
const UNGUARDED_EXPRESSIONS: usize = 32;
/// For `certain`: the maximum number of terms, of expressions per term, and of values per expression that are
/// inspected. The values of expressions on a build label are not read, so their number does not matter.
const FEW: usize = 8;
/// The maximum length of a value, in characters, that is compared with those of pools; longer label values
/// are invalid.
const VALUE: usize = 63;
/// The maximum length of a label value, in characters, including a final `*`.
pub const LONGEST_NODE_LABEL: usize = 64;

/// The name of the condition of an entry that leaves some of the Windows pods to `certain`.
pub const REST: &str = "may-be-for-windows";

/// The names of the conditions.
pub const NAMES: [&str; 6] = [SIGN, CERTAIN, REST, UNSAID, UNGUARDED, LISTED];
const SIGN: &str = "has-a-sign-of-windows";
const CERTAIN: &str = "is-for-windows";
const UNSAID: &str = "says-no-operating-system";
const UNGUARDED: &str = "may-land-on-windows";
const LISTED: &str = "has-an-image-of-a-listed-registry";

/// The pods that an entry matches. No pod matches two entries of a phase, except [`MatchScope::Unsaid`] together with
/// [`MatchScope::LinuxPods`], which are for namespaces that opt in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchScope {
    /// Any evidence of Windows.
    Sign,
    /// Of those, pods that are certainly for Windows by evidence 1 to 4 (`spec.os.name`, nodeSelector, pool
    /// and build labels, required node affinity), except pods that a cluster cannot run without.
    Certain,
    /// The rest of them.
    Rest,
    /// No evidence of any operating system, for the default of a namespace; without those of [`MatchScope::Images`].
    Unsaid,
    /// The same for templates, for the default node selector of a namespace.
    UnsaidTemplates,
    /// No evidence of any operating system, and an image of a listed registry.
    Images,
    /// No evidence of Windows, and no selector that keeps the pod off Windows nodes; without those of
    /// [`MatchScope::Images`].
    LinuxPods,
    /// Any evidence of Windows in a custom resource.
    CustomResources,
}

/// The conditions of an entry. There is only one, because the API server evaluates every condition, even if
/// the first is false.
pub fn conditions(
    match_scope: MatchScope,
    node_labels: &[NodeLabel],
    pod_templates: &[ConfiguredKind],
    registries: &RegistryPatterns,
) -> Vec<MatchCondition> {
    let pools = PoolSelectors::of(node_labels);
    if match_scope == MatchScope::CustomResources {
        return vec![MatchCondition {
            name: SIGN.to_owned(),
            expression: pools.custom_resources(pod_templates),
        }];
    }
    let (sign, surely) = (pools.sign(), pools.surely());
    let (name, body) = match match_scope {
        MatchScope::Sign | MatchScope::CustomResources => (SIGN, sign),
        MatchScope::Certain => (CERTAIN, format!("({sign})\n  && ({surely})")),
        MatchScope::Rest => (REST, format!("({sign})\n  && !({surely})")),
        MatchScope::Unsaid | MatchScope::UnsaidTemplates => {
            let rest = unless_listed(registries, "");
            (UNSAID, format!("!({sign})\n  && !({}){rest}", names_linux()))
        }
        MatchScope::LinuxPods => {
            let rest = unless_listed(registries, &format!(" && !({})", names_linux()));
            (
                UNGUARDED,
                format!("!({sign})\n  && {}{rest}", may_run_on_windows()),
            )
        }
        MatchScope::Images => {
            // Most pods end at the first test: it is cheaper than that for evidence.
            let (listed, linux) = (listed_images::has_listed_image(registries), names_linux());
            (LISTED, format!("{listed}\n  && !({linux})\n  && !({sign})"))
        }
    };
    let condition = MatchCondition {
        name: name.to_owned(),
        // CEL has no `let` here: `exists` on a list with one item binds a name, so that nothing is evaluated
        // twice.
        expression: format!("[\n  {SPEC}\n].exists(s,\n  {body}\n) && {CHANGED}"),
    };
    vec![condition]
}

/// Leaves the images of listed registries to the entry for them, which has no namespace selector of its own.
fn unless_listed(registries: &RegistryPatterns, and: &str) -> String {
    if registries.is_empty() {
        return String::new();
    }
    format!("\n  && !({}{and})", listed_images::has_listed_image(registries))
}

/// Whether a condition written by [`conditions`] selects the images of a pattern.
pub fn selects_registry(expression: &str, pattern: &RegistryPattern) -> bool {
    listed_images::selects_registry(expression, pattern)
}

/// An update that does not change the pod or its template (scaling, labels, status, finalizers) cannot add a
/// finding, and an object that is being deleted must not be blocked.
const CHANGED: &str = "\
(request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp) && (
  request.resource.resource == 'pods'
    ? object.?spec.orValue({}) != oldObject.?spec.orValue({})
    : request.resource.resource == 'cronjobs'
    ? object.?spec.?jobTemplate.orValue({}) != oldObject.?spec.?jobTemplate.orValue({})
    : request.resource.resource == 'podtemplates'
    ? object.?template.orValue({}) != oldObject.?template.orValue({})
    : object.?spec.?template.orValue({}) != oldObject.?spec.?template.orValue({})
))";

/// The pod spec of any kind. Pods come first, because they are the most frequent.
const SPEC: &str = "\
request.resource.resource == 'pods'
    ? (has(object.spec) ? object.spec : {})
    : request.resource.resource == 'cronjobs'
    ? object.?spec.?jobTemplate.?spec.?template.?spec.orValue({})
    : request.resource.resource == 'podtemplates'
    ? object.?template.?spec.orValue({})
    : object.?spec.?template.?spec.orValue({})";

/// The metadata of the pod or of its template.
const META: &str = "\
request.resource.resource == 'pods'
    ? object.metadata
    : request.resource.resource == 'cronjobs'
    ? object.?spec.?jobTemplate.?spec.?template.?metadata.orValue({})
    : request.resource.resource == 'podtemplates'
    ? object.?template.?metadata.orValue({})
    : object.?spec.?template.?metadata.orValue({})";

/// A label of the pod for which the kubelet of a Linux node rejects it.
fn labelled(meta: &str) -> String {
    let os = quoted(OS_LABEL);
    format!("[\n    {meta}\n    ].exists(m, has(m.labels) && {os} in m.labels && m.labels[{os}] != 'linux')")
}

const CRITICAL: &str = "\
has(s.priorityClassName) && s.priorityClassName in ['system-node-critical', 'system-cluster-critical']";

/// Such a pod is already assigned to its node.
const OF_A_DAEMONSET: &str = "\
has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o,
    o.kind == 'DaemonSet' && has(o.controller) && o.controller)";

/// The API server merges the node selector of a RuntimeClass into a pod before it calls webhooks, but not
/// into a template, and the handler appears in neither. RuntimeClasses whose names say Linux cause no call.
fn runtime_class() -> String {
    format!(
        "has(s.runtimeClassName) && (request.resource.resource != 'pods' || !(s.runtimeClassName in {}))",
        among(LINUX_CLASSES)
    )
}

/// A list of the pod. An empty list is `null` if its Kubernetes type does not omit it.
fn list(field: &str) -> String {
    format!("(has({field}) && {field} != null ? {field} : [])")
}

/// The containers of all three lists.
fn containers() -> String {
    ["s.initContainers", "s.containers", "s.ephemeralContainers"]
        .map(list)
        .join("\n    + ")
}

/// The texts of containers whose types the API server validates: see [`says_windows_in_a_container`].
const TEXT: &str = "\
has(c.securityContext) && has(c.securityContext.windowsOptions) ? OPTIONS
      : has(c.image) ? c.image : ''";

/// A test on `ts`, the terms of the required node affinity, if it is set.
fn terms(test: &str) -> String {
    const REQUIRED: &str = "s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    let terms = list(&format!("{REQUIRED}.nodeSelectorTerms"));
    format!(
        "has(s.affinity) && has(s.affinity.nodeAffinity) && has({REQUIRED})\n    && [{terms}].exists(ts,\n    {test})"
    )
}

/// Enough evidence of Linux for the engine, so that the default of the namespace is not used.
fn names_linux() -> String {
    let one = format!(
        "ts.size() == 1 && has(ts[0].matchExpressions) && ts[0].matchExpressions.exists(e,\n      \
         e.key in {} && e.operator == 'In' && has(e.values) && e.values == ['linux'])",
        among(&[OS_LABEL, BETA_OS_LABEL])
    );
    let selected = [OS_LABEL, BETA_OS_LABEL].map(quoted);
    let selected = selected.map(|key| format!("{key} in s.nodeSelector && s.nodeSelector[{key}] == 'linux'"));
    format!(
        "has(s.os) && has(s.os.name) && s.os.name == 'linux'\n  || has(s.nodeSelector) && ({})\n  || {}",
        selected.join(" || "),
        terms(&one)
    )
}

/// No node is assigned yet, and no selector restricts the operating system.
fn may_run_on_windows() -> String {
    let keys = [OS_LABEL, BETA_OS_LABEL, BUILD_LABEL, RESTRICTED_BUILD_LABEL];
    let selected = keys.map(|key| format!("{} in s.nodeSelector", quoted(key)));
    // A longer term has too many expressions to inspect.
    let in_terms = format!(
        "ts.exists(t, has(t.matchExpressions) && t.matchExpressions.size() <= {UNGUARDED_EXPRESSIONS}\n      \
         && t.matchExpressions.exists(e, e.key in {}))",
        among(&keys)
    );
    format!(
        "!has(s.nodeName) && !({OF_A_DAEMONSET})\n  && !(has(s.nodeSelector) && ({}))\n  && !({})",
        selected.join(" || "),
        terms(&in_terms)
    )
}

/// The labels with which a node selector means Windows, without those of Kubernetes itself: keys and values.
struct PoolSelectors(BTreeMap<String, Vec<NodeLabelValue>>);

impl PoolSelectors {
    fn of(labels: &[NodeLabel]) -> Self {
        let mut pools = BTreeMap::<String, Vec<NodeLabelValue>>::new();
        for NodeLabel { key, value } in labels {
            // The engine knows the labels of Kubernetes itself.
            if !is_os_label(key) && !is_build_label(key) {
                pools.entry(key.clone()).or_default().push(value.clone());
            }
        }
        PoolSelectors(pools)
    }

    /// True for everything that the engine could classify as Windows or Conflicting, or deny for any pod. The
    /// most expensive tests come last.
    fn sign(&self) -> String {
        self.sign_of(META, &containers(), TEXT)
    }

    fn sign_of(&self, meta: &str, containers: &str, text: &str) -> String {
        // `In` without `linux` among its values, or `NotIn` with `linux`.
        let system = format!(
            "has(e.values) && (e.values.size() > {FEW} || (e.operator == 'In') != ('linux' in e.values))"
        );
        let first_of_values = |tests: &str| {
            format!("e.values.size() > 0 && [e.values[0]].exists(v, v.size() > {VALUE} || {tests})")
        };
        // Any term is enough, because terms are ORed: a term that matches no node must not hide the others.
        let any_term = format!(
            "ts.size() > {FEW} || ts.exists(t, has(t.matchExpressions)\n      \
             && (t.matchExpressions.size() > {EXPRESSIONS} || t.matchExpressions.exists(e,\n      {})))",
            self.expression(&system, first_of_values)
        );
        [
            "has(s.os) && (!has(s.os.name) || s.os.name != 'linux')",
            &self.selected("!= 'linux'"),
            "has(s.securityContext) && has(s.securityContext.windowsOptions)",
            &runtime_class(),
            &labelled(meta),
            &terms(&any_term),
            &says_windows_in_a_container(containers, text),
        ]
        .join("\n  || ")
    }

    /// True for pods whose own fields prove Windows (evidence 1 to 4), except for HostProcess pods and critical pods,
    /// because nodes need these to start.
    fn surely(&self) -> String {
        let leaves = |os: &str, other: &str| {
            format!(
                "has(e.values) && e.values.size() <= {FEW} && (e.operator == 'In'\n        \
                 ? e.values.all(v, v.size() <= {VALUE} && v.lowerAscii() == '{os}')\n        \
                 : e.operator == 'NotIn' && '{other}' in e.values && !('{os}' in e.values))"
            )
        };
        let all_values = |tests: &str| {
            format!("e.values.size() <= {FEW} && e.values.all(v, v.size() <= {VALUE} && ({tests}))")
        };
        // The engine uses the first expression that names an operating system; a term with expressions for
        // both is never certain.
        let each_term = format!(
            "ts.size() <= {FEW} && ts.exists(t, has(t.matchExpressions) || has(t.matchFields)) && ts.all(t,\n      \
             has(t.matchExpressions)\n      \
             ? t.matchExpressions.size() <= {FEW}\n        \
             && !t.matchExpressions.exists(e, e.key in {}\n        \
             && {})\n        \
             && t.matchExpressions.exists(e,\n      {})\n      \
             : !has(t.matchFields))",
            among(&[OS_LABEL, BETA_OS_LABEL]),
            leaves("linux", "windows"),
            self.expression(&leaves("windows", "linux"), all_values)
        );
        let host_process = |of: &str| {
            let options = format!("{of}.securityContext.windowsOptions");
            format!(
                "has({of}.securityContext) && has({options}) && has({options}.hostProcess) && {options}.hostProcess"
            )
        };
        format!(
            "!({CRITICAL})\n  && !({})\n  \
             && [{}].exists(cs, cs.size() <= {CONTAINERS} && !cs.exists(c, {}))\n  \
             && (has(s.os) && has(s.os.name) && s.os.name.lowerAscii() == 'windows'\n  || {}\n  || {})",
            host_process("s"),
            containers(),
            host_process("c"),
            self.selected(".lowerAscii() == 'windows'"),
            terms(&each_term)
        )
    }

    /// The labels of the nodeSelector; those of the operating system are tested with `system`. Each pool
    /// label has its own line, which the chart repeats.
    fn selected(&self, system: &str) -> String {
        let [os, beta, build, trusted] =
            [OS_LABEL, BETA_OS_LABEL, BUILD_LABEL, RESTRICTED_BUILD_LABEL].map(quoted);
        let pools = self.0.iter().map(|(key, values)| {
            let (key, tests) = (quoted(key), is_one_of(values));
            format!("    || {key} in s.nodeSelector && [s.nodeSelector[{key}]].exists(v, v.size() > {VALUE} || {tests})\n")
        });
        let separator = if system.starts_with('.') { "" } else { " " };
        format!(
            "has(s.nodeSelector) && (\n    \
             {os} in s.nodeSelector && s.nodeSelector[{os}]{separator}{system}\n    \
             || {beta} in s.nodeSelector && s.nodeSelector[{beta}]{separator}{system}\n    \
             || {build} in s.nodeSelector || {trusted} in s.nodeSelector\n{}  )",
            pools.collect::<String>()
        )
    }

    /// Whether an expression `e` means Windows: equals `model::os_selectors::os_of_expression`.
    fn expression(&self, system: &str, values: impl Fn(&str) -> String) -> String {
        let pools = self.0.iter().map(|(key, tests)| {
            format!(
                "\n      : e.key == {} ? e.operator == 'In' && has(e.values) && {}",
                quoted(key),
                values(&is_one_of(tests))
            )
        });
        format!(
            "  e.key in {} ? {system}\n      \
             : e.key in {} ? e.operator in ['Exists', 'Gt', 'Lt'] || e.operator == 'In' && has(e.values){}\n      : false",
            among(&[OS_LABEL, BETA_OS_LABEL]),
            among(&[BUILD_LABEL, RESTRICTED_BUILD_LABEL]),
            pools.collect::<String>()
        )
    }
}

/// Whether `v` is one of these values.
fn is_one_of(values: &[NodeLabelValue]) -> String {
    let each = values.iter().map(|value| match value {
        NodeLabelValue::Prefix(prefix) => format!("v.startsWith({})", quoted(prefix)),
        NodeLabelValue::Exact(value) => format!("v == {}", quoted(value)),
    });
    each.collect::<Vec<_>>().join(" || ")
}

/// A list literal of CEL.
fn among(keys: &[&str]) -> String {
    format!(
        "[{}]",
        keys.iter().map(|key| quoted(key)).collect::<Vec<_>>().join(", ")
    )
}

/// A string literal of CEL.
fn quoted(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => literal.extend(['\\', c]),
            // No valid label contains one, and it must not end the literal.
            c if c.is_control() => {}
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::windows_images::{OF_IMAGES, OF_MICROSOFT, OF_OTHERS};
    use super::*;

    fn label(key: &str, value: &str) -> NodeLabel {
        let prefix = value
            .strip_suffix('*')
            .map(|prefix| NodeLabel::prefix(key, prefix));
        prefix.unwrap_or_else(|| NodeLabel::exact(key, value))
    }

    fn condition(match_scope: MatchScope, labels: &[(&str, &str)]) -> String {
        let labels: Vec<NodeLabel> = labels.iter().map(|(key, value)| label(key, value)).collect();
        let [only] = <[MatchCondition; 1]>::try_from(conditions(
            match_scope,
            &labels,
            &[],
            &RegistryPatterns::default(),
        ))
        .unwrap();
        only.expression
    }

    /// Evaluates the condition on a container's image without an API server.
    fn selects_image(image: &str) -> bool {
        let image = image.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| image.contains(word));
        has(&OF_IMAGES)
            || if image.contains("microsoft") {
                has(&OF_MICROSOFT)
            } else {
                image.contains("win") && has(&OF_OTHERS)
            }
    }

    #[test]
    fn every_image_that_says_windows_has_one_of_the_words() {
        let mut windows = 0;
        // Not include_str!: the image is built without the test files.
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images/names.txt");
        let table = std::fs::read_to_string(table).unwrap();
        for row in table.lines().filter(|line| !line.starts_with('#')) {
            let mut columns = row.split('|').map(str::trim);
            let (name, sign) = (columns.next().unwrap(), columns.next().unwrap_or_default());
            if sign.starts_with("windows-") {
                assert!(selects_image(name), "{name}");
                windows += 1;
            }
        }
        assert!(windows >= 60, "{windows}");
        for release in crate::model::windows::build::RELEASES
            .iter()
            .flat_map(|release| release.tags)
        {
            for before in [
                "windows",
                "windows-",
                "win",
                "win-",
                "nanoserver",
                "servercore-",
                "windows-amd64-",
            ] {
                for image in [format!("x:{before}{release}"), format!("x:1-{before}{release}")] {
                    let reference = crate::model::windows::image::ImageRef::parse(&image).unwrap();
                    let hint = crate::model::windows::image::os_hint(&reference);
                    assert!(
                        matches!(hint, crate::model::windows::image::OsHint::WindowsTagToken(_)),
                        "{image}: {hint:?}"
                    );
                    assert!(selects_image(&image), "{image}");
                }
            }
        }
    }

    #[test]
    fn node_labels_of_node_policies_are_signs_too() {
        let own = condition(
            MatchScope::Sign,
            &[("pool", "Win*"), ("pool", "it's"), ("all", "*")],
        );
        for part in [
            "|| 'pool' in s.nodeSelector && [s.nodeSelector['pool']].exists(v, v.size() > 63 || v.startsWith('Win') || v == 'it\\'s')\n",
            "[s.nodeSelector['all']].exists(v, v.size() > 63 || v.startsWith(''))\n",
            ": e.key == 'pool' ?",
        ] {
            assert!(own.contains(part), "{part}: {own}");
        }
    }

    #[test]
    fn a_node_label_does_not_change_what_kubernetes_labels_say() {
        for match_scope in [
            MatchScope::Sign,
            MatchScope::Certain,
            MatchScope::Rest,
            MatchScope::Unsaid,
            MatchScope::LinuxPods,
            MatchScope::Images,
            MatchScope::CustomResources,
        ] {
            let plain = condition(match_scope, &[]);
            assert_eq!(
                condition(match_scope, &[(OS_LABEL, "linux"), (BUILD_LABEL, "*")]),
                plain
            );
            // The most expensive CEL function on strings.
            assert!(!plain.contains("matches("), "{plain}");
        }
    }
}
