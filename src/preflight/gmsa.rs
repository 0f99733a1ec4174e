//! Group-managed service accounts: the credential specs that pods name, who may use them, and the webhook that fills them in.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterInput, PreflightFinding};
use crate::cluster::environment::{GmsaUse, WebhookPresence};
use crate::model::cluster::facts::GMSA_GROUP;
use crate::model::objects::object::Object;
use crate::model::objects::pod::{Container, PodSpec};
use crate::model::syntax::json::at;
use crate::model::syntax::text::count;
use crate::model::windows::image::ImageRef;
use crate::model::windows::os::Verdict;
use crate::scan::OwnerResult;

/// How many uses are checked.
const MOST_USES: usize = 100;

/// The newest known release of the webhook of windows-gmsa, of 2026-09.
///
/// Source: <https://github.com/kubernetes-sigs/windows-gmsa/releases>.
const NEWEST_WEBHOOK: (u32, u32, u32) = (0, 14, 1);

/// What pods name, collected one workload at a time.
#[derive(Debug, Default)]
pub struct Gmsa {
    /// The uses of credential specs, each with the workloads.
    pub uses: BTreeMap<GmsaUse, Vec<String>>,
    /// Whether each may use its credential spec, as far as the API server answered.
    pub may_use: BTreeMap<GmsaUse, bool>,
    /// Why the API server answered for no more of them: the resource.
    pub unread: Option<String>,
    /// Workloads with the image of the webhook, and their tags.
    webhooks: BTreeSet<(String, String)>,
}

impl Gmsa {
    /// Records the GMSA credential specs that a workload names.
    pub fn visit(&mut self, owner_result: &OwnerResult, subject: &Object<'_>, json: &str, pod: &PodSpec<'_>) {
        let title = owner_result.title();
        if owner_result.verdict == Verdict::Windows {
            let of_pod = pod.windows_options();
            let of_containers = pod.visit_containers();
            let of_containers =
                of_containers.filter_map(|(_, _, container)| Container::windows_options(container));
            let options = of_pod.into_iter().chain(of_containers);
            let names: BTreeSet<&str> = options
                .filter_map(|options| options.gmsa_credential_spec_name.as_deref())
                .collect();
            for name in names {
                self.add(title.clone(), owner_result, account_of(subject, json), name);
            }
            return;
        }
        let images = pod.images().filter_map(|image| ImageRef::parse(image).ok());
        let webhooks = images.filter(|image| image.repository.rsplit('/').next() == Some("k8s-gmsa-webhook"));
        let tags = webhooks.map(|image| image.tag.unwrap_or_default().to_owned());
        self.webhooks.extend(tags.map(|tag| (title.clone(), tag)));
    }

    fn add(&mut self, title: String, owner_result: &OwnerResult, account: String, name: &str) {
        let wanted = GmsaUse {
            namespace: owner_result.namespace.clone(),
            account,
            spec: name.to_owned(),
        };
        if self.uses.len() < MOST_USES || self.uses.contains_key(&wanted) {
            self.uses.entry(wanted).or_default().push(title);
        }
    }

    /// Compares the named credential specs with what exists.
    pub fn findings(&self, input: ClusterInput<'_>, not_listed: &BTreeSet<String>) -> Vec<PreflightFinding> {
        let mut all = Vec::new();
        let unread: Vec<&str> = input.unread(&["API groups", "gmsacredentialspecs"]).collect();
        if !self.uses.is_empty() {
            match &input.environment.credential_specs {
                Some(specs) => all.extend(self.specs(specs)),
                None if unread.is_empty() => all.push(self.without_kind()),
                None => {}
            }
            all.extend(self.refused());
            all.extend(self.webhook(input));
        }
        all.extend(self.old_webhook());
        let unread = unread.into_iter().chain(self.unread.as_deref());
        let unread = unread.chain(not_listed.iter().map(String::as_str));
        let fine = match self.uses.len() {
            0 => "no Windows workload names a GMSACredentialSpec".to_owned(),
            uses => format!("{} of a GMSACredentialSpec can work", count(uses, "use")),
        };
        let ending = PreflightFinding::ending(&all, unread, &fine);
        all.extend(ending);
        all
    }

