//! The effective policy for one object: users, namespaces and dates are already resolved.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::severity::Severity;
use crate::model::nodes::node::{BUILD_LABEL, RESTRICTED_BUILD_LABEL, Taint};
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::os::Os;

string_enum! {
    /// The mode of a policy. Ordered: later variants are stricter.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    pub enum Mode {
        /// Everything is recorded, without warnings, denials or changes.
        Audit = "Audit",
        /// Errors give warnings, and placement is applied.
        Warn = "Warn",
        /// Errors are denied, and placement is applied.
        Enforce = "Enforce",
    }
}

impl Mode {
    /// What findings do at most.
    pub fn action(self) -> Action {
        match self {
            Mode::Audit => Action::Audit,
            Mode::Warn => Action::Warn,
            Mode::Enforce => Action::Deny,
        }
    }

    /// What happens to ignored fields.
    pub fn ignored_fields(self) -> IgnoredFields {
        match self {
            Mode::Audit => IgnoredFields::Audit,
            Mode::Warn => IgnoredFields::Warn,
            Mode::Enforce => IgnoredFields::Deny,
        }
    }

    /// What the mode means for placement.
    pub fn placement(self) -> PlacementMode {
        match self {
            Mode::Audit => PlacementMode::Audit,
            Mode::Warn | Mode::Enforce => PlacementMode::Apply,
        }
    }
}

/// The settings that a policy sets explicitly, regardless of its mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explicit {
    /// `validation.action`.
    pub action: Option<Action>,
    /// `validation.ignoredFields`.
    pub ignored_fields: Option<IgnoredFields>,
    pub placement: Option<PlacementMode>,
    /// Whether it lists `placement.toleratedTaints`.
    pub taints: bool,
}

string_enum! {
    /// What findings do, the mildest first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    pub enum Action {
        /// Nothing at all; the rule does not run.
        Disabled = "Disabled",
        /// Nothing visible to the user: audit annotations, log, metrics.
        Audit = "Audit",
        /// A kubectl warning.
        Warn = "Warn",
        /// A denial.
        Deny = "Deny",
    }
}

impl Action {
    /// What a finding of this severity does unless the policy sets something else.
    pub fn of_severity(severity: Severity) -> Action {
        match severity {
            Severity::Error => Action::Deny,
            Severity::Warning => Action::Warn,
            Severity::Advice => Action::Audit,
        }
    }
}

string_enum! {
    /// What placement does, the least first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    pub enum PlacementMode {
        /// No edits are planned.
        Disabled = "Disabled",
        /// Edits are planned and recorded.
        Audit = "Audit",
        /// Edits are applied.
        Apply = "Apply",
    }
}

string_enum! {
    /// What happens to an ignored field: Windows ignores it, it does not prevent a pod from running, and the API server
    /// accepts it unless the pod says `spec.os.name: windows`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    pub enum IgnoredFields {
        /// It is recorded.
        Audit = "Audit",
        /// It gives a warning.
        Warn = "Warn",
        /// It is denied, like every other error.
        Deny = "Deny",
        /// It is removed from pods.
        Remove = "Remove",
    }
}

impl IgnoredFields {
    /// What the finding of an ignored field does at most.
    pub fn most(self) -> Action {
        match self {
            IgnoredFields::Audit => Action::Audit,
            IgnoredFields::Warn => Action::Warn,
            IgnoredFields::Deny | IgnoredFields::Remove => Action::Deny,
        }
    }
}

string_enum! {
    /// What happens to a Linux pod that could land on a Windows node.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    pub enum LinuxPods {
        /// Nothing.
        Disabled = "Disabled",
        /// A warning.
        Warn = "Warn",
        /// Placement adds the Linux selector.
        Apply = "Apply",
    }
}

string_enum! {
    /// The fields that placement writes.
    #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PlacementField {
        /// The nodeSelector kubernetes.io/os: windows.
        NodeSelector = "NodeSelector",
        /// spec.os.name: windows, if the API server then still accepts the pod.
        #[serde(rename = "OSName")]
        OsName = "OSName",
        /// Tolerations of the Windows nodes' taints.
        Tolerations = "Tolerations",
        /// The builds that run the image, if some known node or pool does not.
        WindowsBuild = "WindowsBuild",
        /// runtimeClassName, from runtimeClasses.
        RuntimeClass = "RuntimeClass",
    }
}

/// The maximum of [`Policy::image_wait`]: well within the timeout of a webhook.
pub const LONGEST_IMAGE_WAIT: Duration = Duration::from_millis(500);

string_enum! {
    /// Whether images are evidence, and where it comes from.
    #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum ImageEvidence {
        /// They are not.
        Disabled = "Disabled",
        /// By their names.
        #[default]
        Names = "Names",
        /// By what their registries report, else by their names.
        Registry = "Registry",
    }
}

