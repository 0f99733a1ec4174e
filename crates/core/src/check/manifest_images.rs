//! The images of manifests, to look them up before the check.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::note::{CheckNote, NoteLevel};
use super::objects::{InputObject, ManifestObjects};
use crate::engine::infer_os;
use crate::engine::policy_set::PolicySet;
use crate::manifest::Position;
use crate::model::cluster::facts::Facts;
use crate::model::objects::object::Object;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::model::windows::os::Verdict;

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

/// The first use of an image.
#[derive(Clone, Debug)]
pub struct CheckedImage {
    source: String,
    position: Position,
    /// Whether a pod that uses it is a Windows pod, so that rules report what is wrong with it.
    pub is_reported: bool,
}

impl CheckedImage {
    /// A note about the image, at its first use.
    pub fn note(&self, image: &str, message: &str) -> CheckNote {
        let Position { line, column } = self.position;
        let message = format!("the image {} {message}", shown(image));
        CheckNote::new(&self.source, (line, column), NoteLevel::Note, message)
    }
}

impl ManifestObjects<'_> {
    /// The images of the objects to check, by reference as written: those of pods that could be for Windows, of the
    /// objects that `is_meant`.
    pub fn images(
        &self,
        facts: &Facts,
        policies: &PolicySet,
        is_meant: impl Fn(&Object<'_>) -> bool,
    ) -> BTreeMap<String, CheckedImage> {
        let mut images = FoundImages {
            facts,
            policies,
            images: BTreeMap::new(),
        };
        for input in &self.all {
            let Some(object) = input.workload_to_check().filter(|object| is_meant(object)) else {
                continue;
            };
            if object.custom_pods.is_empty() {
                images.add(input, object, &Path::clone);
            }
            for pod in &object.custom_pods {
                images.add(input, &object.of_custom_pod(pod), &|path| {
                    pod.path_in_object(path)
                });
            }
        }
        images.images
    }
}

struct FoundImages<'f> {
    facts: &'f Facts,
    policies: &'f PolicySet,
    images: BTreeMap<String, CheckedImage>,
}

impl FoundImages<'_> {
    /// Adds the images of a pod. `written`: the path in the document of a path in the pod.
    fn add(&mut self, input: &InputObject<'_>, pod: &Object<'_>, written: &dyn Fn(&Path) -> Path) {
        let policy = self.policies.in_namespace(&pod.namespace, self.facts);
        let inference = infer_os(pod, self.facts, &policy);
        if inference.verdict == Verdict::Linux && !inference.is_weak() {
            return;
        }
        let is_reported = inference.verdict == Verdict::Windows;
        for (list, at, container) in pod.pod().iter().flat_map(|pod| pod.visit_containers()) {
            let Some(image) = container.image.as_ref().filter(|image| !image.is_empty()) else {
                continue;
            };
            if let Some(known) = self.images.get_mut(&**image) {
                known.is_reported |= is_reported;
                continue;
            }
            let path = pod.spec_path().field(list.field()).item(at).field("image");
            let used = CheckedImage {
                source: input.source.name.clone(),
                position: input.document.content.locator().of(&written(&path)),
                is_reported,
            };
            self.images.insert(image.to_string(), used);
        }
    }
}
