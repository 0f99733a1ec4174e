//! The match conditions: CEL by which the API server decides, from what stands in an object, whether Transom is asked.
//!
//! They let through whatever [`crate::engine::infer`] can call Windows or Conflicting from the object and its
//! RuntimeClass, and little else. Where the two cannot be equal the conditions let more through, never less:
//!
//! - Of an image only words are compared, not whole tokens of its tag.
//! - A pod of a size that no cluster runs ([`CONTAINERS`], [`TERMS`], [`VALUES`], [`POOLS`], [`IMAGE`]) is not looked into: it
//!   goes to the entry that fails open. So the worst legal object stays within the cost that the API server allows.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use crate::model::facts::{BETA_OS_LABEL, BUILD_LABEL, OS_LABEL, TRUSTED_BUILD_LABEL};
use crate::model::policy::PoolLabel;
use crate::model::selection::{is_build_label, is_os_label};

/// The most containers, of all three lists together, that are looked into.
pub const CONTAINERS: usize = 300;
/// The most terms of the required node affinity that are looked into, and the most expressions of each.
pub const TERMS: usize = 32;
/// The most values of an expression on a label of the operating system or of a pool that are looked into. On a label of
/// the build any number may stand: none is read.
pub const VALUES: usize = 8;
/// The most expressions on labels of pools, in all terms together, that are looked into: each of their values is compared
/// with each of up to [`MOST_POOL_LABELS`].
pub const POOLS: usize = 16;
/// The most labels of pools beside the well-known ones.
pub const MOST_POOL_LABELS: usize = 64;
/// The most characters of a label's value, with a `*` at its end.
pub const LONGEST_POOL_LABEL: usize = 64;
/// The most characters of an image that are looked into.
pub const IMAGE: usize = 512;

/// Which pods an entry is for. No pod is in two of the first two; the others are for what neither of them takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sieve {
    /// Evidence 1 to 4: `spec.os.name`, nodeSelector, pool and build labels, required node affinity.
    Strong,
    /// The same on pods that a cluster cannot do without, HostProcess, templates with a RuntimeClass, images.
    Maybe,
    /// Pods of which nothing speaks of an operating system, for a namespace's default.
    Unsaid,
    /// Pods that no selector keeps off Windows nodes, for the reverse guard.
    Unguarded,
}

/// The conditions of an entry; all must hold.
pub fn conditions(sieve: Sieve, pool_labels: &[PoolLabel]) -> Vec<MatchCondition> {
    let pools = Pools::of(pool_labels);
    let (name, body) = match sieve {
        Sieve::Strong => ("is-for-windows", pools.strong()),
        Sieve::Maybe => ("may-be-for-windows", pools.maybe()),
        Sieve::Unsaid => ("says-no-operating-system", pools.unsaid()),
        Sieve::Unguarded => ("may-land-on-windows", pools.unguarded()),
    };
    [
        ("is-not-being-deleted", NOT_DELETED.to_owned()),
        ("changes-the-pod", CHANGED.to_owned()),
        (name, on_the_pod(&pools, &body)),
    ]
    .map(|(name, expression)| MatchCondition {
        name: name.to_owned(),
        expression,
    })
    .into()
}

/// Whether a condition that was written by [`conditions`] hears a label of pools. Wherever it was changed by hand, the
/// answer is no sooner than yes.
pub fn hears(expression: &str, label: &PoolLabel) -> bool {
    if is_os_label(&label.key) || is_build_label(&label.key) {
        return true;
    }
    let start = format!("{}.optMap(v, ", selected(&label.key));
    let Some((_, rest)) = expression.split_once(&start) else {
        return false;
    };
    let tests = rest
        .split_once(").orValue(false)")
        .map_or(rest, |(tests, _)| tests);
    let value = label.value.to_ascii_lowercase();
    let same = is_one_of(std::slice::from_ref(&value));
    let literal = quoted(value.strip_suffix('*').unwrap_or(&value));
    tests.split(" || ").any(|test| {
        let prefix = test
            .strip_prefix("v.lowerAscii().startsWith(")
            .and_then(|rest| rest.strip_suffix("')"));
        test == same || prefix.is_some_and(|prefix| literal.starts_with(prefix))
    })
}

const NOT_DELETED: &str = "!object.?metadata.?deletionTimestamp.hasValue()";

