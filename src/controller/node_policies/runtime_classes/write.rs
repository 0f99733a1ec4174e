//! Applies the plan for RuntimeClasses. A class that an object still names is not deleted.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use kube::{Api, Client};

use super::ClassChange;
use crate::cluster::errors::ApiError;
use crate::cluster::list::{ListError, POD_CARRIERS, for_each_of};
use crate::controller::node_policies::writer::{FIELD_MANAGER, Writer, patching};
use crate::model::object::{Object, ReviewStage};
use crate::model::text::list;
use crate::model::workload::Kind;

/// How many users of a class are named.
const NAMED: usize = 5;

/// Which objects name which RuntimeClass.
pub type ClassUsers = BTreeMap<String, Vec<String>>;

/// Why Transom could not determine which objects use a RuntimeClass.
#[derive(thiserror::Error, Debug)]
pub enum UsersError {
    /// The objects cannot be listed.
    #[error(transparent)]
    List(#[from] ListError),
    /// One of them is not what its kind says.
    #[error("cannot read a {kind}: {reason}")]
    Object {
        /// Its kind.
        kind: Kind,
        /// Why.
        reason: String,
    },
}

/// Reads every template and pod for those that name one of these classes.
///
/// # Errors
/// If not everything could be read: then nothing may be deleted.
pub async fn users(client: &Client, classes: &BTreeSet<String>) -> Result<ClassUsers, UsersError> {
    let mut users = Ok(ClassUsers::new());
    for_each_of(client, &POD_CARRIERS, |kind, json| {
        if let Ok(known) = &mut users
            && let Err(error) = note_user(known, classes, kind, json)
        {
            users = Err(error);
        }
    })
    .await?;
    users
}

/// Records an object if it names one of the classes. An object that cannot be read may name any of them.
fn note_user(
    users: &mut ClassUsers,
    classes: &BTreeSet<String>,
    kind: Kind,
    json: &str,
) -> Result<(), UsersError> {
    let subject = Object::parse(kind, json, ReviewStage::Stored).map_err(|error| UsersError::Object {
        kind,
        reason: error.to_string(),
    })?;
    let name = subject.pod().and_then(|pod| pod.runtime_class_name.as_deref());
    if let Some(name) = name.filter(|name| classes.contains(*name)) {
        let user = format!("{kind} {}/{}", subject.namespace, subject.meta.name);
        users.entry(name.to_owned()).or_default().push(user);
    }
    Ok(())
}

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

/// Applies one change. `users`: which objects name the class, for a deletion.
pub async fn carry_out(writer: &Writer, change: &ClassChange, users: &ClassUsers) -> ClassWriteResult {
    let name = change.name();
    if let ClassChange::Delete { why, .. } = change
        && let Some(users) = users.get(name)
    {
        return ClassWriteResult::InUse(format!(
            "RuntimeClass {name} is still used by {}, so it is not deleted, although {why}; remove runtimeClassName \
             there",
            list(users, NAMED)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_may_be_a_user_of_any_class() {
        let classes = ["win".to_owned()].into();
        let mut users = ClassUsers::new();
        let named = r#"{"metadata": {"namespace": "a", "name": "t"}, "template": {"spec": {"runtimeClassName": "win"}}}"#;
        assert!(note_user(&mut users, &classes, Kind::PodTemplate, named).is_ok());
        assert_eq!(users["win"], ["PodTemplate a/t"]);
        let odd = r#"{"metadata": {"name": "p"}, "spec": {"runtimeClassName": 7, "containers": 7}}"#;
        let error = note_user(&mut users, &classes, Kind::Pod, odd).unwrap_err();
        assert!(error.to_string().starts_with("cannot read a Pod: "), "{error}");
    }
}
