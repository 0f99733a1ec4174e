//! Carrying out what is planned for RuntimeClasses. One that something still names is not deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::{Step, name_of};
use crate::cluster::errors::{Failure, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::survey::{SurveyError, visit_pod_carriers};
use crate::controller::node_policies::nodes::write::{FIELD_MANAGER, Pace};
use crate::model::subject::{Stage, Subject};
use crate::model::workload::Kind;

/// How many users of a class are named.
const NAMED: usize = 5;

/// Who names which RuntimeClass: some of them by name, and how many.
pub type Users = BTreeMap<String, (Vec<String>, usize)>;

/// Looks through every template and pod for those that name one of these classes.
///
/// # Errors
/// When not everything could be read: then nothing may be deleted.
pub async fn users(client: &Client, classes: &BTreeSet<String>) -> Result<Users, SurveyError> {
    let mut users = Ok(Users::new());
    visit_pod_carriers(client, |kind, json| {
        if let Ok(known) = &mut users
            && let Err(error) = note_user(known, classes, kind, json)
        {
            users = Err(error);
        }
    })
    .await?;
    users
}

/// Notes an object, where it names one of the classes. One that cannot be read may name any of them.
fn note_user(
    users: &mut Users,
    classes: &BTreeSet<String>,
    kind: Kind,
    json: &str,
) -> Result<(), SurveyError> {
    let subject = Subject::parse(kind, json, Stage::Stored).map_err(|error| SurveyError::Object {
        kind,
        reason: error.to_string(),
    })?;
    let name = subject.pod().and_then(|pod| pod.runtime_class_name.as_deref());
    if let Some(name) = name.filter(|name| classes.contains(*name)) {
        let (named, count) = users.entry(name.to_owned()).or_default();
        *count += 1;
        if named.len() < NAMED {
            named.push(format!("{kind} {}/{}", subject.namespace, subject.meta.name));
        }
    }
    Ok(())
}

/// What became of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// It was carried out, or somebody else did.
    Yes,
    /// Somebody else was faster: it is planned anew with what comes.
    Later,
    /// The class is still named: by whom.
    InUse(String),
    /// It failed: why.
    Failed(String),
}

/// Writes RuntimeClasses.
pub struct Writer {
    api: Api<RuntimeClass>,
    leadership: Option<Leadership>,
    pace: Arc<Pace>,
}

impl Writer {
    /// A writer of RuntimeClasses; `leadership` is asked before every write.
    pub fn new(client: Client, leadership: Option<Leadership>, pace: Arc<Pace>) -> Self {
        Writer {
            api: Api::all(client),
            leadership,
            pace,
        }
    }

    /// Carries out one step. `users` tells who names the class of a deletion.
    pub async fn carry_out(&self, step: &Step, users: &Users) -> Done {
        if let Step::Delete { class, why, .. } = step
            && let Some((named, count)) = users.get(name_of(class))
        {
            let more = if *count > named.len() {
                format!(" and {} more", count - named.len())
            } else {
                String::new()
            };
            return Done::InUse(format!(
                "{} stays, though {why}, because it is named by {}{more}: take runtimeClassName out of them",
                name_of(class),
                named.join(", ")
            ));
        }
        self.pace.turn().await;
        if self.leadership.as_ref().is_some_and(|leader| !leader.holds()) {
            return Done::Failed("leadership was lost".to_owned());
        }
        let name = step.name().to_owned();
        match self.send(step).await {
            Ok(()) => {
                tracing::info!(runtime_class = name, change = verb(step), "RuntimeClass changed");
                Done::Yes
            }
            Err(Failure::Gone) if matches!(step, Step::Delete { .. }) => Done::Yes,
            Err(Failure::Gone | Failure::Conflict) => Done::Later,
            Err(Failure::Other(error)) => Done::Failed(format!("cannot {} {name}: {error}", verb(step))),
        }
    }

    async fn send(&self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Create(class) => {
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                answered(self.api.create(&params, class)).await.map(drop)
            }
            Step::Update { name, patch } => {
                let params = PatchParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                answered(self.api.patch(name, &params, &Patch::Merge(patch)))
                    .await
                    .map(drop)
            }
            Step::Delete { class, .. } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        resource_version: class.metadata.resource_version.clone(),
                        uid: class.metadata.uid.clone(),
                    }),
                    ..DeleteParams::default()
                };
                answered(self.api.delete(name_of(class), &params)).await.map(drop)
            }
        }
    }
}

fn verb(step: &Step) -> &'static str {
    match step {
        Step::Create(_) => "create",
        Step::Update { .. } => "update",
        Step::Delete { .. } => "delete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_may_be_a_user_of_any_class() {
        let classes = ["win".to_owned()].into();
        let mut users = Users::new();
        let named = r#"{"metadata": {"namespace": "a", "name": "t"}, "template": {"spec": {"runtimeClassName": "win"}}}"#;
        assert!(note_user(&mut users, &classes, Kind::PodTemplate, named).is_ok());
        assert_eq!(users["win"], (vec!["PodTemplate a/t".to_owned()], 1));
        let odd = r#"{"metadata": {"name": "p"}, "spec": {"runtimeClassName": 7, "containers": 7}}"#;
        let error = note_user(&mut users, &classes, Kind::Pod, odd).unwrap_err();
        assert!(error.to_string().starts_with("cannot read a Pod: "), "{error}");
    }
}
