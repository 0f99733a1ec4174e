//! Applies the plan for RuntimeClasses. A class that an object still names is not deleted.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};

use super::ClassChange;
use crate::cluster::errors::ApiError;
use crate::controller::node_policies::pod_references::PodReferences;
use crate::controller::node_policies::writer::{FIELD_MANAGER, Writer, patching};

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClassWriteResult {
    /// This or another writer made the change.
    Yes,
    /// Another writer was faster: the change is planned again with the next snapshot.
    Later,
    /// These objects still name the class.
    InUse(String),
    /// It failed, and why.
    Failed(String),
}

/// Applies one change. `references`: what templates and pods name, for a deletion.
pub async fn carry_out(
    writer: &Writer,
    change: &ClassChange,
    references: &PodReferences,
) -> ClassWriteResult {
    let name = change.name();
    if let ClassChange::Delete { why, .. } = change
        && let Some(users) = references.classes.get(name)
    {
        return ClassWriteResult::InUse(format!(
            "RuntimeClass {name} is still used by {users}, so it is not deleted, although {why}; remove runtimeClassName \
             there"
        ));
    }
    let classes: Api<RuntimeClass> = Api::all(writer.client.clone());
    let sent = match change {
        ClassChange::Create(class) => {
            let params = PostParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            writer.write(classes.create(&params, class)).await.map(drop)
        }
        ClassChange::Update { name, patch } => {
            let patch = Patch::Merge(patch);
            (writer.write(classes.patch(name, &patching(), &patch)).await).map(drop)
        }
        ClassChange::Delete { class, .. } => {
            let params = DeleteParams::default().preconditions(Preconditions {
                resource_version: class.metadata.resource_version.clone(),
                uid: class.metadata.uid.clone(),
            });
            writer.write(classes.delete(name, &params)).await.map(drop)
        }
    };
    match sent {
        Ok(()) => {
            tracing::info!(
                runtime_class = name,
                change = verb(change),
                "RuntimeClass changed"
            );
            ClassWriteResult::Yes
        }
        Err(ApiError::NotFound) if matches!(change, ClassChange::Delete { .. }) => ClassWriteResult::Yes,
        Err(ApiError::NotFound | ApiError::Conflict) => ClassWriteResult::Later,
        Err(error) => ClassWriteResult::Failed(format!("cannot {} {name}: {error}", verb(change))),
    }
}

fn verb(change: &ClassChange) -> &'static str {
    match change {
        ClassChange::Create(_) => "create",
        ClassChange::Update { .. } => "update",
        ClassChange::Delete { .. } => "delete",
    }
}
