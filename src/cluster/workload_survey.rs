//! Every stored object that describes pods, in one pass. The taint guard, and what still names a RuntimeClass or a node label,
//! read it here, so that none of them knows fewer kinds than the others. Nothing can be concluded from a part of it.

use kube::Client;

use super::custom_lists::{self, CustomLists};
use super::errors::ApiError;
use super::list::{ListError, Listing, for_each};
use super::stored::ObjectList;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::configured::ConfiguredKind;

/// The kinds that describe pods in a cluster: those of Kubernetes, and the custom resources that it serves.
#[derive(Clone, Debug, Default)]
pub struct WorkloadSurvey {
    /// The custom resources, with the paths of their lists.
    custom: Vec<(Kind, String)>,
}

/// Why the survey is incomplete.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum SurveyError {
    /// It is unknown which custom resources a group has.
    #[error("cannot find out which resources the API group {group} has: {why}")]
    Group {
        /// The group, or `*` for all of them.
        group: String,
        why: ApiError,
    },
    /// The right to list a kind is missing.
    #[error(
        "cannot list {resource} of the API group \"{group}\": {why}. Grant the verb list on it to Transom's account; the chart does \
         with rbac.nodePolicies and rbac.runtimeClasses, for kinds of cluster.podTemplates too"
    )]
    Forbidden {
        /// The group; empty for the core group.
        group: String,
        /// The plural.
        resource: String,
        /// What the API server says.
        why: String,
    },
    /// A list cannot be read to its end.
    #[error(transparent)]
    List(#[from] ListError),
}

impl WorkloadSurvey {
    /// Asks the API server which custom resources it serves, of the built-in ones and these.
    ///
    /// # Errors
    /// It does not say that of every group.
    pub async fn of(client: &Client, configured: &[ConfiguredKind]) -> Result<Self, SurveyError> {
        let CustomLists { kinds, unknown } = CustomLists::read(client, configured).await;
        match unknown.into_iter().next() {
            Some((group, why)) => Err(SurveyError::Group { group, why }),
            None => Ok(WorkloadSurvey { custom: kinds }),
        }
    }

    /// A survey that lists these custom resources.
    #[cfg(test)]
    pub(crate) fn listing_custom(kinds: impl IntoIterator<Item = Kind>) -> Self {
        WorkloadSurvey {
            custom: kinds.into_iter().map(|kind| (kind, String::new())).collect(),
        }
    }

    /// Whether objects of a kind are read, so that what their controllers make need not be evaluated.
    pub fn reads(&self, kind: Kind) -> bool {
        custom_lists::reads(&self.custom, kind)
    }

    /// The list of a kind by its API group and name; `None` if it is not read.
    pub fn listing(&self, group: &str, kind: &str) -> Option<Listing> {
        let mut lists = ObjectList::all(&self.custom).into_iter();
        let list = lists.find(|list| list.kind.group() == group && list.kind.as_str() == kind)?;
        Some(Listing::new(list.path))
    }

    /// Hands every object to `visit`, as JSON: owners before what they own, each once, without the pods that have ended.
    ///
    /// # Errors
    /// One of the lists cannot be read to its end; or, after every other object was visited, one is too large to be read.
    pub async fn for_each(
        &self,
        client: &Client,
        mut visit: impl FnMut(Kind, &str) + Send,
    ) -> Result<(), SurveyError> {
        let mut too_large = Ok(());
        for ObjectList { kind, path } in ObjectList::all(&self.custom) {
            let listing = Listing::of(kind, &path);
            let resource = listing.resource().to_owned();
            match for_each(client, listing, |json| visit(kind, json)).await {
                Ok(_) => {}
                // Its definition was deleted meanwhile.
                Err(error) if kind.is_custom() && error.why == ApiError::NotFound => {}
                Err(error) if matches!(error.why, ApiError::ObjectTooLarge(_)) => {
                    too_large = too_large.and(Err(SurveyError::List(error)));
                }
                Err(error) => return Err(error_of(kind, resource, error)),
            }
        }
        too_large
    }
}