/// An update that leaves the pod or its template as it was (scaling, labels, status, finalizers) can bring in nothing.
const CHANGED: &str = "\
request.operation != 'UPDATE' || (
  request.resource.resource == 'pods'
    ? object.?spec.orValue({}) != oldObject.?spec.orValue({})
    : request.resource.resource == 'cronjobs'
    ? object.?spec.?jobTemplate.orValue({}) != oldObject.?spec.?jobTemplate.orValue({})
    : request.resource.resource == 'podtemplates'
    ? object.?template.orValue({}) != oldObject.?template.orValue({})
    : object.?spec.?template.orValue({}) != oldObject.?spec.?template.orValue({})
)";

/// The pod spec, whatever kind it stands in.
const SPEC: &str = "\
request.resource.resource == 'pods'
    ? object.?spec.orValue({})
    : request.resource.resource == 'cronjobs'
    ? object.?spec.?jobTemplate.?spec.?template.?spec.orValue({})
    : request.resource.resource == 'podtemplates'
    ? object.?template.?spec.orValue({})
    : object.?spec.?template.?spec.orValue({})";

/// The terms of the required node affinity.
const TERMS_OF: &str =
    "s.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms";

const CRITICAL: &str =
    "s.?priorityClassName.orValue('') in ['system-node-critical', 'system-cluster-critical']";

/// Such a pod is pinned to its node already.
const OF_A_DAEMONSET: &str = "\
object.?metadata.?ownerReferences.orValue([]).exists(o,
    o.?kind.orValue('') == 'DaemonSet' && o.?controller.orValue(false))";

const HOST_PROCESS: &str = "\
(s.?securityContext.?windowsOptions.?hostProcess.orValue(false)
    || cs.exists(c, c.?securityContext.?windowsOptions.?hostProcess.orValue(false)))";

/// Only templates: what a RuntimeClass selects has been merged into a pod's nodeSelector before webhooks are called.
const RUNTIME_CLASS: &str = "(request.resource.resource != 'pods' && s.?runtimeClassName.orValue('') != '')";

/// What `model::image::os_hint` knows for Windows, by words: tokens of a tag, repositories with Windows images only, and
/// on Microsoft's own repositories the word for Windows beside which a bare version counts. Never `matches`, which costs
/// many times more than `contains`.
const IMAGE_WORDS: &str = "\
i.contains('ltsc20') || i.contains('nanoserver') || i.contains('servercore')
      || i.contains('dotnet/framework/')
      || i.startsWith('mcr.microsoft.com/windows') || i.startsWith('mcr.microsoft.com:443/windows')
      || ((i.startsWith('mcr.microsoft.com') || i.startsWith('microsoft/')
          || i.startsWith('docker.io/microsoft/') || i.startsWith('index.docker.io/microsoft/'))
        && (i.contains(':win') || i.contains('-win')
          || i.contains('microsoft/iis') || i.contains('microsoft/aspnet')
          || i.contains('microsoft/dotnet-framework') || i.contains('microsoft/wcf')))";

/// A condition on these names:
///
/// - `s`: the pod spec
/// - `cs`: its containers of all three lists
/// - `ts`: the terms of its required node affinity
/// - `big`: whether it is larger than anything that runs
/// - `systems`: the operating system that each term leaves, or an empty text; a term with nothing in it matches no node
///   and does not count
///
/// CEL has no `let` here: a list of one and `exists` is one, so that nothing is worked out twice.
fn on_the_pod(pools: &Pools, body: &str) -> String {
    // A list without entries is `null` where Kubernetes' type does not leave it out.
    let list = |field: &str| format!("optional.ofNonZeroValue({field}.orValue(null)).orValue([])");
    let containers = ["s.?initContainers", "s.?containers", "s.?ephemeralContainers"].map(list);
    let (containers, terms) = (containers.join("\n  + "), list(TERMS_OF));
    let (big, system) = (pools.big(), pools.system_of_expression());
    format!(
        "\
[
  {SPEC}
].exists(s, [
  {containers}
].exists(cs, [
  {terms}
].exists(ts, [
  {big}
].exists(big, [
  big ? [] : ts.filter(t, t.?matchExpressions.orValue([]).size() + t.?matchFields.orValue([]).size() > 0).map(t,
    t.?matchExpressions.orValue([]).map(e,
      {system}
    ).filter(os, os != '')[?0].orValue(''))
].exists(systems,
  {body}
)))))"
    )
}

/// Every image that says Windows, and those too long to look at.
fn windows_image() -> String {
    format!(
        "cs.exists(c, c.?image.orValue('').size() > {IMAGE} || [c.?image.orValue('').lowerAscii()].exists(i,
      {IMAGE_WORDS}))"
    )
}

