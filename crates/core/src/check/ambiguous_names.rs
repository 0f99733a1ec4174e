//! Names of a pod that could mean several objects of the input, which differ: nothing is concluded from them.

use crate::model::cluster::facts::Facts;
use crate::model::objects::known_claims::ClaimMode;
use crate::model::objects::object::{Object, Template};
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;

/// The paths of such names, and why nothing is concluded.
pub(super) fn ambiguous_names(subject: &Object<'_>, facts: &Facts) -> Vec<(Path, String)> {
    let Some(template) = subject.template() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if subject.custom_pods.is_empty() {
        of_pod(subject, template, &subject.spec_path(), facts, &mut found);
    }
    for pod in &subject.custom_pods {
        let mut names = Vec::new();
        of_pod(subject, &pod.template, &subject.spec_path(), facts, &mut names);
        found.extend(
            names
                .into_iter()
                .map(|(path, message)| (pod.path_in_object(&path), message)),
        );
    }
    let templates = template.claim_templates.iter().enumerate();
    for (index, claim) in templates {
        let name = claim.spec.storage_class_name.as_deref();
        if let Some(message) = name.and_then(|name| contested(Kind::StorageClass, name, facts)) {
            let path = Path::of(&["spec", "volumeClaimTemplates"]).named_item(index, &claim.metadata.name);
            found.push((path.fields(&["spec", "storageClassName"]), message));
        }
    }
    found
}

fn of_pod(
    subject: &Object<'_>,
    template: &Template<'_>,
    spec: &Path,
    facts: &Facts,
    found: &mut Vec<(Path, String)>,
) {
    let class = template.spec.runtime_class_name.as_deref();
    if let Some(message) = class.and_then(|name| contested(Kind::RuntimeClass, name, facts)) {
        found.push((spec.clone().field("runtimeClassName"), message));
    }
    for (index, volume) in template.spec.volumes.iter().enumerate() {
        let path = || spec.clone().field("volumes").named_item(index, &volume.name);
        if let Some(claim) = &volume.persistent_volume_claim {
            let name = &*claim.claim_name;
            if facts.claims.mode(&subject.namespace, name, &subject.source) == ClaimMode::Ambiguous {
                let message = format!(
                    "several claims of the input have the name {}, and their volumeMode differs: it is not known which \
                     one is meant; check their files apart",
                    shown(name)
                );
                found.push((path().fields(&["persistentVolumeClaim", "claimName"]), message));
            }
        }
        let template = volume
            .ephemeral
            .as_ref()
            .and_then(|it| it.volume_claim_template.as_ref());
        let class = template.and_then(|template| template.spec.storage_class_name.as_deref());
        if let Some(message) = class.and_then(|name| contested(Kind::StorageClass, name, facts)) {
            let fields = ["ephemeral", "volumeClaimTemplate", "spec", "storageClassName"];
            found.push((path().fields(&fields), message));
        }
    }
}

fn contested(kind: Kind, name: &str, facts: &Facts) -> Option<String> {
    let is_contested = facts.contested_classes.contains(&(kind, name.to_owned()));
    is_contested.then(|| {
        format!(
            "the input defines the {kind} {} several times, and not equally: it is not known which definition applies; \
             check their files apart",
            shown(name)
        )
    })
}
