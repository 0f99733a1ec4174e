//! One look-up: with each credential in turn, and without the parts that are known.

use std::time::Duration;

use tokio::time::timeout;

use super::key::ImageKey;
use super::state::Outcome;
use crate::model::image::ImageRef;
use crate::model::image_facts::ImageFacts;
use crate::registry::{Detail, Keychain, LookupError, LookupScope, RegistryClient};

/// How long all requests for one image may take.
const WHOLE: Duration = Duration::from_secs(30);
/// The maximum number of credentials that are tried for one image.
const KEYCHAINS: usize = 4;

/// Looks up an image. `known`: the digest of the last answer; if it is unchanged, no further request is made.
pub async fn look_up(
    client: &RegistryClient,
    key: &ImageKey,
    known: Option<&str>,
    keychains: Vec<Keychain>,
) -> Outcome {
    let Ok(image) = ImageRef::parse(&key.reference) else {
        return Outcome::ImageFailed {
            message: "it is not an image reference".to_owned(),
            is_refused: false,
        };
    };
    let mut usable: Vec<Keychain> = (keychains.into_iter())
        .filter(|keychain| keychain.credential_of(image.registry, image.repository).is_some())
        .take(KEYCHAINS)
        .collect();
    if usable.is_empty() {
        usable.push(Keychain::anonymous());
    }
    let attempts = with_each(client, &image, known, &usable);
    let late = || Outcome::RegistryFailed {
        message: format!("no answer within {} s", WHOLE.as_secs()),
        retry_after: None,
    };
    timeout(WHOLE, attempts).await.unwrap_or_else(|_| late())
}

/// Tries each keychain. An image is missing only if it is missing for all of them: registries hide what a credential
/// may not see.
async fn with_each(
    client: &RegistryClient,
    image: &ImageRef<'_>,
    known: Option<&str>,
    keychains: &[Keychain],
) -> Outcome {
    let (mut missing, mut failed) = (None, None);
    for keychain in keychains {
        match with(client, image, known, keychain).await {
            Ok(Outcome::Answered(facts)) if facts.found.is_none() => missing = Some(facts),
            Ok(outcome) => return outcome,
            Err(error) if error.scope == LookupScope::Registry => return of_error(error),
            Err(error) => failed = Some(error),
        }
    }
    match (failed, missing) {
        (None, Some(facts)) => Outcome::Answered(facts),
        (Some(error), _) => of_error(error),
        (None, None) => Outcome::ImageFailed {
            message: "no credential was tried".to_owned(),
            is_refused: false,
        },
    }
}

async fn with(
    client: &RegistryClient,
    image: &ImageRef<'_>,
    known: Option<&str>,
    keychain: &Keychain,
) -> Result<Outcome, LookupError> {
    if let Some(known) = known {
        let facts = client.look_up(image, keychain, Detail::Platforms).await?;
        if digest(&facts) == Some(known) {
            return Ok(Outcome::Unchanged(facts.looked_up));
        }
        if facts.found.is_none() {
            return Ok(Outcome::Answered(facts));
        }
    }
    let facts = client.look_up(image, keychain, Detail::Configurations).await?;
    Ok(Outcome::Answered(facts))
}

fn digest(facts: &ImageFacts) -> Option<&str> {
    facts.found.as_ref().map(|found| found.digest.as_str())
}

fn of_error(error: LookupError) -> Outcome {
    let LookupError {
        scope,
        message,
        retry_after,
        is_refused,
    } = error;
    match scope {
        LookupScope::Registry => Outcome::RegistryFailed { message, retry_after },
        LookupScope::Image => Outcome::ImageFailed { message, is_refused },
    }
}
