//! Taints of nodes, and what they mean. Two questions must not be confused: whether a taint means Windows, which decides what
//! Transom tolerates and requires ([`Taint::means_windows`]), and whether it keeps ordinary pods off its node
//! ([`Taint::keeps_ordinary_pods_off`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::objects::pod::Toleration;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::text::yaml_scalar;

/// A taint of a node, without the time at which it was added.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    pub effect: String,
}

impl Taint {
    /// A taint with effect `NoSchedule`.
    pub fn no_schedule(key: &str, value: &str) -> Self {
        Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        }
    }

    /// Whether placement may learn the taint's toleration for every Windows pod: it means Windows and nothing else, and
    /// its effect is `NoSchedule`.
    ///
    /// Maintenance, pressure, spot, tenant and lifecycle taints never qualify.
    pub fn marks_windows(&self) -> bool {
        self.effect == "NoSchedule" && self.means_windows()
    }

    /// Whether the taint means Windows and nothing else, so that every Windows pod may tolerate it, and every Windows node may be
    /// required to have it. The list is narrow, because what Transom writes must be right.
    pub fn means_windows(&self) -> bool {
        self.windows_release().is_some()
    }

    /// Whether the taint keeps ordinary pods, such as those for Linux, off its node for good. They tolerate no taint of a
    /// Windows node, whatever its key is; only the effect and the duration matter.
    pub fn keeps_ordinary_pods_off(&self) -> bool {
        self.keeps_off() && self.lasts()
    }

    /// What the taint says after Windows: nothing, or a release as in `2019`. `None` if it does not mean Windows, or says
    /// more, as in `os=windows-team`: the key must be one that is commonly used for this.
    pub fn windows_release(&self) -> Option<String> {
        const KEYS: [&str; 5] = [
            "os",
            "windows",
            "sku",
            "node.kubernetes.io/os",
            "kubernetes.io/os",
        ];
        if !KEYS.contains(&self.key.as_str()) {
            return None;
        }
        let value = self.value.to_ascii_lowercase();
        if value == "true" && matches!(self.key.as_str(), "windows" | "os" | "sku") {
            return Some(String::new());
        }
        let rest = value
            .strip_prefix("windows")
            .or_else(|| value.strip_prefix("win"))?;
        let rest: String = rest.chars().filter(|it| !"-_.".contains(*it)).collect();
        let rest = rest.strip_prefix("server").unwrap_or(&rest);
        let release = ["ltsc", "sac"].iter().find_map(|name| rest.strip_prefix(name));
        let release = release.unwrap_or(rest);
        let is_release = release == "20h2" || release.bytes().all(|byte| byte.is_ascii_digit());
        is_release.then(|| release.to_owned())
    }

    /// Prefixes of the keys of taints that belong to Kubernetes, a cloud or an autoscaler. The admission policies of the
    /// chart protect the same ones: `files/node-writes.json` is generated from these lists.
    pub const PROTECTED_PREFIXES: [&str; 9] = [
        "node.kubernetes.io/",
        "node.cloudprovider.kubernetes.io/",
        "node-role.kubernetes.io/",
        "startup-taint.cluster-autoscaler.kubernetes.io/",
        "status-taint.cluster-autoscaler.kubernetes.io/",
        "ignore-taint.cluster-autoscaler.kubernetes.io/",
        "karpenter.sh/",
        "karpenter.k8s.aws/",
        "karpenter.azure.com/",
    ];

    /// Keys of such taints.
    pub const PROTECTED_KEYS: [&str; 2] = [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
    ];

    /// A key with a protected prefix that only states the system of the node: GKE's, which a policy may require.
    pub const SETTABLE_KEY: &str = "node.kubernetes.io/os";

    /// The startup taint, which whoever creates a node puts on it. It is the one taint that Transom may remove without
    /// having set it. The program never sets it; an admission policy of the chart can.
    pub const STARTUP_KEY: &str = "startup-taint.cluster-autoscaler.kubernetes.io/transom";

    /// The taints of nodes that a cloud, Cluster API or Karpenter has not labelled yet. They are removed when it has.
    pub const UNINITIALIZED_KEYS: [&str; 3] = [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
        "karpenter.sh/unregistered",
    ];

    /// Whether it belongs to Kubernetes, a cloud or an autoscaler: Transom neither sets nor removes these, regardless
    /// of policies and annotations.
    pub fn is_protected(&self) -> bool {
        let key = self.key.as_str();
        key != Self::SETTABLE_KEY
            && (Self::PROTECTED_PREFIXES
                .iter()
                .any(|prefix| key.starts_with(prefix))
                || Self::PROTECTED_KEYS.contains(&key))
    }

    /// Whether pods that do not tolerate it are not scheduled on the node, or are evicted; false for
    /// `PreferNoSchedule`.
    pub fn keeps_off(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }

    /// Whether the taint is permanent. Controllers and autoscalers use temporary taints for a node that is new, in
    /// trouble, or about to be removed; the pods that those keep off are scheduled later.
    pub fn lasts(&self) -> bool {
        const PASSING: [&str; 13] = [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/memory-pressure",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/pid-pressure",
            "node.kubernetes.io/network-unavailable",
            "node.kubernetes.io/out-of-service",
            "node.cloudprovider.kubernetes.io/shutdown",
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "karpenter.sh/disrupted",
            "karpenter.sh/disruption",
        ];
        // The cluster autoscaler and others remove theirs when a node has started.
        let of_start = [
            "startup-taint.cluster-autoscaler.kubernetes.io/",
            "ignore-taint.cluster-autoscaler.kubernetes.io/",
        ];
        !PASSING.contains(&self.key.as_str())
            && !Self::UNINITIALIZED_KEYS.contains(&self.key.as_str())
            && !of_start.iter().any(|start| self.key.starts_with(start))
    }

    /// A toleration of it, as YAML in one line.
    pub fn toleration_yaml(&self) -> String {
        let (key, effect) = (yaml_scalar(&self.key), yaml_scalar(&self.effect));
        if self.value.is_empty() {
            return format!("{{key: {key}, operator: Exists, effect: {effect}}}");
        }
        let value = yaml_scalar(&self.value);
        format!("{{key: {key}, operator: Equal, value: {value}, effect: {effect}}}")
    }

    /// Whether a toleration tolerates this taint.
    ///
    /// Source: `k8s.io/component-helpers/scheduling/corev1`, `ToleratesTaint`.
    pub fn is_tolerated_by(&self, toleration: &Toleration<'_>) -> bool {
        let (key, effect) = (text(toleration.key.as_ref()), text(toleration.effect.as_ref()));
        if (!effect.is_empty() && effect != self.effect) || (!key.is_empty() && key != self.key) {
            return false;
        }
        match text(toleration.operator.as_ref()) {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && text(toleration.value.as_ref()) == self.value,
            _ => false,
        }
    }
}

