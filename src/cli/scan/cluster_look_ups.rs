//! Looks up the images of the objects of a cluster before they are evaluated.

use std::collections::BTreeSet;

use kube::Client;

use super::ScanArgs;
use crate::cli::progress::Progress;
use crate::cli::registry::look_up as look_up_images;
use crate::cluster::walk::{ListItem, walk};
use crate::model::objects::object::{Object, ReviewStage};
use crate::registry::{Detail, Registries};
use crate::scan::{EvalContext, images_of_stored};

/// Lists the objects once for the images whose registries can add to their evaluation, and looks these up. What cannot be
/// listed is reported by the scan itself, which lists everything again.
///
/// # Errors
/// If the registries cannot be asked at all.
pub(super) async fn look_up(
    args: &ScanArgs,
    client: &Client,
    eval_context: &EvalContext<'_>,
    progress: &Progress,
) -> anyhow::Result<Registries> {
    let mut registries = args.look_ups.registries.registries(Detail::Configurations)?;
    let mut images = BTreeSet::new();
    let add = |met: ListItem<'_>| match met {
        ListItem::List(resource, _) => progress.show(&format!("reading the images of {resource}")),
        ListItem::Object(kind, json) => {
            let object = Object::parse(kind, json, ReviewStage::Stored).ok();
            let is_selected =
                |object: &Object<'_>| args.selector.selects_by(|| object.meta.labels.to_owned_map());
            if let Some(object) = object.filter(is_selected) {
                images.extend(images_of_stored(eval_context, &object, json));
            }
        }
    };
    let _ = walk(client, &args.namespaces.namespace, eval_context.custom, add).await;
    // The look-up has a line of its own.
    progress.end();
    look_up_images(&mut registries, images).await;
    progress.begin();
    Ok(registries)
}
