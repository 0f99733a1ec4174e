//! Every object of a cluster, or of some namespaces, that carries a pod, for commands that report what they could not
//! read and continue.

use kube::Client;

use super::list::{ListError, Listing, Pages, UnreadPart};
use super::stored::ObjectList;
use crate::model::objects::workload::Kind;

/// What the walk finds.
#[derive(Clone, Copy, Debug)]
pub enum ListItem<'m> {
    /// A list begins, or continues: the resource, and how many objects of it are left, if the API server reports it.
    List(&'m str, Option<u64>),
    /// An object, as JSON.
    Object(Kind, &'m str),
}

/// Hands every object that carries a pod to `meet`, owners before what they own, page by page, each once; finished
/// pods are excluded. `namespaces`: those that are listed, one by one; empty: all of them, together. `custom`: the
/// custom resources that are listed too.
pub async fn walk(
    client: &Client,
    namespaces: &[String],
    custom: &[(Kind, String)],
    meet: impl FnMut(ListItem<'_>) + Send,
) -> Vec<UnreadPart> {
    walk_lists(client, namespaces, ObjectList::all(custom), meet).await
}

/// The same for these lists.
pub async fn walk_lists(
    client: &Client,
    namespaces: &[String],
    lists: Vec<ObjectList>,
    mut meet: impl FnMut(ListItem<'_>) + Send,
) -> Vec<UnreadPart> {
    let mut failures = Vec::new();
    let all = namespaces.is_empty().then_some(None);
    let scopes: Vec<Option<&String>> = all.into_iter().chain(namespaces.iter().map(Some)).collect();
    for ObjectList { kind, path } in lists {
        for namespace in &scopes {
            let listing = Listing::of(kind, &path);
            let listing = match namespace {
                Some(namespace) => listing.in_namespace(namespace),
                None => listing,
            };
            if let Err(error) = one(client, kind, listing.clone(), &mut meet).await {
                failures.push(failure(kind, &listing, *namespace, &error));
            }
        }
    }
    failures
}

async fn one(
    client: &Client,
    kind: Kind,
    listing: Listing,
    meet: &mut (impl FnMut(ListItem<'_>) + Send),
) -> Result<(), ListError> {
    let resource = listing.resource().to_owned();
    let mut pages = Pages::of(listing);
    meet(ListItem::List(&resource, None));
    loop {
        match pages
            .next(client, |json| meet(ListItem::Object(kind, json)))
            .await
        {
            Ok(true) => meet(ListItem::List(&resource, pages.remaining())),
            Ok(false) => return Ok(()),
            Err(why) => return Err(pages.error(why)),
        }
    }
}

fn failure(kind: Kind, listing: &Listing, namespace: Option<&String>, error: &ListError) -> UnreadPart {
    UnreadPart {
        is_custom: kind.is_custom(),
        namespace: namespace.cloned(),
        read: error.read,
        ..UnreadPart::new(listing.resource(), &error.why)
    }
}

#[cfg(test)]
mod tests;