fn error_of(kind: Kind, resource: String, error: ListError) -> SurveyError {
    match error.why {
        ApiError::Forbidden(why) => SurveyError::Forbidden {
            group: kind.group().to_owned(),
            resource,
            why,
        },
        _ => SurveyError::List(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::list::tests::{page, page_of, server, status};
    use crate::cluster::test_client::Reply;

    /// The discovery of a cluster with OpenKruise, whose preferred version lacks its DaemonSet; `None` for lists.
    pub(crate) fn discovery(uri: &str) -> Option<Reply> {
        let version = |name: &str| json!({"groupVersion": format!("apps.kruise.io/{name}"), "version": name});
        let group = json!({"name": "apps.kruise.io", "versions": [version("v1beta1"), version("v1alpha1")],
            "preferredVersion": version("v1beta1")});
        let resource = |kind: &str, name: &str| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": ["list"]});
        let resources = |version: &str, resources: &[Value]| json!({"kind": "APIResourceList", "groupVersion": format!("apps.kruise.io/{version}"), "resources": resources});
        let answer = match uri {
            "/apis" => json!({"kind": "APIGroupList", "groups": [group]}),
            "/apis/apps.kruise.io/v1beta1" => {
                resources("v1beta1", &[resource("StatefulSet", "statefulsets")])
            }
            "/apis/apps.kruise.io/v1alpha1" => resources("v1alpha1", &[resource("DaemonSet", "daemonsets")]),
            _ => return None,
        };
        Some(Reply::Json(200, answer))
    }

    async fn names(client: &Client) -> Result<Vec<String>, SurveyError> {
        let survey = WorkloadSurvey::of(client, &[]).await?;
        let mut names = Vec::new();
        let note = |kind: Kind, json: &str| {
            let object: Value = serde_json::from_str(json).unwrap();
            names.push(format!(
                "{kind}.{} {}",
                kind.group(),
                object["metadata"]["name"].as_str().unwrap()
            ));
        };
        survey.for_each(client, note).await?;
        Ok(names)
    }

    #[tokio::test]
    async fn custom_resources_are_read_with_the_kinds_of_kubernetes_and_before_pods() {
        let (client, _) = server(|uri, _| {
            discovery(uri).unwrap_or_else(|| match uri.split('?').next().unwrap() {
                "/apis/apps.kruise.io/v1alpha1/daemonsets" => page(&["kruise"], ""),
                "/apis/apps/v1/daemonsets" => page(&["plain"], ""),
                "/api/v1/pods" => page(&["pod"], ""),
                _ => page_of(&[], ""),
            })
        });
        let expected = [
            "DaemonSet.apps.kruise.io kruise",
            "DaemonSet.apps plain",
            "Pod. pod",
        ];
        assert_eq!(names(&client).await.unwrap(), expected);
        let survey = WorkloadSurvey::of(&client, &[]).await.unwrap();
        assert!(survey.reads(Kind::AdvancedDaemonSet) && survey.reads(Kind::Deployment));
        assert!(!survey.reads(Kind::Rollout));
        assert_eq!(
            survey.listing("apps.kruise.io", "DaemonSet"),
            Some(Listing::new("/apis/apps.kruise.io/v1alpha1/daemonsets"))
        );
        assert_eq!(survey.listing("argoproj.io", "Rollout"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_forbidden_is_an_error_with_resource_group_and_verb() {
        let (client, _) = server(|uri, _| {
            discovery(uri).unwrap_or_else(|| {
                if uri.starts_with("/apis/apps.kruise.io/v1alpha1/daemonsets") {
                    status(403, &json!({"reason": "Forbidden"}))
                } else {
                    page_of(&[], "")
                }
            })
        });
        let error = names(&client).await.unwrap_err().to_string();
        for part in [
            "daemonsets of the API group \"apps.kruise.io\"",
            "the verb list",
            "rbac.nodePolicies",
            "cluster.podTemplates",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_does_not_answer_is_an_error_and_a_kind_that_is_gone_is_none() {
        let (client, _) = server(|uri, _| match uri {
            "/apis/apps.kruise.io/v1alpha1" => status(503, &json!({})),
            uri => discovery(uri).unwrap_or_else(|| page_of(&[], "")),
        });
        let error = names(&client).await.unwrap_err().to_string();
        assert!(error.contains("API group apps.kruise.io"), "{error}");
        let (client, _) = server(|uri, _| {
            discovery(uri).unwrap_or_else(|| match uri {
                uri if uri.starts_with("/apis/apps.kruise.io") => status(404, &json!({})),
                _ => page_of(&[], ""),
            })
        });
        assert_eq!(names(&client).await, Ok(Vec::new()));
    }
}
