//! Applies the plan for RuntimeClasses. A class that an object still names is not deleted.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;

use super::ClassChange;
use crate::cluster::errors::ApiError;
use crate::controller::node_policies::pod_references::PodReferences;
use crate::controller::writer::{Write, Writer};

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
    Failed(ApiError),
}

/// Applies one change. `references`: what templates and pods name, for a deletion.
pub async fn carry_out(
    writer: &Writer,
    change: &ClassChange,
    references: &PodReferences,
) -> ClassWriteResult {
    if let Some(why) = in_use(change, references) {
        return ClassWriteResult::InUse(why);
    }
    let classes: Api<RuntimeClass> = Api::all(writer.client.clone());
    match writer.write(&classes, &change.write).await {
        Ok(_) => {
            tracing::info!(
                runtime_class = change.name,
                change = change.verb(),
                "RuntimeClass changed"
            );
            ClassWriteResult::Yes
        }
        Err(ApiError::NotFound) if change.why_deleted.is_some() => ClassWriteResult::Yes,
        Err(ApiError::NotFound | ApiError::Conflict) => ClassWriteResult::Later,
        Err(why) => ClassWriteResult::Failed(why),
    }
}

/// Why a class is not deleted, if objects still name it.
pub fn in_use(change: &ClassChange, references: &PodReferences) -> Option<String> {
    let (name, why) = (&change.name, change.why_deleted?);
    let users = references.classes.get(name)?;
    Some(format!(
        "RuntimeClass {name} is still used by {users}, so it is not deleted, although {why}; remove runtimeClassName there"
    ))
}

impl ClassChange {
    /// What it does, as in `create`.
    pub fn verb(&self) -> &'static str {
        match self.write {
            Write::Create(_) => "create",
            Write::Delete { .. } => "delete",
            Write::Patch { .. } | Write::PatchStatus { .. } => "update",
        }
    }
}
