//! Reports on stored objects: all that Transom wrote, of either kind, wherever that kind is defined.

use kube::Client;

use super::Report;
use crate::controller::reports::{Dialect, Swept, sweep};

/// Deletes them all, and says what was done.
pub async fn take_away(client: &Client, report: &mut Report) {
    for dialect in Dialect::ALL {
        match sweep(client, dialect, || true).await {
            Ok(Swept::All(0)) => {}
            Ok(Swept::All(count)) => report
                .done
                .push(format!("{count} {} of {dialect} deleted", dialect.plural())),
            // Without the kind there is none of it, and the right to see it is granted with reports only.
            Ok(Swept::Unseen(why)) => {
                if dialect.is_served(client).await.unwrap_or(true) {
                    report.left.push(unseen(dialect, &why));
                }
            }
            Err(why) => report
                .failures
                .push(format!("{} of {dialect}: {why}", dialect.plural())),
        }
    }
}

/// What may be left, and what takes it away.
fn unseen(dialect: Dialect, why: &str) -> String {
    let (group, _) = dialect.as_str().split_once('/').unwrap_or_default();
    let resource = dialect.plural();
    format!(
        "{resource} of {dialect}, if reports were ever on: they may not be looked for ({why}); kubectl delete \
         {resource}.{group} -A -l app.kubernetes.io/managed-by=transom"
    )
}
