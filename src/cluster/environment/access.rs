//! What ServiceAccounts may do, by the questions that the API server answers. They store nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::cluster::errors::answered;
use crate::cluster::list::UnreadPart;
use crate::model::objects::workload::Kind;

/// The resource of a question for all namespaces.
const REVIEWS: &str = "subjectaccessreviews";

/// A ServiceAccount with its namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

impl Account {
    /// The user name with which it sends requests.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Whether ServiceAccounts may create objects of these kinds in every namespace. After an error, the rest is not asked.
pub async fn may_create<'a>(
    client: &Client,
    wanted: impl IntoIterator<Item = (&'a Account, Kind)>,
) -> (BTreeMap<(Account, &'static str), bool>, Option<UnreadPart>) {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let mut known = BTreeMap::new();
    for (account, kind) in wanted {
        let attributes = ResourceAttributes {
            verb: Some("create".to_owned()),
            group: Some(kind.group().to_owned()),
            resource: Some(kind.resource()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            metadata: ObjectMeta::default(),
            spec: of_account(&account.namespace, &account.name, attributes),
            status: None,
        };
        match answered(api.create(&PostParams::default(), &review)).await {
            Ok(answer) => {
                let is_allowed = answer.status.is_some_and(|status| status.allowed);
                known.insert((account.clone(), kind.as_str()), is_allowed);
            }
            Err(why) => return (known, Some(UnreadPart::new(REVIEWS, &why))),
        }
    }
    (known, None)
}

/// The question whether a ServiceAccount may do something.
pub(super) fn of_account(
    namespace: &str,
    account: &str,
    attributes: ResourceAttributes,
) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{account}")),
        groups: Some(vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ]),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}
