//! The images of manifests, to look them up before the check.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{CheckNote, DocumentRole, FieldPositions, Manifests, NoteLevel, SourceRole};
use crate::engine::infer_os;
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::object::{Object, ReviewStage};
use crate::model::os::Verdict;
use crate::model::path::Path;
use crate::model::text::shown;

/// The numbers of images by what is known of them.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema)]
pub struct ImageCounts {
    /// Images that exist.
    pub found: usize,
    /// Images that do not exist.
    pub missing: usize,
    /// Images of which no registry reports anything.
    pub unknown: usize,
    /// How many of those that exist or do not exist are known from the cache.
    pub cached: usize,
}

/// Where an image is used first.
#[derive(Clone, Debug)]
pub struct CheckedImage {
    /// The index of its document.
    document: usize,
    path: Path,
    /// Whether a pod that uses it is a Windows pod, so that rules report what is wrong with it.
    pub is_reported: bool,
}

impl Manifests {
    /// The images of the objects to check, by reference as written: those of pods that could be for Windows, of the
    /// objects that `is_meant`.
    pub fn images(
        &self,
        facts: &Facts,
        policies: &PolicySet,
        is_meant: impl Fn(&Object<'_>) -> bool,
    ) -> BTreeMap<String, CheckedImage> {
        let mut images: BTreeMap<String, CheckedImage> = BTreeMap::new();
        for (index, (source, document)) in self.documents.iter().enumerate() {
            let is_fact = (self.sources.get(*source)).is_none_or(|source| source.role == SourceRole::Facts);
            let Ok(DocumentRole::Subject(kind, _)) = self.role(document) else {
                continue;
            };
            if is_fact || !kind.has_pod() {
                continue;
            }
            let Ok(subject) = self.subject_of(document, kind, ReviewStage::Written, self.stated_os(*source))
            else {
                continue;
            };
            if !is_meant(&subject) {
                continue;
            }
            let mut add = |pod: &Object<'_>, place: &dyn Fn(&Path) -> Path| {
                let inference = infer_os(pod, facts, &policies.in_namespace(&pod.namespace, facts));
                if inference.verdict == Verdict::Linux && !inference.is_weak() {
                    return;
                }
                for (list, at, container) in pod.pod().iter().flat_map(|pod| pod.visit_containers()) {
                    let Some(image) = container.image.as_ref().filter(|image| !image.is_empty()) else {
                        continue;
                    };
                    let is_reported = inference.verdict == Verdict::Windows;
                    if let Some(known) = images.get_mut(&**image) {
                        known.is_reported |= is_reported;
                        continue;
                    }
                    let path = pod.spec_path().field(list.field()).item(at).field("image");
                    let used = CheckedImage {
                        document: index,
                        path: place(&path),
                        is_reported,
                    };
                    images.insert(image.to_string(), used);
                }
            };
            if subject.custom_pods.is_empty() {
                add(&subject, &Path::clone);
            }
            for pod in &subject.custom_pods {
                add(&subject.with_custom_pod(pod), &|path| pod.place(path));
            }
        }
        images
    }

    /// A note about an image, at its first use.
    pub fn image_note(&self, image: &str, used: &CheckedImage, message: &str) -> CheckNote {
        let document = self.documents.get(used.document);
        let source = document.and_then(|(source, _)| self.sources.get(*source));
        let position = document.map(|(_, document)| FieldPositions(document.locator()).of(&used.path));
        CheckNote {
            source: source.map(|source| source.name.clone()).unwrap_or_default(),
            line: position.map_or(0, |position| position.line),
            column: position.map_or(0, |position| position.column),
            level: NoteLevel::Note,
            message: format!("the image {} {message}", shown(image)),
        }
    }
}