/// Evidence 1, 2 and 4 for an operating system, but for its labels of builds and pools.
fn says(os: &str, more: &[String]) -> String {
    let mut signs = vec![format!("s.?os.?name.orValue('').lowerAscii() == '{os}'")];
    for key in [OS_LABEL, BETA_OS_LABEL] {
        signs.push(format!("{}.orValue('').lowerAscii() == '{os}'", selected(key)));
    }
    signs.extend_from_slice(more);
    signs.push(format!("(systems.size() > 0 && systems.all(os, os == '{os}'))"));
    format!("({})", signs.join("\n    || "))
}

fn linux() -> String {
    says("linux", &[])
}

/// The labels by which a node selector says Windows, besides those of Kubernetes itself: key, and values in lower case.
struct Pools(BTreeMap<String, Vec<String>>);

impl Pools {
    fn of(labels: &[PoolLabel]) -> Self {
        let mut pools = BTreeMap::<String, Vec<String>>::new();
        for PoolLabel { key, value } in labels {
            // Of Kubernetes' own labels the engine knows by itself what they say.
            if !is_os_label(key) && !is_build_label(key) {
                pools
                    .entry(key.clone())
                    .or_default()
                    .push(value.to_ascii_lowercase());
            }
        }
        Pools(pools)
    }

    fn strong(&self) -> String {
        format!(
            "!big\n  && {}\n  && !({CRITICAL} || {HOST_PROCESS})",
            self.windows()
        )
    }

    fn maybe(&self) -> String {
        format!(
            "big || ({}\n  ? ({CRITICAL} || {HOST_PROCESS})\n  : ({HOST_PROCESS} || {RUNTIME_CLASS}\n    \
             || (!{}\n    && {})))",
            self.windows(),
            linux(),
            windows_image()
        )
    }

    fn unsaid(&self) -> String {
        format!(
            "!big\n  && !{}\n  && !{}\n  && !{HOST_PROCESS} && !{RUNTIME_CLASS}\n  && !{}",
            self.windows(),
            linux(),
            windows_image()
        )
    }

    fn unguarded(&self) -> String {
        let keys = [OS_LABEL, BETA_OS_LABEL, BUILD_LABEL, TRUSTED_BUILD_LABEL]
            .map(quoted)
            .join(", ");
        format!(
            "!big\n  && s.?nodeName.orValue('') == '' && !{OF_A_DAEMONSET}\n  \
             && ![{keys}].exists(k, s.?nodeSelector[?k].hasValue()\n    \
             || ts.exists(t, t.?matchExpressions.orValue([]).exists(e, e.?key.orValue('') == k)))\n  \
             && !{}\n  && !{HOST_PROCESS}\n  && ({}\n    || !{})",
            self.windows(),
            linux(),
            windows_image()
        )
    }

    /// Larger than anything that runs. What costs most stands last.
    fn big(&self) -> String {
        let systems = [OS_LABEL, BETA_OS_LABEL];
        let both = systems.into_iter().chain(self.0.keys().map(String::as_str));
        // The chart puts in each label of a pool where one stands: after a comma, everywhere.
        let both = both.map(quoted).collect::<Vec<_>>().join(", ");
        let systems = systems.map(quoted).join(", ");
        let key = "e.?key.orValue('')";
        format!(
            "cs.size() > {CONTAINERS} || ts.size() > {TERMS} || ts.exists(t,
    t.?matchExpressions.orValue([]).size() > {TERMS} || t.?matchExpressions.orValue([]).exists(e,
      e.?values.orValue([]).size() > {VALUES}
      && {key} in [{both}]))
    || ts.map(t, t.?matchExpressions.orValue([]).filter(e,
      {key} in [{both}] && !({key} in [{systems}])).size()).sum() > {POOLS}"
        )
    }

    /// Evidence 1 to 4 for Windows.
    fn windows(&self) -> String {
        let builds = [BUILD_LABEL, TRUSTED_BUILD_LABEL].map(|key| format!("{}.hasValue()", selected(key)));
        let pools = self.0.iter().map(|(key, values)| {
            format!(
                "{}.optMap(v, {}).orValue(false)",
                selected(key),
                is_one_of(values)
            )
        });
        says("windows", &builds.into_iter().chain(pools).collect::<Vec<_>>())
    }

    /// The operating system that an expression `e` leaves, or an empty text: `model::selection::os_of_expression`.
    fn system_of_expression(&self) -> String {
        let [os, build] = [[OS_LABEL, BETA_OS_LABEL], [BUILD_LABEL, TRUSTED_BUILD_LABEL]]
            .map(|keys| format!("e.?key.orValue('') in [{}]", keys.map(quoted).join(", ")));
        let is_in = "e.?operator.orValue('') == 'In' && e.?values.orValue([]).size() > 0";
        let all = |os: &str| format!("e.?values.orValue([]).all(v, v.lowerAscii() == '{os}')");
        let (windows, linux) = (all("windows"), all("linux"));
        let names = |os: &str| format!("'{os}' in e.?values.orValue([])");
        let (names_windows, names_linux) = (names("windows"), names("linux"));
        let pools = (self.0.iter()).map(|(key, values)| {
            format!(
                ": e.?key.orValue('') == {}
      ? ({is_in}
        && e.?values.orValue([]).all(v, {}) ? 'windows' : '')
      ",
                quoted(key),
                is_one_of(values)
            )
        });
        let pools = pools.collect::<Vec<_>>().concat();
        format!(
            "{os}
      ? ({is_in}
        ? ({windows} ? 'windows'
          : {linux} ? 'linux' : '')
        : e.?operator.orValue('') != 'NotIn' || ({names_linux}) == ({names_windows}) ? ''
        : {names_linux} ? 'windows' : 'linux')
      : {build}
      ? (e.?operator.orValue('') in ['Exists', 'Gt', 'Lt'] || ({is_in}) ? 'windows' : '')
      {pools}: ''"
        )
    }
}

