//! Group-managed service accounts: the `GMSACredentialSpecs` of the cluster, and which ServiceAccounts may use them.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::{LocalSubjectAccessReview, ResourceAttributes};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::Value;

use super::access::of_account;
use super::{items, text};
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::UnreadPart;
use crate::model::cluster::facts::GMSA_GROUP;

/// The kind of the credential specs.
pub(super) const SPECS: &str = "gmsacredentialspecs";
/// The resource of the question whether an account may use one.
const REVIEWS: &str = "localsubjectaccessreviews";

/// The use of a credential spec by the pods of a ServiceAccount.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GmsaUse {
    pub namespace: String,
    /// The ServiceAccount.
    pub account: String,
    /// The name of the GMSACredentialSpec.
    pub spec: String,
}

/// The name of a GMSACredentialSpec, and what is wrong with its content, if anything is.
///
/// Source: <https://kubernetes.io/docs/tasks/configure-pod-container/configure-gmsa/#create-gmsa-credential-spec-resources>.
pub(super) fn credential_spec(object: &Value) -> (String, Option<String>) {
    (text(object, "/metadata/name"), problem(object))
}

fn problem(object: &Value) -> Option<String> {
    let fields = [
        "/credspec/DomainJoinConfig/Sid",
        "/credspec/DomainJoinConfig/MachineAccountName",
        "/credspec/DomainJoinConfig/Guid",
        "/credspec/DomainJoinConfig/DnsTreeName",
        "/credspec/DomainJoinConfig/DnsName",
        "/credspec/DomainJoinConfig/NetBiosName",
    ];
    let missing = |field: &str| {
        Some(format!(
            "its {} is missing",
            field.trim_matches('/').replace('/', ".")
        ))
    };
    if let Some(field) = fields.into_iter().find(|field| text(object, field).is_empty()) {
        return missing(field);
    }
    let mut plugins = items(object, "/credspec/CmsPlugins");
    if !plugins.any(|plugin| plugin == "ActiveDirectory") {
        return Some("its credspec.CmsPlugins lacks ActiveDirectory".to_owned());
    }
    let accounts = "/credspec/ActiveDirectoryConfig/GroupManagedServiceAccounts";
    let mut all = items(object, accounts).peekable();
    let is_whole =
        |account: &Value| !text(account, "/Name").is_empty() && !text(account, "/Scope").is_empty();
    if all.peek().is_none() || !all.all(is_whole) {
        return missing(accounts);
    }
    None
}

/// Whether ServiceAccounts may use credential specs, by the question that the webhook of windows-gmsa asks for each pod. It
/// stores nothing. After an error, the rest is not asked.
pub async fn may_use<'u>(
    client: &Client,
    uses: impl IntoIterator<Item = &'u GmsaUse>,
) -> (BTreeMap<GmsaUse, bool>, Option<UnreadPart>) {
    let mut known = BTreeMap::new();
    for wanted in uses {
        match ask(client, wanted).await {
            Ok(is_allowed) => known.insert(wanted.clone(), is_allowed),
            Err(why) => return (known, Some(UnreadPart::new(REVIEWS, &why))),
        };
    }
    (known, None)
}

async fn ask(client: &Client, wanted: &GmsaUse) -> Result<bool, ApiError> {
    let GmsaUse {
        namespace,
        account,
        spec,
    } = wanted;
    let review = LocalSubjectAccessReview {
        metadata: ObjectMeta {
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: of_account(
            namespace,
            account,
            ResourceAttributes {
                namespace: Some(namespace.clone()),
                verb: Some("use".to_owned()),
                group: Some(GMSA_GROUP.to_owned()),
                resource: Some(SPECS.to_owned()),
                name: Some(spec.clone()),
                ..ResourceAttributes::default()
            },
        ),
        status: None,
    };
    let api: Api<LocalSubjectAccessReview> = Api::namespaced(client.clone(), namespace);
    let answer = answered(api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_credential_spec_has_what_windows_reads_of_it() {
        let whole = json!({"metadata": {"name": "web"}, "credspec": {
            "ActiveDirectoryConfig": {"GroupManagedServiceAccounts": [{"Name": "WebApp1", "Scope": "CONTOSO"}]},
            "CmsPlugins": ["ActiveDirectory"],
            "DomainJoinConfig": {"DnsName": "contoso.com", "DnsTreeName": "contoso.com", "Guid": "244818ae-87ac",
                "MachineAccountName": "WebApp1", "NetBiosName": "CONTOSO", "Sid": "S-1-5-21-2126449477"}}});
        assert_eq!(credential_spec(&whole), ("web".to_owned(), None));
        for (field, wrong, expected) in [
            (
                "/credspec",
                json!("{}"),
                "its credspec.DomainJoinConfig.Sid is missing",
            ),
            (
                "/credspec/DomainJoinConfig/DnsName",
                json!(""),
                "its credspec.DomainJoinConfig.DnsName is missing",
            ),
            (
                "/credspec/CmsPlugins",
                json!([]),
                "its credspec.CmsPlugins lacks ActiveDirectory",
            ),
            (
                "/credspec/ActiveDirectoryConfig/GroupManagedServiceAccounts/0",
                json!({"Name": "WebApp1"}),
                "its credspec.ActiveDirectoryConfig.GroupManagedServiceAccounts is missing",
            ),
        ] {
            let mut spec = whole.clone();
            *spec.pointer_mut(field).unwrap() = wrong;
            assert_eq!(credential_spec(&spec).1.as_deref(), Some(expected), "{field}");
        }
    }
}
