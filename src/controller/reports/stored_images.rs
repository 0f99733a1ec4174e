//! What registries report about the images of stored objects, and which objects to evaluate again when that changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::invalidation::Invalidation;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::ImageEvidence;
use crate::model::objects::object::Object;
use crate::model::objects::pod_images::PodImages;
use crate::model::windows::image_facts::ImageFacts;
use crate::registry::service::ImageService;
use crate::scan::EvalContext;

/// The maximum number of recorded uses. Objects beyond it use new facts at their next evaluation.
const MOST_USES: usize = 20_000;
/// How long answers of registries are collected: a rollout has several images.
const GATHER: Duration = Duration::from_secs(5);
/// The least time between two rescans because of images.
const OFTEN: Duration = Duration::from_secs(60);

/// The facts of images, by reference as written.
type FactsByReference = HashMap<String, Arc<ImageFacts>>;

/// The images of stored objects. Without a service, images are known by their names.
pub struct StoredImages(Option<ImageSource>);

struct ImageSource {
    service: ImageService,
    uses: ImageUses,
    changes: watch::Receiver<u64>,
    /// When the next rescan is due.
    due: Option<Instant>,
    /// Not before this time.
    earliest: Instant,
}

/// What is known of the images of one object.
pub struct KnownFacts {
    images: PodImages,
    facts: FactsByReference,
}

impl KnownFacts {
    /// What a service knows of the images of an object; `None` if its policy does not use registries, or admission does not
    /// evaluate it.
    pub fn of(service: &ImageService, context: &EvalContext<'_>, object: &Object<'_>) -> Option<Self> {
        let uses = context.policy_in(&object.namespace).image_evidence == ImageEvidence::Registry;
        if !uses || context.not_reviewed(&object.namespace).is_some() {
            return None;
        }
        let images = PodImages::of(object.pod()?, &object.namespace);
        let facts = service.stored(&images);
        Some(KnownFacts { images, facts })
    }

    /// The facts of the cluster, with those of the images.
    pub fn added_to(&self, facts: &Facts) -> Facts {
        facts.with_images(self.facts.clone())
    }
}

impl StoredImages {
    /// The images that a service knows.
    pub fn new(service: Option<&ImageService>, now: Instant) -> Self {
        StoredImages(service.map(|service| ImageSource {
            service: service.clone(),
            uses: ImageUses::default(),
            changes: service.changes(),
            due: None,
            earliest: now,
        }))
    }

    /// What is known of the images of an object; `None` if its policy does not use registries, or admission does not
    /// evaluate it.
    pub fn known(&self, context: &EvalContext<'_>, object: &Object<'_>) -> Option<KnownFacts> {
        KnownFacts::of(&self.0.as_ref()?.service, context, object)
    }

    /// Records that an owner was evaluated with these facts. Images that are not known are looked up, and the
    /// owner is evaluated again when something else becomes known.
    pub fn used(&mut self, known: KnownFacts) {
        if let Some(state) = &mut self.0 {
            state.service.prepare(&known.images);
            state.uses.record(known.images, &known.facts);
        }
    }

    /// The objects to evaluate again, because other facts of their images are known now.
    pub fn changed(&mut self, now: Instant) -> Invalidation {
        let Some(state) = &mut self.0 else {
            return Invalidation::None;
        };
        if state.changes.has_changed().unwrap_or(false) {
            state.changes.mark_unchanged();
            let due = (now + GATHER).max(state.earliest);
            state.due.get_or_insert(due);
        }
        if state.due.is_none_or(|due| due > now) {
            return Invalidation::None;
        }
        state.due = None;
        state.earliest = now + OFTEN;
        state.uses.take_changed(|images| state.service.stored(images))
    }
}

/// With which facts owners were evaluated, by their images. Bounded. Pure.
#[derive(Debug, Default)]
struct ImageUses(HashMap<PodImages, Box<[Option<u64>]>>);

impl ImageUses {
    fn record(&mut self, images: PodImages, facts: &FactsByReference) {
        if self.0.len() < MOST_USES || self.0.contains_key(&images) {
            let used = fingerprints(&images, facts);
            self.0.insert(images, used);
        }
    }