/// Whether `v` is one of these values, given in lower case; a `*` at the end of one stands for anything.
fn is_one_of(values: &[String]) -> String {
    let each = values.iter().map(|value| match value.strip_suffix('*') {
        Some(prefix) => format!("v.lowerAscii().startsWith({})", quoted(prefix)),
        None => format!("v.lowerAscii() == {}", quoted(value)),
    });
    each.collect::<Vec<_>>().join(" || ")
}

/// The value that the nodeSelector has for a label, if any.
fn selected(key: &str) -> String {
    format!("s.?nodeSelector[?{}]", quoted(key))
}

/// A string literal of CEL.
fn quoted(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => literal.extend(['\\', c]),
            // No label has any, and it must not end the literal.
            c if c.is_control() => {}
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(sieve: Sieve, labels: &[(&str, &str)]) -> String {
        let labels: Vec<PoolLabel> = (labels.iter())
            .map(|(key, value)| PoolLabel {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect();
        conditions(sieve, &labels).remove(2).expression
    }

    #[test]
    fn a_policys_own_pool_labels_are_signs_too() {
        let own = condition(Sieve::Strong, &[("pool", "Win*"), ("pool", "it's"), ("all", "*")]);
        assert!(
            own.contains("s.?nodeSelector[?'pool'].optMap(v, v.lowerAscii().startsWith('win') || v.lowerAscii() == 'it\\'s')"),
            "{own}"
        );
        assert!(
            own.contains("[?'all'].optMap(v, v.lowerAscii().startsWith(''))"),
            "{own}"
        );
        assert!(own.contains(": e.?key.orValue('') == 'pool'"), "{own}");
    }

    #[test]
    fn a_condition_hears_the_labels_that_it_was_made_for_and_narrower_ones() {
        let label = |key: &str, value: &str| PoolLabel {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        for sieve in [Sieve::Strong, Sieve::Maybe] {
            let made = condition(sieve, &[("pool", "Win*"), ("pool", "it's"), ("team", "a")]);
            for (key, value, expected) in [
                ("pool", "win*", true),
                ("pool", "WINDOWS-2022", true),
                ("pool", "windows*", true),
                ("pool", "It's", true),
                ("pool", "it's*", false),
                ("pool", "wi*", false),
                ("pool", "linux", false),
                ("team", "a", true),
                ("team", "a*", false),
                ("pools", "win", false),
                (OS_LABEL, "anything", true),
            ] {
                assert_eq!(hears(&made, &label(key, value)), expected, "{key}={value}");
            }
        }
        assert!(!hears("true", &label("pool", "win")));
    }

    #[test]
    fn a_pool_label_does_not_change_what_kubernetes_labels_say() {
        for sieve in [Sieve::Strong, Sieve::Maybe, Sieve::Unsaid, Sieve::Unguarded] {
            let plain = condition(sieve, &[]);
            assert_eq!(
                condition(sieve, &[(OS_LABEL, "linux"), (BUILD_LABEL, "*")]),
                plain
            );
            // The costliest of CEL's functions on texts.
            assert!(!plain.contains("matches("), "{plain}");
        }
    }
}
