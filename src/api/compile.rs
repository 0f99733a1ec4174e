//! Turning what a `WindowsPodPolicy` says into what the engine reads.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;

use super::pod_policy::{ExemptionSpec, Pool, PoolTaint, WindowsPodPolicySpec};
use super::schema::OrOff;
use crate::engine::effective::{DatedExemption, StoredPolicy};
use crate::manifest::Step;
use crate::model::build::Build;
use crate::model::facts::{Host, Taint};
use crate::model::policy::{Action, Exemption, PlacementParts, Policy, PoolLabel};
use crate::rules;

/// What is done about rules that this version does not know.
pub enum Unknown<'u> {
    /// They are a problem: somebody has just written them.
    Refused,
    /// They are left out and noted here: the object is stored, perhaps by a newer version.
    LeftOut(&'u mut BTreeSet<String>),
}

/// A step to a place in the object.
pub enum Place {
    Key(String),
    Index(usize),
}

impl Place {
    /// The same for [`Document::locate`](crate::manifest::Document::locate).
    pub fn step(&self) -> Step<'_> {
        match self {
            Place::Key(key) => Step::Key(key),
            Place::Index(index) => Step::Index(*index),
        }
    }
}

/// Why an object cannot be used.
pub struct Problem {
    /// Where.
    pub path: Vec<Place>,
    /// What is wrong, where, and what to write instead.
    pub message: String,
}

fn problem(path: &[&str], message: String) -> Problem {
    let place = |part: &&str| {
        part.parse()
            .map_or_else(|_| Place::Key((*part).to_owned()), Place::Index)
    };
    Problem {
        path: path.iter().map(place).collect(),
        message,
    }
}

/// What the engine reads, from what is written.
///
/// # Errors
/// The first thing that cannot be used.
pub fn compile(
    name: String,
    spec: WindowsPodPolicySpec,
    mut unknown: Unknown<'_>,
) -> Result<StoredPolicy, Problem> {
    let mut pool_labels = Policy::well_known_pool_labels();
    pool_labels.extend(spec.evidence.pool_labels.into_iter().map(|l| PoolLabel {
        key: l.key,
        value: l.value,
    }));
    let pools = spec.pools.into_iter().enumerate();
    let policy = Policy {
        name,
        validation: spec.validation.0,
        placement: spec.placement.0,
        parts: PlacementParts {
            os: spec.placement_parts.os,
            os_field: spec.placement_parts.os_field,
            tolerations: spec.placement_parts.tolerations,
            build: spec.placement_parts.build,
            runtime_class: spec.placement_parts.runtime_class,
        },
        repair: spec.repair.0,
        reverse_guard: spec.reverse_guard.0,
        actions: actions(spec.rules, &mut unknown)?,
        pool_labels,
        image_evidence: spec.evidence.images,
        namespace_default_os: spec.evidence.namespace_default_os,
        taints: spec.tolerations.into_iter().map(taint).collect(),
        pools: pools.map(|(i, pool)| host(i, pool)).collect::<Result<_, _>>()?,
        trusted_build_label: spec.build.trusted,
        runtime_classes: spec.runtime_classes,
        exemptions: Vec::new(),
    };
    let mut exemptions = Vec::new();
    for (i, written) in spec.exemptions.into_iter().enumerate() {
        exemptions.extend(exemption(i, written, &mut unknown)?);
    }
    Ok(StoredPolicy {
        policy,
        priority: spec.priority,
        namespace_selector: spec.namespace_selector,
        overrides: spec.namespace_overrides,
        exemptions,
    })
}

fn actions(
    written: BTreeMap<String, OrOff<Action>>,
    unknown: &mut Unknown<'_>,
) -> Result<BTreeMap<&'static str, Action>, Problem> {
    let mut actions = BTreeMap::new();
    for (name, action) in written {
        if let Some(id) = rule(&name, &["spec", "rules", &name], unknown)? {
            actions.insert(id, action.0);
        }
    }
    Ok(actions)
}

/// The id of the rule; `None` where it is unknown and left out.
fn rule(name: &str, path: &[&str], unknown: &mut Unknown<'_>) -> Result<Option<&'static str>, Problem> {
    if let Some(rule) = rules::find(name) {
        return Ok(Some(rule.id));
    }
    if let Unknown::LeftOut(names) = unknown {
        names.insert(name.to_owned());
        return Ok(None);
    }
    let hint = match rules::nearest(name) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "see transom rules".to_owned(),
    };
    let place = path
        .get(..path.len().saturating_sub(1))
        .unwrap_or_default()
        .join(".");
    Err(problem(
        path,
        format!("{place}: there is no rule \"{name}\"; {hint}"),
    ))
}

fn taint(written: PoolTaint) -> Taint {
    Taint {
        key: written.key,
        value: written.value,
        effect: written.effect,
    }
}

fn host(index: usize, pool: Pool) -> Result<Host, Problem> {
    let build = match &pool.build {
        None => None,
        Some(text) => Some(Build::parse_label(text).ok_or_else(|| {
            let message =
                format!("spec.pools[{index}].build: \"{text}\" is no build; write it as in 10.0.20348");
            problem(&["spec", "pools", &index.to_string(), "build"], message)
        })?),
    };
    Ok(Host {
        name: pool.name,
        build,
        taints: pool.taints.into_iter().map(taint).collect(),
        containerd: None,
        template: pool.labels,
    })
}

/// The exemption; `None` where it is for unknown rules only: without them it would be for every rule.
fn exemption(
    index: usize,
    written: ExemptionSpec,
    unknown: &mut Unknown<'_>,
) -> Result<Option<DatedExemption>, Problem> {
    let at = index.to_string();
    let expires: Date = written.expires.parse().map_err(|_| {
        let text = &written.expires;
        let message =
            format!("spec.exemptions[{index}].expires: \"{text}\" is no date; write it as in 2027-03-31");
        problem(&["spec", "exemptions", &at, "expires"], message)
    })?;
    let mut rules = Vec::new();
    for (i, name) in written.rules.iter().enumerate() {
        rules.extend(rule(
            name,
            &["spec", "exemptions", &at, "rules", &i.to_string()],
            unknown,
        )?);
    }
    if rules.is_empty() && !written.rules.is_empty() {
        return Ok(None);
    }
    let note = format!("{} until {expires}: {}", written.owner, written.reason);
    Ok(Some(DatedExemption {
        exemption: Exemption {
            rules,
            images: written.images,
            note,
        },
        users: written.users,
        groups: written.groups,
        namespaces: written.namespaces,
        expires,
    }))
}
