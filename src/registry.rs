//! Queries image registries anonymously for the Windows builds of images: a bounded number of requests, each
//! bounded in time and size. Reads no credentials, and treats all responses as untrusted data.

mod auth;
mod client;
mod endpoint;
mod manifest;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::time::{Instant, timeout_at};

pub use self::client::NoClient;
use self::client::RegistryClient;
use self::endpoint::RegistryEndpoint;
use crate::model::revisions::ImageVersions;

/// The number of images that are queried concurrently, each with one request at a time.
const AT_ONCE: usize = 4;
/// The maximum number of images in total.
const IMAGES: usize = 200;
/// The maximum time of all requests together.
const WHOLE: Duration = Duration::from_secs(120);

/// A registry's answer about an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryImage {
    /// The image exists for these Windows versions; empty if it exists but not for Windows.
    Builds(ImageVersions),
    /// The image does not exist.
    Missing,
    /// Unknown: the reason.
    Unknown(String),
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RegistryError {
    /// It affects every image of that registry.
    Registry(String),
    /// It affects this image.
    Image(String),
}

impl RegistryError {
    fn image(why: impl Into<String>) -> Self {
        RegistryError::Image(why.into())
    }
}

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
        Ok(Registries::by(RegistryClient::new()?))
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
    pub async fn ask(&mut self, images: BTreeSet<String>) -> Vec<(String, RegistryImage)> {
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
        let answers: Vec<(String, RegistryImage)> =
            stream::iter(asking).buffer_unordered(AT_ONCE).collect().await;
        for (image, found) in &answers {
            if let (RegistryImage::Unknown(why), Ok(place)) = (found, RegistryEndpoint::of(image)) {
                let of_registry = self.troubles.entry(place.registry).or_default();
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

    async fn ask_for(&self, image: String, until: Instant) -> (String, RegistryImage) {
        let late = |_| {
            RegistryImage::Unknown(format!(
                "not answered within the {:?} for all registries",
                self.whole
            ))
        };
        let found = match RegistryEndpoint::of(&image) {
            Ok(place) => timeout_at(until, self.ask_at(&place)).await.unwrap_or_else(late),
            Err(why) => RegistryImage::Unknown(why),
        };
        (image, found)
    }

    async fn ask_at(&self, place: &RegistryEndpoint) -> RegistryImage {
        let down = || self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let known = down().get(&place.registry).cloned();
        if let Some(why) = known {
            return RegistryImage::Unknown(why);
        }
        match self.client.look_up(place).await {
            Ok(found) => found,
            Err(RegistryError::Image(why)) => RegistryImage::Unknown(why),
            Err(RegistryError::Registry(why)) => {
                down().insert(place.registry.clone(), why.clone());
                RegistryImage::Unknown(why)
            }
        }
    }
}

fn images_of(number: usize) -> &'static str {
    if number == 1 { "image" } else { "images" }
}

#[cfg(test)]
mod tests;