string_enum! {
    /// The label that placement uses to require builds.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub enum BuildLabel {
        /// node.kubernetes.io/windows-build, which kubelets write.
        #[default]
        Kubelet = "Kubelet",
        /// Its copy, which a kubelet cannot write; the nodes must have it.
        NodeRestriction = "NodeRestriction",
    }
}

/// A number that Cargo has written.
const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// The version of Transom in which a rule appeared: major and minor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RulesVersion {
    major: u32,
    minor: u32,
}

impl RulesVersion {
    /// The first release. Its rules deny immediately.
    pub const FIRST: RulesVersion = RulesVersion::new(0, 1);

    /// The version of a minor release.
    pub const fn new(major: u32, minor: u32) -> Self {
        RulesVersion { major, minor }
    }

    /// Parses `0.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        let number = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse().ok())?
        };
        Some(RulesVersion::new(number(major)?, number(minor)?))
    }

    /// The version of this program.
    const CURRENT: RulesVersion = RulesVersion::new(
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
    );

    /// Whether a rule of this version only warns for now: it is newer than the version that the policy pins, or,
    /// without a pin, it appeared in the current minor release.
    pub fn is_new_to(self, pinned: Option<RulesVersion>) -> bool {
        self.is_new_in(RulesVersion::CURRENT, pinned)
    }

    fn is_new_in(self, current: RulesVersion, pinned: Option<RulesVersion>) -> bool {
        match pinned {
            Some(pinned) => self > pinned,
            None => self > RulesVersion::FIRST && self >= current,
        }
    }
}

impl std::fmt::Display for RulesVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// An exemption that applies to this object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exemption {
    /// The IDs of the exempt rules; empty: every rule.
    pub rules: Vec<&'static str>,
    /// Image patterns (`*` matches anything); only findings in containers with such an image. Empty: everywhere.
    pub images: Vec<String>,
    /// The owner and the reason, for the audit log.
    pub note: String,
}

/// The name of the policy that applies without a stored one.
pub const BUILT_IN: &str = "built-in";

/// The effective policy for one object.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// The name of the WindowsPodPolicy, or of the built-in default.
    pub name: String,
    /// The mode, which defines the settings that are not explicit.
    pub mode: Mode,
    pub explicit: Explicit,
    /// What findings do at most.
    pub validation: Action,
    /// What placement edits do.
    pub placement: PlacementMode,
    pub placed: Vec<PlacementField>,
    /// What happens to ignored fields: at most what `validation` allows, unless they are removed.
    pub ignored_fields: IgnoredFields,
    /// What happens to Linux pods that could land on Windows nodes.
    pub linux_pods: LinuxPods,
    /// Actions by rule ID that differ from those of the severity.
    pub actions: BTreeMap<&'static str, Action>,
    /// How many days old the Windows base of an image may be.
    pub base_max_age_days: u16,
    /// Rules newer than this only warn; without it, those that appeared in this version only warn.
    pub rules_version: Option<RulesVersion>,
    /// Whether images are evidence.
    pub image_evidence: ImageEvidence,
    /// How long a review may wait for what a registry reports, at most [`LONGEST_IMAGE_WAIT`]; zero: not at all.
    pub image_wait: Duration,
    /// The operating system of pods without evidence.
    pub default_os: Option<Os>,
    /// Taints of pools that are scaled to zero: Windows pods tolerate them.
    pub taints: Vec<Taint>,
    /// The label that placement uses for builds.
    pub build_label: BuildLabel,
    /// RuntimeClasses by release (`ltsc2022`).
    pub runtime_classes: BTreeMap<String, String>,
    /// Active exemptions.
    pub exemptions: Vec<Exemption>,
}

/// How many days old the Windows base of an image may be if no policy says otherwise.
pub const BASE_MAX_AGE_DAYS: u16 = 180;

/// The most days that a policy can allow.
pub const MOST_AGE_DAYS: u16 = 3650;

impl Policy {
    /// The policy of a cluster without a stored policy: nothing is denied or changed, everything is reported.
    pub fn cluster_default() -> Self {
        Policy::standalone().in_mode(Mode::Audit)
    }

    /// The policy that `serve --standalone` and `check` use: Enforce.
    pub fn standalone() -> Self {
        let mode = Mode::Enforce;
        Policy {
            name: BUILT_IN.to_owned(),
            mode,
            explicit: Explicit::default(),
            validation: mode.action(),
            placement: mode.placement(),
            placed: PlacementField::ALL.to_vec(),
            ignored_fields: IgnoredFields::Deny,
            linux_pods: LinuxPods::Disabled,
            actions: BTreeMap::new(),
            base_max_age_days: BASE_MAX_AGE_DAYS,
            rules_version: None,
            image_evidence: ImageEvidence::Names,
            image_wait: Duration::ZERO,
            default_os: None,
            taints: vec![Taint::no_schedule("os", "windows")],
            build_label: BuildLabel::Kubelet,
            runtime_classes: BTreeMap::new(),
            exemptions: Vec::new(),
        }
    }

