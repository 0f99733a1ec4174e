//! Deletes all reports on stored objects that Transom wrote, of every report API that the cluster serves.

use kube::Client;

use super::CleanupReport;
use crate::cluster::errors::ApiError;
use crate::controller::reports::{GarbageCollection, ReportApi, count, sweep};

/// Deletes all reports, or counts them for a preview, and records the result.
pub async fn remove_reports(client: &Client, is_preview: bool, report: &mut CleanupReport) {
    let end = if is_preview { "" } else { " deleted" };
    for report_api in ReportApi::ALL {
        let swept = if is_preview {
            match count(client, report_api).await {
                Err(ApiError::NotFound) => Ok(GarbageCollection::All(0)),
                Err(ApiError::Forbidden(why)) => Ok(GarbageCollection::Unseen(why)),
                counted => counted.map(GarbageCollection::All),
            }
        } else {
            sweep(client, report_api, || true).await
        };
        match swept {
            Ok(GarbageCollection::All(0)) => {}
            Ok(GarbageCollection::All(count)) => report
                .done
                .push(format!("{count} {} of {report_api}{end}", report_api.plural())),
            // Without the report API reports cannot exist, and the permission to list them is only granted if reports
            // are enabled.
            Ok(GarbageCollection::Unseen(why)) => {
                if report_api.is_served(client).await.unwrap_or(true) {
                    report.left.push(unseen(report_api, &why));
                }
            }
            Err(why) => report
                .failures
                .push(format!("{} of {report_api}: {why}", report_api.plural())),
        }
    }
}

/// Which reports may be left, and the command that deletes them.
fn unseen(report_api: ReportApi, why: &str) -> String {
    let (group, _) = report_api.as_str().split_once('/').unwrap_or_default();
    let resource = report_api.plural();
    format!(
        "{resource} of {report_api}, if reports were ever enabled: Transom may not list them ({why}); kubectl delete \
         {resource}.{group} -A -l transom.dev/owned"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::test_client::answering;

    /// An API server that serves only reports of openreports.io, and denies this account access to them.
    fn client() -> Client {
        answering(|_, uri, _| match uri.path() {
            "/apis/openreports.io/v1alpha1" => (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "openreports.io/v1alpha1", "resources": [
                    {"name": "reports", "singularName": "", "namespaced": true, "kind": "Report", "verbs": ["list"]},
                ]}),
            ),
            "/apis/wgpolicyk8s.io/v1alpha2" => (
                404,
                json!({"kind": "Status", "code": 404, "message": "not found"}),
            ),
            path => (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": format!("{path} is forbidden")}),
            ),
        })
    }

    #[tokio::test]
    async fn reports_that_may_not_be_seen_are_named_as_left_where_there_is_such_a_kind_and_are_no_failure() {
        let mut report = CleanupReport::default();
        remove_reports(&client(), false, &mut report).await;
        let [left] = &report.left[..] else {
            panic!("{report:?}")
        };
        assert!(
            left.ends_with("kubectl delete reports.openreports.io -A -l transom.dev/owned"),
            "{left}"
        );
        assert_eq!(
            (report.done.len(), report.kept.len(), report.failures.len()),
            (0, 0, 0)
        );
    }
}