fn text<'t>(field: Option<&'t Str<'_>>) -> &'t str {
    field.map(|text| &**text).unwrap_or_default()
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_taints_that_say_windows_and_nothing_else_are_learned() {
        for (key, value) in [
            ("os", "windows"),
            ("os", "Windows"),
            ("os", "Win2019"),
            ("node.kubernetes.io/os", "windows"),
            ("node.kubernetes.io/os", "Windows"),
            ("node.kubernetes.io/os", "win1809"),
            ("kubernetes.io/os", "windows"),
            ("sku", "windows"),
            ("windows", "true"),
            ("os", "windows-server-2022"),
            ("os", "windows_ltsc2025"),
            ("os", "win20H2"),
        ] {
            assert!(Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        for (key, value) in [
            ("cattle.io/os", "linux"),
            ("os", "linux"),
            ("sku", "gpu"),
            ("team", "windows"),
            ("os", "windows-team"),
            ("sku", "windows2025-gpu"),
            ("sku", "winter"),
            ("node.kubernetes.io/unschedulable", ""),
            ("kubernetes.azure.com/scalesetpriority", "spot"),
        ] {
            assert!(!Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        let evicting = Taint {
            effect: "NoExecute".into(),
            ..Taint::no_schedule("os", "windows")
        };
        assert!(!evicting.marks_windows() && evicting.means_windows());
    }

    #[test]
    fn ordinary_pods_are_kept_off_by_any_key_that_lasts() {
        for (key, value, effect, expected) in [
            ("dedicated", "windows", "NoSchedule", true),
            ("team", "a", "NoExecute", true),
            ("os", "windows", "PreferNoSchedule", false),
            ("node.kubernetes.io/not-ready", "", "NoExecute", false),
            (Taint::STARTUP_KEY, "", "NoSchedule", false),
        ] {
            let taint = Taint {
                effect: effect.to_owned(),
                ..Taint::no_schedule(key, value)
            };
            assert_eq!(taint.keeps_ordinary_pods_off(), expected, "{taint}");
        }
    }

    #[test]
    fn the_toleration_of_a_taint_is_text_for_yaml_too() {
        for (key, value, expected) in [
            (
                "node.kubernetes.io/os",
                "windows",
                "{key: node.kubernetes.io/os, operator: Equal, value: windows, effect: NoSchedule}",
            ),
            (
                "windows",
                "true",
                "{key: windows, operator: Equal, value: \"true\", effect: NoSchedule}",
            ),
            (
                "sku",
                "2019",
                "{key: sku, operator: Equal, value: \"2019\", effect: NoSchedule}",
            ),
            (
                "dedicated",
                "",
                "{key: dedicated, operator: Exists, effect: NoSchedule}",
            ),
            ("on", "", "{key: \"on\", operator: Exists, effect: NoSchedule}"),
        ] {
            assert_eq!(Taint::no_schedule(key, value).toleration_yaml(), expected);
        }
    }

    #[test]
    fn tolerations_match_as_the_scheduler_does_it() {
        let taint = Taint::no_schedule("os", "windows");
        let tolerates = |json: &str| taint.is_tolerated_by(&serde_json::from_str(json).unwrap());
        assert!(tolerates(
            r#"{"key": "os", "value": "windows", "effect": "NoSchedule"}"#
        ));
        assert!(tolerates(
            r#"{"key": "os", "operator": "Equal", "value": "windows"}"#
        ));
        assert!(tolerates(r#"{"key": "os", "operator": "Exists"}"#));
        assert!(tolerates(r#"{"operator": "Exists"}"#));
        assert!(!tolerates(r#"{"key": "os", "value": "Windows"}"#));
        assert!(!tolerates(
            r#"{"key": "os", "operator": "Exists", "effect": "NoExecute"}"#
        ));
        assert!(!tolerates("{}"));
    }
}
