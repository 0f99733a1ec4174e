//! One look-up, without the parts that are known.

use std::time::Duration;

use tokio::time::timeout;

use super::cache::KnownContent;
use super::key::ImageKey;
use super::state::LookupOutcome;
use crate::model::image::ImageRef;
use crate::model::image_facts::{ImageContents, ImageFacts};
use crate::registry::{Detail, ImageChange, Keychain, KnownImage, LookupError, LookupScope, RegistryClient};

/// How long all requests for one image may take.
const WHOLE: Duration = Duration::from_secs(30);

/// Looks up an image. `known`: the content of the last answer; what is unchanged is not requested again.
pub async fn look_up(
    client: &RegistryClient,
    key: &ImageKey,
    known: Option<&KnownContent>,
    keychain: &Keychain,
) -> LookupOutcome {
    let Ok(image) = ImageRef::parse(&key.reference) else {
        return LookupOutcome::ImageFailed {
            message: "it is not an image reference".to_owned(),
            is_refused: false,
        };
    };
    match timeout(WHOLE, with(client, &image, known, keychain)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => of_error(error),
        Err(_) => LookupOutcome::RegistryFailed {
            message: format!("no answer within {} s", WHOLE.as_secs()),
            retry_after: None,
        },
    }
}

async fn with(
    client: &RegistryClient,
    image: &ImageRef<'_>,
    known: Option<&KnownContent>,
    keychain: &Keychain,
) -> Result<LookupOutcome, LookupError> {
    const DETAIL: Detail = Detail::Configurations;
    let known = known.and_then(|known| Some((known.facts.found.as_ref()?, known.completes)));
    let Some((contents, completes)) = known else {
        let facts = client.look_up(image, keychain, DETAIL).await?;
        return Ok(answered(facts));
    };
    let known = KnownImage { contents, completes };
    Ok(
        match client.look_up_again(image, keychain, DETAIL, known).await? {
            ImageChange::Unchanged(looked_up) => LookupOutcome::Unchanged(looked_up),
            ImageChange::Changed(facts) => answered(facts),
        },
    )
}

/// An answer as the cache keeps it: reviews need no layers, and the start gate estimates with the lowest what new nodes pull.
fn answered(facts: ImageFacts) -> LookupOutcome {
    LookupOutcome::Answered(ImageFacts {
        looked_up: facts.looked_up,
        found: facts.found.map(ImageContents::with_base_layers),
    })
}

fn of_error(error: LookupError) -> LookupOutcome {
    let LookupError {
        scope,
        message,
        retry_after,
        is_refused,
    } = error;
    match scope {
        LookupScope::Registry => LookupOutcome::RegistryFailed { message, retry_after },
        LookupScope::Image => LookupOutcome::ImageFailed { message, is_refused },
    }
}
