//! Looks up many images for a command: a bounded number of images, concurrently, within one deadline, and each error of
//! a registry once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::client::RegistryClient;
use super::keychain::Keychain;
use super::{Detail, LookupScope, NoClient, RegistryConfig};
use crate::model::image::ImageRef;
use crate::model::image_facts::ImageFacts;

/// The number of images that are queried concurrently, each with one request at a time.
const AT_ONCE: usize = 4;
/// The maximum number of images in total.
const IMAGES: usize = 200;
/// The maximum time of all requests together.
const WHOLE: Duration = Duration::from_secs(120);

/// What a registry states about an image, or why that is not known.
pub type Answer = Result<ImageFacts, String>;

/// The registries of images, and the state of querying them.
pub struct Registries {
    client: RegistryClient,
    /// The maximum time of all requests, and the resulting deadline.
    whole: Duration,
    until: Option<Instant>,
    asked: BTreeSet<String>,
    left_out: BTreeSet<String>,
    /// Registries that are not queried again, with the reason.
    down: Mutex<BTreeMap<String, String>>,
    /// By registry: the errors, with the number of affected images.
    troubles: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Registries {
    /// Reads the CA certificates of this machine; sends no request.
    ///
    /// # Errors
    /// If there are none.
    pub fn new() -> Result<Self, NoClient> {
        Ok(Registries::by(RegistryClient::new(RegistryConfig::default())?))
    }

    fn by(client: RegistryClient) -> Self {
        Registries {
            client,
            whole: WHOLE,
            until: None,
            asked: BTreeSet::new(),
            left_out: BTreeSet::new(),
            down: Mutex::default(),
            troubles: BTreeMap::new(),
        }
    }

    /// Queries images that were not queried before, up to the maximum in total.
    pub async fn ask(&mut self, images: BTreeSet<String>) -> Vec<(String, Answer)> {
        let mut now = Vec::new();
        for image in images {
            if self.asked.contains(&image) {
                continue;
            }
            if self.asked.len() < IMAGES {
                self.asked.insert(image.clone());
                now.push(image);
            } else {
                self.left_out.insert(image);
            }
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.whole);
        let asking = now.into_iter().map(|image| self.ask_for(image, until));
        let answers: Vec<(String, Answer)> = stream::iter(asking).buffer_unordered(AT_ONCE).collect().await;
        for (image, found) in &answers {
            if let (Err(why), Ok(image)) = (found, ImageRef::parse(image)) {
                let of_registry = self.troubles.entry(image.registry.to_owned()).or_default();
                *of_registry.entry(why.clone()).or_default() += 1;
            }
        }
        answers
    }

    /// The summary of the errors: one line for each registry with images that remain unknown.
    pub fn notes(&self) -> Vec<String> {
        let of_registry = |(registry, whys): (&String, &BTreeMap<String, usize>)| {
            let each: Vec<String> = whys
                .iter()
                .map(|(why, images)| format!("{why} ({images} {})", images_of(*images)))
                .collect();
            format!("{registry}: {}; these are not verified", each.join(", "))
        };
        let mut notes: Vec<String> = self.troubles.iter().map(of_registry).collect();
        if !self.left_out.is_empty() {
            let left = self.left_out.len();
            notes.push(format!(
                "Transom requested {IMAGES} images from registries, which is the limit; {left} {} not requested, and not verified",
                if left == 1 { "image was" } else { "images were" }
            ));
        }
        notes
    }

    async fn ask_for(&self, image: String, until: Instant) -> (String, Answer) {
        let late = |_| {
            Err(format!(
                "not answered within the {:?} for all registries",
                self.whole
            ))
        };
        let found = match ImageRef::parse(&image) {
            Ok(image) => timeout_at(until, self.ask_at(&image)).await.unwrap_or_else(late),
            Err(why) => Err(why.to_string()),
        };
        (image, found)
    }

    async fn ask_at(&self, image: &ImageRef<'_>) -> Answer {
        let down = || self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let known = down().get(image.registry).cloned();
        if let Some(why) = known {
            return Err(why);
        }
        let found = self
            .client
            .look_up(image, &Keychain::anonymous(), Detail::Platforms)
            .await;
        found.map_err(|error| {
            if error.scope == LookupScope::Registry {
                down().insert(image.registry.to_owned(), error.message.clone());
            }
            error.message
        })
    }
}

fn images_of(number: usize) -> &'static str {
    if number == 1 { "image" } else { "images" }
}

#[cfg(test)]
mod tests;
