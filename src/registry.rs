//! Asks the registries of images, anonymously, for which Windows builds there is one: a bounded number of requests, each
//! bounded in time and size. No credentials are read, and what registries answer is only ever read as data.

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
use crate::model::build::Build;

/// So many images are asked for at once, each with one request at a time.
const AT_ONCE: usize = 4;
/// So many images are asked for in all.
const IMAGES: usize = 200;
/// How long all requests together may take.
const WHOLE: Duration = Duration::from_secs(120);

/// What a registry says of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryImage {
    /// It is there for these Windows builds; none, where it is there and not for Windows.
    Builds(Vec<Build>),
    /// There is nothing by that name.
    Missing,
    /// It is not known: what was in the way.
    Unknown(String),
}

/// What is in the way of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RegistryError {
    /// It is in the way of every image of that registry.
    Registry(String),
    /// It is in the way of this image.
    Image(String),
}

impl RegistryError {
    fn image(why: impl Into<String>) -> Self {
        RegistryError::Image(why.into())
    }
}

/// The registries of images, and what has become of asking them.
pub struct Registries {
    client: RegistryClient,
    /// How long all requests may take, and until when that is.
    whole: Duration,
    until: Option<Instant>,
    asked: BTreeSet<String>,
    left_out: BTreeSet<String>,
    /// Why registries are not asked again.
    down: Mutex<BTreeMap<String, String>>,
    /// By registry: what was in the way, and of how many images.
    troubles: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Registries {
    /// Reads the CA certificates of this machine; asks nothing yet.
    ///
    /// # Errors
    /// When there are none.
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

    /// Asks for images that were not asked for before, as long as there are not too many in all.
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

    /// What is to be said of the asking: one line for each registry with images of which it is not known.
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
                "registries were asked for {IMAGES} images, which is the most; {left} {} not asked for, and not verified",
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
