//! Deletes the node pools that the leader created. Pools that a user declared or took over stay.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, PartialObjectMeta, Preconditions};

use super::{Cleanup, NAMED, Target};
use crate::api::NODE_POOL;
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, collect};
use crate::cluster::node::OWNED_LABEL;
use crate::model::syntax::text::list;

impl Cleanup<'_> {
    /// The pools that the leader created; empty if the API server does not know the kind.
    async fn observed_pools(&self, all: &Target) -> Result<Vec<PartialObjectMeta<DynamicObject>>, ApiError> {
        let listing = Listing::new(all.api.resource_url());
        let listing = listing.with_labels(OWNED_LABEL.0).metadata_only();
        match collect(self.client, listing).await {
            Err(ApiError::NotFound) => Ok(Vec::new()),
            found => found,
        }
    }

    pub(super) async fn delete_node_pools(&mut self) {
        let all = self.cluster(("transom.dev", NODE_POOL));
        let pools = match self.observed_pools(&all).await {
            Ok(pools) => pools,
            Err(why) => return self.failed(NODE_POOL, "list", &why),
        };
        let mut deleted = Vec::new();
        for pool in pools {
            // Who takes a pool over meanwhile keeps it.
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: pool.metadata.uid.clone(),
                resource_version: pool.metadata.resource_version.clone(),
            });
            match self.delete_found(&all, &pool.name_any(), &params).await {
                Ok(()) => deleted.push(pool.name_any()),
                Err(ApiError::NotFound) => {}
                Err(why) => self.failed(NODE_POOL, &pool.name_any(), &why),
            }
        }
        if !deleted.is_empty() {
            let (names, count, end) = (list(&deleted, NAMED), deleted.len(), self.deleted());
            (self.report.done).push(format!("{count} {NODE_POOL}s ({names}){end}"));
        }
    }
}
