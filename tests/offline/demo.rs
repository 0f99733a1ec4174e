//! `transom demo`: the answers of the webhook on a machine without a cluster.

use crate::support::command::transom;

#[test]
fn the_demo_shows_a_denial_and_a_patch_and_logs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = transom(folder.path(), &["demo"]);
    assert_eq!((run.status, &*run.err), (0, ""), "{}", run.out);
    let (denied, patched) = run
        .out
        .split_once("2. POST /mutate: jane creates Pod default/iis\n")
        .unwrap();
    for line in [
        "1. POST /validate: jane creates Deployment default/web",
        "denied: 5 problems with Deployment default/web for Windows:",
        "spec.template.spec.securityContext.fsGroup: ",
        "spec.template.spec.containers[web].securityContext.runAsUser: ",
    ] {
        assert!(
            denied.lines().any(|shown| shown.starts_with(line)),
            "{line}\n{denied}"
        );
    }
    for line in [
        "allowed, with this patch:",
        r#"  add /spec/nodeSelector {"kubernetes.io/os":"windows"}"#,
        r#"  add /spec/os {"name":"windows"}"#,
    ] {
        assert!(patched.lines().any(|shown| shown == line), "{line}\n{patched}");
    }
}