    /// Every workload that names a credential spec.
    fn users(&self) -> impl Iterator<Item = &String> {
        self.uses.values().flatten()
    }

    fn without_kind(&self) -> PreflightFinding {
        let text = "workloads name a GMSACredentialSpec, and the API server does not have this kind: their containers run without the \
                    domain account";
        PreflightFinding::act(text, "install windows-gmsa, and create the GMSACredentialSpecs")
            .by(self.users())
    }

    /// Credential specs that do not exist, or whose content is wrong.
    fn specs(&self, specs: &BTreeMap<String, Option<String>>) -> Vec<PreflightFinding> {
        let mut users: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for (wanted, titles) in &self.uses {
            users.entry(&wanted.spec).or_default().extend(titles);
        }
        let findings = users.into_iter().filter_map(|(name, titles)| {
            let finding = match specs.get(name) {
                Some(None) => return None,
                Some(Some(problem)) => PreflightFinding::act(
                    format!("GMSACredentialSpec {name} cannot work: {problem}"),
                    "create it again from New-CredentialSpec of the PowerShell module CredentialSpec",
                ),
                None => PreflightFinding::act(
                    format!("GMSACredentialSpec {name} does not exist: the webhook of windows-gmsa refuses the pods that name it"),
                    "create it, or correct gmsaCredentialSpecName",
                ),
            };
            Some(finding.by(titles))
        });
        findings.collect()
    }

    /// Accounts that may not use the credential spec of their pods.
    fn refused(&self) -> impl Iterator<Item = PreflightFinding> {
        let refused = self.may_use.iter().filter(|(_, is_allowed)| !**is_allowed);
        refused.map(|(wanted, _)| {
            let GmsaUse { namespace, account, spec } = wanted;
            let text = format!(
                "the ServiceAccount {namespace}/{account} may not use GMSACredentialSpec {spec}: the webhook of windows-gmsa refuses its pods"
            );
            let remedy = format!("bind a role to it with the verb use on gmsacredentialspecs.{GMSA_GROUP} {spec}");
            PreflightFinding::act(text, remedy).by(self.uses.get(wanted).into_iter().flatten())
        })
    }

    /// A webhook that is not registered.
    fn webhook(&self, input: ClusterInput<'_>) -> Option<PreflightFinding> {
        let is_registered =
            |hooks: &WebhookPresence| hooks.is_mutating && hooks.sees_pods && hooks.name.contains("gmsa");
        let is_known = input.could_list("mutatingwebhookconfigurations");
        let is_missing = is_known && !input.environment.hooks.iter().any(is_registered);
        let text = "no webhook of windows-gmsa is registered, so nothing fills in the credential specs: containers run without the \
                    domain account";
        let remedy = "install windows-gmsa (https://github.com/kubernetes-sigs/windows-gmsa)";
        is_missing.then(|| PreflightFinding::act(text, remedy).by(self.users()))
    }

    /// Webhooks of an older release than the newest known one.
    fn old_webhook(&self) -> impl Iterator<Item = PreflightFinding> {
        let (major, minor, patch) = NEWEST_WEBHOOK;
        let old = self.webhooks.iter();
        let old = old.filter(|(_, tag)| release_of(tag).is_some_and(|release| release < NEWEST_WEBHOOK));
        old.map(move |(title, tag)| PreflightFinding {
            remedy: Some("https://github.com/kubernetes-sigs/windows-gmsa/releases lists what newer releases fix".to_owned()),
            ..PreflightFinding::fine(format!(
                "the webhook of windows-gmsa is release {tag}; the newest known one is v{major}.{minor}.{patch}"
            ))
            .by([title])
        })
    }
}

/// The release of a tag, as in `v0.14.1`.
fn release_of(tag: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = tag
        .trim_start_matches('v')
        .split(['.', '-'])
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// The ServiceAccount of the pods of an object.
pub(super) fn account_of(subject: &Object<'_>, json: &str) -> String {
    let mut path = subject.kind.template().unwrap_or_default().to_vec();
    path.extend(["spec", "serviceAccountName"]);
    let written: Option<String> = at(json, &path).and_then(|text| serde_json::from_str(text).ok());
    written
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}