    /// The same policy in another mode: explicit settings stay.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> Self {
        self.set_mode(mode);
        self
    }

    /// Whether placement writes this field.
    pub fn places(&self, field: PlacementField) -> bool {
        self.placed.contains(&field)
    }

    /// Changes the mode, and every setting that is not explicit.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.validation = self.explicit.action.unwrap_or_else(|| mode.action());
        self.placement = self.explicit.placement.unwrap_or_else(|| mode.placement());
        self.ignored_fields = self
            .explicit
            .ignored_fields
            .unwrap_or_else(|| match self.explicit.action {
                // The mode's action limits every finding, so nothing that Enforce would deny is hidden below it.
                None => IgnoredFields::Deny,
                Some(_) => mode.ignored_fields(),
            });
    }

    /// What happens to ignored fields, limited by `validation`.
    pub fn effective_ignored_fields(&self) -> IgnoredFields {
        match self.ignored_fields {
            IgnoredFields::Remove => IgnoredFields::Remove,
            other => match other.most().min(self.validation) {
                Action::Deny => IgnoredFields::Deny,
                Action::Warn => IgnoredFields::Warn,
                Action::Audit | Action::Disabled => IgnoredFields::Audit,
            },
        }
    }

    /// The settings for an excluded namespace: no rule runs, nothing is changed.
    pub fn disable(&mut self) {
        self.explicit = Explicit {
            action: Some(Action::Disabled),
            ignored_fields: Some(IgnoredFields::Audit),
            placement: Some(PlacementMode::Disabled),
            ..self.explicit
        };
        self.set_mode(self.mode);
    }

    /// What a finding of the rule with this ID does if `validation` is Deny. A new rule of severity error only warns
    /// until the next minor version: an upgrade must not deny what was accepted before.
    ///
    /// The effective action is the weaker of this and `validation`.
    pub fn rule_action(&self, rule: &str, severity: Severity, since: RulesVersion) -> Action {
        self.actions.get(rule).copied().unwrap_or_else(|| {
            let action = Action::of_severity(severity);
            if since.is_new_to(self.rules_version) {
                action.min(Action::Warn)
            } else {
                action
            }
        })
    }

    /// The label that placement uses to require builds.
    pub fn build_label(&self) -> &'static str {
        match self.build_label {
            BuildLabel::Kubelet => BUILD_LABEL,
            BuildLabel::NodeRestriction => RESTRICTED_BUILD_LABEL,
        }
    }

    /// Whether the rule with this ID is disabled.
    pub fn is_off(&self, rule: &str) -> bool {
        self.actions.get(rule) == Some(&Action::Disabled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_gives_what_the_policy_does_not_say_itself() {
        let written = Policy {
            explicit: Explicit {
                ignored_fields: Some(IgnoredFields::Remove),
                ..Explicit::default()
            },
            ..Policy::standalone()
        };
        for (mode, validation, placement) in [
            (Mode::Audit, Action::Audit, PlacementMode::Audit),
            (Mode::Warn, Action::Warn, PlacementMode::Apply),
            (Mode::Enforce, Action::Deny, PlacementMode::Apply),
        ] {
            let policy = written.clone().in_mode(mode);
            assert_eq!(
                (policy.validation, policy.placement),
                (validation, placement),
                "{mode}"
            );
            assert_eq!(policy.ignored_fields, IgnoredFields::Remove, "{mode}");
        }
        assert!(Mode::Audit < Mode::Warn && Mode::Warn < Mode::Enforce);
    }

    #[test]
    fn an_error_rule_warns_in_the_minor_in_which_it_appears_and_denies_from_the_next() {
        let version = |text: &str| RulesVersion::parse(text).unwrap();
        let first = RulesVersion::FIRST;
        for (since, now, pinned, is_new) in [
            // The rules of the first release deny immediately.
            (first, first, None, false),
            (version("0.2"), version("0.2"), None, true),
            (version("0.2"), version("0.3"), None, false),
            (version("0.3"), version("0.3"), Some(version("0.2")), true),
            (version("0.2"), version("0.3"), Some(version("0.2")), false),
            // A pin is the author's decision, also for the newest version.
            (version("0.3"), version("0.3"), Some(version("0.3")), false),
            (version("0.10"), version("0.10"), Some(version("0.9")), true),
        ] {
            assert_eq!(since.is_new_in(now, pinned), is_new, "{since} {now} {pinned:?}");
        }
        assert_eq!(RulesVersion::parse("1"), None);
        assert_eq!(RulesVersion::parse("v0.1"), None);
    }
}
