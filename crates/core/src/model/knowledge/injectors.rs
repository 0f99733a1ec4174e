//! Injectors: what adds containers to pods, what requests it, and which of them know Windows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Knowledge, NOT_A_LINE, is_line, of_source};
use crate::model::syntax::string_enum::string_enum;

/// What adds containers to pods that request it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Injector {
    /// Its id, as in `linkerd`.
    pub id: String,
    /// When the row was last compared with its source. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// What it is called in messages, as in `the injector of Linkerd`.
    pub injector: String,
    /// The API group whose presence shows that it is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Whether its signs mean it only if its API group is there: another injector has the same signs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_if_installed: bool,
    /// What requests it. Of each list, the first sign that the pod or its namespace has decides.
    pub signs: Vec<Vec<InjectorSign>>,
    /// Whether it skips pods on the network of their node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skips_host_network: bool,
    /// For which Windows pods it adds Windows containers; absent: it adds Linux containers to every pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<InjectorOnWindows>,
    /// How to disable it for a pod: lower case, no full stop.
    pub remedy: String,
    /// The page or file that documents it.
    pub source: String,
}

/// A label or an annotation that requests an injector, or declines it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InjectorSign {
    /// Where it is.
    pub at: SignPlace,
    /// Its key.
    pub key: String,
    /// Which values request it; absent: `true`.
    #[serde(default, skip_serializing_if = "SignValues::is_default")]
    pub requests: SignValues,
    /// In place of `requests`: the values that request it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// The values that decline it; absent: every one that does not request it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declines: Vec<String>,
}

string_enum! {
    /// Where a label or an annotation is.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum SignPlace {
        /// A label of the pod.
        PodLabel = "pod-label",
        /// An annotation of the pod.
        PodAnnotation = "pod-annotation",
        /// A label of its namespace.
        NamespaceLabel = "namespace-label",
        /// An annotation of its namespace.
        NamespaceAnnotation = "namespace-annotation",
    }
}

string_enum! {
    /// Which values request an injector.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum SignValues {
        /// What Go's `strconv.ParseBool` reads as true.
        #[default]
        True = "true",
        /// Every one.
        Any = "any",
        /// Every one, except an empty one and `false`: the name of a resource, for example.
        NotFalse = "not-false",
        /// None: it only declines.
        None = "none",
    }
}

/// The Windows pods to which an injector adds Windows containers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InjectorOnWindows {
    /// Since which version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The keys with which it does; absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The nodeSelector by which it knows a Windows pod; absent: it knows all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

impl SignValues {
    #[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde calls
    fn is_default(&self) -> bool {
        *self == SignValues::default()
    }
}

impl InjectorSign {
    /// Whether a value requests the injector; `None` if it decides nothing.
    pub fn decision(&self, value: &str) -> Option<bool> {
        let is_requested = match self.requests {
            _ if !self.values.is_empty() => self.values.iter().any(|known| known == value),
            SignValues::True => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            SignValues::Any => true,
            SignValues::NotFalse => !value.is_empty() && !value.eq_ignore_ascii_case("false"),
            SignValues::None => false,
        };
        let is_declined = || self.declines.is_empty() || self.declines.iter().any(|known| known == value);
        (is_requested || is_declined()).then_some(is_requested)
    }
}

impl InjectorOnWindows {
    /// Whether it has Windows containers for what a label or an annotation requests.
    pub fn is_for(&self, key: &str) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|known| known == key)
    }

    /// What the nodeSelector of a pod lacks, so that it is not known to be a Windows pod.
    pub fn unselected<'v>(&self, value_of: impl Fn(&str) -> Option<&'v str>) -> Option<(&str, &str)> {
        let mut selector = self.node_selector.iter();
        let lacks = selector.find(|(key, value)| value_of(key) != Some(value.as_str()));
        lacks.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl Injector {
    pub(super) fn form_problems(&self) -> Vec<String> {
        let mut problems = of_source(&self.source);
        if !is_line(&self.injector) || !is_line(&self.remedy) {
            problems.push(NOT_A_LINE.to_owned());
        }
        if self.signs.is_empty() || self.signs.iter().any(Vec::is_empty) {
            problems.push("it needs lists of signs, none of them empty".to_owned());
        }
        if self.only_if_installed && self.api_group.is_none() {
            problems.push("onlyIfInstalled needs an apiGroup".to_owned());
        }
        problems
    }

    /// Whether it has this label or annotation as a sign.
    fn has_sign(&self, key: &str) -> bool {
        self.signs.iter().flatten().any(|sign| sign.key == key)
    }
}

impl Knowledge {
    /// Whether an injector is the one that a label or an annotation means, by the API groups that are there.
    pub fn is_meant(&self, injector: &Injector, key: &str, groups: &BTreeSet<String>) -> bool {
        let is_there = |row: &Injector| row.api_group.as_ref().is_some_and(|group| groups.contains(group));
        let is_other = |row: &&Injector| row.id != injector.id && is_there(row) && row.has_sign(key);
        is_there(injector)
            || (!injector.only_if_installed && !self.injectors.iter().any(|row| is_other(&row)))
    }

    /// Whether an API group shows that an injector is installed.
    pub fn is_of_injector(&self, group: &str) -> bool {
        let mut groups = self.injectors.iter().filter_map(|row| row.api_group.as_deref());
        groups.any(|known| known == group)
    }
}

/// Whether an annotation of a namespace is a sign of an injector, by the rows of this program.
pub fn is_namespace_sign(annotation: &str) -> bool {
    static KEYS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let known = Knowledge::built_in();
        let signs = known.injectors.iter().flat_map(|row| row.signs.iter().flatten());
        signs
            .filter(|sign| sign.at == SignPlace::NamespaceAnnotation)
            .map(|sign| sign.key.clone())
            .collect()
    });
    KEYS.contains(annotation)
}
