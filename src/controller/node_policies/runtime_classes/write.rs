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
    Failed(ClassWriteError),
}

/// Why a class could not be written.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("cannot {verb} {name}: {why}")]
pub struct ClassWriteError {
    verb: &'static str,
    name: String,
    /// What went wrong.
    pub why: ApiError,
}

/// Applies one change. `references`: what templates and pods name, for a deletion.
pub async fn carry_out(
    writer: &Writer,
    change: &ClassChange,
    references: &PodReferences,
) -> ClassWriteResult {
    let name = change.name();
    if let Some(why) = in_use(change, references) {
        return ClassWriteResult::InUse(why);
    }
    let classes: Api<RuntimeClass> = Api::all(writer.client.clone());
    let sent = writer.write(&classes, &change.to_write()).await;
    match sent {
        Ok(_) => {
            tracing::info!(
                runtime_class = name,
                change = verb(change),
                "RuntimeClass changed"
            );
            ClassWriteResult::Yes
        }
        Err(ApiError::NotFound) if matches!(change, ClassChange::Delete { .. }) => ClassWriteResult::Yes,
        Err(ApiError::NotFound | ApiError::Conflict) => ClassWriteResult::Later,
        Err(why) => ClassWriteResult::Failed(ClassWriteError {
            verb: verb(change),
            name: name.to_owned(),
            why,
        }),
    }
}

/// Why a class is not deleted, if objects still name it.
pub fn in_use(change: &ClassChange, references: &PodReferences) -> Option<String> {
    let ClassChange::Delete { why, .. } = change else {
        return None;
    };
    let name = change.name();
    let users = references.classes.get(name)?;
    Some(format!(
        "RuntimeClass {name} is still used by {users}, so it is not deleted, although {why}; remove runtimeClassName there"
    ))
}

impl ClassChange {
    fn to_write(&self) -> Write<RuntimeClass> {
        match self {
            ClassChange::Create { class, .. } => Write::Create((**class).clone()),
            ClassChange::Update { name, patch, .. } => Write::Patch {
                name: name.clone(),
                patch: patch.clone(),
            },
            ClassChange::Delete { class, .. } => Write::Delete {
                name: self.name().to_owned(),
                uid: class.metadata.uid.clone(),
                version: class.metadata.resource_version.clone(),
            },
        }
    }
}

fn verb(change: &ClassChange) -> &'static str {
    match change {
        ClassChange::Create { .. } => "create",
        ClassChange::Update { .. } => "update",
        ClassChange::Delete { .. } => "delete",
    }
}
