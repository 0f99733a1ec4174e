//! Looks up the images of the inputs before they are checked.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{CheckArgs, CheckGroup};
use crate::check::{CheckedImage, ImageCounts};
use crate::cli::block_on;
use crate::cli::registry::{look_up as look_up_images, reference_error};
use crate::image_report::cached_note;
use crate::model::objects::object::Object;
use crate::model::syntax::text::count;
use crate::model::windows::image::ImageRef;
use crate::registry::{Detail, ImageAnswer};

/// Looks up the images of the groups that ask registries, all of them together. The facts then contain them.
///
/// # Errors
/// If the registries cannot be asked at all, or an option has no effect; an image that is not known is a note.
pub(super) fn look_up(
    args: &CheckArgs,
    groups: &mut [CheckGroup<'_>],
) -> anyhow::Result<Option<ImageCounts>> {
    if !groups.iter().any(|group| group.asks_registries) {
        args.look_ups.without_look_ups()?;
        return Ok(None);
    }
    let mut registries = args.look_ups.registries.registries(Detail::Configurations)?;
    let uses: Vec<BTreeMap<String, CheckedImage>> =
        groups.iter().map(|group| images_of(args, group)).collect();
    let images: BTreeSet<String> = uses.iter().flat_map(BTreeMap::keys).cloned().collect();
    block_on(async {
        look_up_images(&mut registries, images).await;
        Ok(())
    })?;
    let now = Timestamp::now();
    let facts = registries.facts();
    for (group, uses) in groups.iter_mut().zip(&uses) {
        if group.asks_registries {
            group.facts.images.clone_from(&facts);
        }
        for (image, used) in uses {
            let message = match ImageRef::parse(image) {
                Err(error) => Some(format!(
                    "is not an image reference: {}; the kubelet answers InvalidImageName",
                    reference_error(image, error)
                )),
                Ok(_) => (registries.answers().get(image)).and_then(|answer| message_of(answer, used, now)),
            };
            if let Some(message) = message {
                group.image_notes.push(used.note(image, &message));
            }
        }
        group.image_notes.sort();
    }
    let answers = registries.answers().iter();
    let requested = answers.filter(|(image, _)| ImageRef::parse(image).is_ok());
    Ok(Some(counts(requested.map(|(_, answer)| answer))))
}

/// The images of a group, except those of objects that the arguments do not select.
fn images_of(args: &CheckArgs, group: &CheckGroup<'_>) -> BTreeMap<String, CheckedImage> {
    if !group.asks_registries {
        return BTreeMap::new();
    }
    let is_meant = |object: &Object<'_>| args.inputs.selects_object(object);
    group.objects.images(&group.facts, &group.policies, is_meant)
}

/// What is noted about an image: that it is not known, may have changed, or does not exist and no rule says so.
fn message_of(answer: &ImageAnswer, used: &CheckedImage, now: Timestamp) -> Option<String> {
    match &answer.facts {
        Err(why) => Some(format!("is not known: {why}")),
        Ok(facts) if facts.found.is_none() => {
            let message = "does not exist in its registry, or the credentials may not read it";
            let source = if answer.is_cached {
                cached_note(facts.looked_up)
            } else {
                String::new()
            };
            (!used.is_reported).then(|| format!("{message}{source}"))
        }
        Ok(facts) if answer.is_stale => {
            let age = age_text(now.duration_since(facts.looked_up));
            Some(format!(
                "is from the cache, looked up {age} ago: its tag may have moved"
            ))
        }
        Ok(_) => None,
    }
}

fn counts<'a>(answers: impl Iterator<Item = &'a ImageAnswer>) -> ImageCounts {
    let mut counts = ImageCounts::default();
    for answer in answers {
        let count = match &answer.facts {
            Ok(facts) if facts.found.is_some() => &mut counts.found,
            Ok(_) => &mut counts.missing,
            Err(_) => &mut counts.unknown,
        };
        *count += 1;
        counts.cached += usize::from(answer.is_cached && answer.facts.is_ok());
    }
    counts
}

/// An age in its largest unit, as in `3 days`.
fn age_text(age: SignedDuration) -> String {
    let minutes = age.as_mins();
    let (number, unit) = match minutes {
        1440.. => (minutes / 1440, "day"),
        60.. => (minutes / 60, "hour"),
        _ => (minutes.max(0), "minute"),
    };
    count(number, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_its_largest_unit() {
        for (minutes, text) in [
            (-5, "0 minutes"),
            (1, "1 minute"),
            (59, "59 minutes"),
            (60, "1 hour"),
            (1439, "23 hours"),
            (1440, "1 day"),
            (5000, "3 days"),
        ] {
            assert_eq!(age_text(SignedDuration::from_mins(minutes)), text);
        }
    }
}
