//! Taking away every report of one kind: when another kind counts, and when Transom goes.

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Preconditions};

use super::dialect::Dialect;
use super::report::LABEL;
use super::session::Session;
use crate::cluster::errors::{Failure, answered};
use crate::cluster::pace::Pace;

/// Reports per page: metadata is small.
const PAGE: u32 = 500;
/// How many are deleted in a second.
const PER_SECOND: u32 = 50;

/// Deletes those of one kind, as long as it may; says how many. None where the cluster has no such kind, or where they may
/// not be seen: an account without that right has never written one.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn sweep(
    client: &Client,
    dialect: Dialect,
    may_go_on: impl Fn() -> bool,
) -> Result<usize, Failure> {
    let pace = Pace::per_second(PER_SECOND);
    let resource = dialect.resource();
    let all: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default()
        .labels(&format!("{}={}", LABEL.0, LABEL.1))
        .limit(PAGE);
    let mut count = 0;
    loop {
        let page = match answered(all.list_metadata(&params)).await {
            Ok(page) => page,
            Err(Failure::Gone) => return Ok(count),
            Err(Failure::Other(why)) if why.contains("is forbidden") => {
                tracing::info!("{} are not looked for: {why}", dialect.plural());
                return Ok(count);
            }
            Err(failure) => return Err(failure),
        };
        for seen in page.items {
            let meta = seen.metadata;
            let (Some(name), Some(namespace)) = (meta.name, meta.namespace) else {
                continue;
            };
            pace.turn().await;
            if !may_go_on() {
                return Ok(count);
            }
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
            let unchanged = Preconditions {
                uid: meta.uid,
                ..Preconditions::default()
            };
            let params = DeleteParams::default().preconditions(unchanged);
            match answered(api.delete(&name, &params)).await {
                Ok(_) => count += 1,
                Err(Failure::Gone | Failure::Conflict) => {}
                Err(failure) => return Err(failure),
            }
        }
        params.continue_token = page.metadata.continue_.filter(|more| !more.is_empty());
        if params.continue_token.is_none() {
            return Ok(count);
        }
    }
}

impl Session<'_> {
    /// Takes away the reports of the kinds that do not count, whenever another one does.
    pub async fn sweep_others(&self) {
        let mut dialects = self.dialects();
        loop {
            let counts = *dialects.borrow_and_update();
            for other in Dialect::ALL {
                if counts.is_none() || counts == Some(other) {
                    continue;
                }
                match sweep(self.client(), other, || self.leads()).await {
                    Ok(0) => {}
                    Ok(count) => {
                        tracing::info!("{count} reports of {other} are taken away: another kind counts");
                    }
                    Err(failure) => tracing::warn!("cannot take away the reports of {other}: {failure}"),
                }
            }
            if dialects.changed().await.is_err() {
                return;
            }
        }
    }
}
