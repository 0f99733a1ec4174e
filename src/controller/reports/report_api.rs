//! Which report API the cluster serves; asked repeatedly, because CustomResourceDefinitions are installed and
//! deleted.

use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};

use crate::cluster::errors::{ApiError, answered};
use crate::model::syntax::string_enum::string_enum;

string_enum! {
    /// A report API that other tools read.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum ReportApi {
        /// `Report` of `openreports.io/v1alpha1`.
        OpenReports = "openreports.io/v1alpha1",
        /// `PolicyReport` of `wgpolicyk8s.io/v1alpha2`, its predecessor.
        PolicyReports = "wgpolicyk8s.io/v1alpha2",
    }
}

impl ReportApi {
    /// The `apiVersion` of its objects.
    pub fn api_version(self) -> &'static str {
        self.as_str()
    }

    /// The `kind` of its objects.
    pub fn kind(self) -> &'static str {
        match self {
            ReportApi::OpenReports => "Report",
            ReportApi::PolicyReports => "PolicyReport",
        }
    }

    /// The plural resource name.
    pub fn plural(self) -> &'static str {
        match self {
            ReportApi::OpenReports => "reports",
            ReportApi::PolicyReports => "policyreports",
        }
    }

    /// The resource for the client.
    pub fn resource(self) -> ApiResource {
        let (group, version) = self.as_str().split_once('/').unwrap_or_default();
        let kind = GroupVersionKind::gvk(group, version, self.kind());
        ApiResource::from_gvk_with_plural(&kind, self.plural())
    }

    /// Whether the API server serves it.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn is_served(self, client: &Client) -> Result<bool, ApiError> {
        match answered(client.list_api_group_resources(self.api_version())).await {
            Ok(list) => Ok(list.resources.iter().any(|it| it.name == self.plural())),
            Err(ApiError::NotFound) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The first one that the API server serves; `None` if it serves none.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn of(client: &Client) -> Result<Option<ReportApi>, ApiError> {
        for api in ReportApi::ALL {
            if api.is_served(client).await? {
                return Ok(Some(api));
            }
        }
        Ok(None)
    }
}
