//! The catalogue: every rule, by family. A rule is one `static` in the file of its family.

mod asks_for_nothing;
mod context;
pub mod documentation;
pub mod examples;
mod identity;
mod images;
mod nodes;
mod os;
pub mod placement;
mod pod;
mod rule;
pub mod scheduling;
mod security;
mod services;
mod storage;
mod volume_drivers;
mod volumes;

pub use asks_for_nothing::{AsksForNothing, Pods};
// Rules that other modules name: a message that points to one, or a setting of one.
pub use context::{ContainerAt, Cx, Image, KnownVersions, PodCx, VolumeAt};
pub use identity::{HOST_PROCESS_HYPERV, HOST_PROCESS_VERSION};
pub use images::{
    DOTNET_TAG_LINUX_ONLY, IMAGE_BASE_OLD, IMAGE_UNTAGGED_OR_LATEST, LINUX_IMAGE_ON_WINDOWS_POD,
};
pub use nodes::{NODE_BUILD_UNSUPPORTED, NODE_KNOWN_FAULT};
pub use os::{OsSelection, selects_windows};
pub use placement::{DAEMONSET_SPANS_BUILDS, MISSING_WINDOWS_TOLERATION, WINDOWS_NODES_ONLY};
pub use pod::{HOST_PID, relies_on_user_namespace};
use rule::Gate;
pub use rule::{ActionOf, Builds, Check, Finding, MOST_OF_A_RULE, Reporter, Required, Resolver, Rule};
pub use security::{POD_SECURITY, RUN_AS_USER};

use crate::model::syntax::suggest;

/// A family of rules: the hundreds of their IDs.
pub struct Family {
    /// The title in documentation.
    pub title: &'static str,
    /// Its rules, by id.
    pub rules: &'static [&'static Rule],
}

/// Every family, by id.
pub static FAMILIES: &[Family] = &[
    Family {
        title: "Operating system",
        rules: os::RULES,
    },
    Family {
        title: "Security context",
        rules: security::RULES,
    },
    Family {
        title: "HostProcess and identity",
        rules: identity::RULES,
    },
    Family {
        title: "Pod and container settings",
        rules: pod::RULES,
    },
    Family {
        title: "Volumes and paths",
        rules: volumes::RULES,
    },
    Family {
        title: "Images",
        rules: images::RULES,
    },
    Family {
        title: "Placement",
        rules: placement::RULES,
    },
    Family {
        title: "Services and NetworkPolicies",
        rules: services::RULES,
    },
    Family {
        title: "Storage objects",
        rules: storage::RULES,
    },
    Family {
        title: "Nodes and RuntimeClasses",
        rules: nodes::RULES,
    },
];

/// Every rule, by id.
pub fn catalogue() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.rules.iter().copied())
}

/// How many rules there are.
const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].rules.len();
        family += 1;
    }
    count
};

/// Every rule with its gate, by ID. The gates are stored together because the rules are far apart in memory and most
/// are not called.
static GATES: [(Gate, &Rule); COUNT] = {
    let first = FAMILIES[0].rules[0];
    let mut gates = [(Gate::of(first), first); COUNT];
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let (rules, mut rule) = (FAMILIES[family].rules, 0);
        while rule < rules.len() {
            gates[count] = (Gate::of(rules[rule]), rules[rule]);
            count += 1;
            rule += 1;
        }
        family += 1;
    }
    gates
};

/// The rules that may report a finding for an object, by ID.
pub fn applicable(cx: &Cx<'_>) -> impl Iterator<Item = &'static Rule> {
    GATES
        .iter()
        .filter(|(gate, _)| gate.may_match(cx))
        .map(|(_, rule)| *rule)
}

/// The rule with this ID or name, ignoring case.
pub fn find(id_or_name: &str) -> Option<&'static Rule> {
    catalogue().find(|r| r.id.eq_ignore_ascii_case(id_or_name) || r.name.eq_ignore_ascii_case(id_or_name))
}

/// The name of the rule that is most similar to a misspelled name.
pub fn nearest(name: &str) -> Option<&'static str> {
    suggest::nearest(name, catalogue().map(|rule| rule.name))
}
