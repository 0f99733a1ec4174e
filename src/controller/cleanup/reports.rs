//! Reports on stored objects: all that Transom wrote, of either kind, wherever that kind is defined.

use kube::Client;

use super::Report;
use crate::controller::reports::{Dialect, sweep};

/// Deletes them all, and says what was done.
pub async fn take_away(client: &Client, report: &mut Report) {
    for dialect in Dialect::ALL {
        match sweep(client, dialect, || true).await {
            Ok(0) => {}
            Ok(count) => report
                .done
                .push(format!("{count} {} of {dialect} deleted", dialect.plural())),
            Err(why) => report
                .failures
                .push(format!("{} of {dialect}: {why}", dialect.plural())),
        }
    }
}