    /// The namespaces of which an image is known by other facts now; what is not known any more changes nothing. They are
    /// recorded again at their next evaluation.
    fn take_changed(&mut self, known: impl Fn(&PodImages) -> FactsByReference) -> Invalidation {
        let mut changed = Invalidation::None;
        self.0.retain(|images, used| {
            let now = fingerprints(images, &known(images));
            let differs = |(now, used): (&Option<u64>, &Option<u64>)| now.is_some() && now != used;
            let is_same = !now.iter().zip(used.iter()).any(differs);
            if !is_same {
                changed = std::mem::take(&mut changed).with(images.namespace.clone());
            }
            is_same
        });
        changed
    }
}

/// The content of each image, without the time of its look-up.
fn fingerprints(images: &PodImages, facts: &FactsByReference) -> Box<[Option<u64>]> {
    let fingerprint = |reference: &String| {
        let facts = facts.get(reference)?;
        let mut hasher = DefaultHasher::new();
        let found = facts.found.as_ref();
        found.map(|found| &found.digest).hash(&mut hasher);
        // Configurations can become known later.
        let variants = found.into_iter().flat_map(|found| &found.variants);
        variants
            .filter(|variant| variant.config.is_some())
            .count()
            .hash(&mut hasher);
        Some(hasher.finish())
    };
    images.references.iter().map(fingerprint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::windows::image_facts::{ImageConfig, ImageContents, ImageVariant};

    fn images(namespace: &str, references: &[&str]) -> PodImages {
        PodImages {
            namespace: namespace.to_owned(),
            references: references.iter().map(|&text| text.to_owned()).collect(),
            ..PodImages::default()
        }
    }

    fn facts(reference: &str, digest: &str, config: Option<ImageConfig>, second: i64) -> FactsByReference {
        let variant = ImageVariant {
            config,
            ..ImageVariant::new("windows", "amd64", "10.0.20348.1")
        };
        let facts = ImageFacts {
            looked_up: jiff::Timestamp::from_second(second).unwrap(),
            found: Some(ImageContents {
                digest: digest.to_owned(),
                variants: vec![variant],
            }),
        };
        [(reference.to_owned(), Arc::new(facts))].into()
    }

    #[test]
    fn owners_are_evaluated_again_once_if_an_image_is_known_by_other_facts() {
        let mut uses = ImageUses::default();
        uses.record(images("shop", &["web:1", "log:1"]), &HashMap::new());
        uses.record(images("bank", &["log:1"]), &HashMap::new());
        let shop = Invalidation::None.with("shop".to_owned());
        let known = |facts: &FactsByReference| {
            let facts = facts.clone();
            move |_: &PodImages| facts.clone()
        };
        assert_eq!(uses.take_changed(known(&HashMap::new())), Invalidation::None);
        let first = facts("web:1", "sha256:1", None, 1);
        assert_eq!(uses.take_changed(known(&first)), shop);
        assert_eq!(uses.take_changed(known(&first)), Invalidation::None, "once");
        uses.record(images("shop", &["web:1", "log:1"]), &first);
        // Only confirmed, or not known any more.
        let confirmed = facts("web:1", "sha256:1", None, 2);
        assert_eq!(uses.take_changed(known(&confirmed)), Invalidation::None);
        assert_eq!(uses.take_changed(known(&HashMap::new())), Invalidation::None);
        let completed = facts("web:1", "sha256:1", Some(ImageConfig::default()), 3);
        assert_eq!(uses.take_changed(known(&completed)), shop);
        uses.record(images("shop", &["web:1", "log:1"]), &completed);
        let moved = facts("web:1", "sha256:2", Some(ImageConfig::default()), 4);
        assert_eq!(uses.take_changed(known(&moved)), shop);
    }

    #[test]
    fn uses_are_bounded() {
        let mut uses = ImageUses::default();
        for number in 0..MOST_USES + 10 {
            uses.record(images("shop", &[&format!("web:{number}")]), &HashMap::new());
        }
        assert_eq!(uses.0.len(), MOST_USES);
    }
}
