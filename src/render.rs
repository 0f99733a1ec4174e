//! Renders results for people and machines. Writes output only; evaluates nothing.

pub(crate) mod audit_log;
mod check;
mod drain;
mod html;
mod image;
mod image_pulls;
mod plain;
mod plan;
mod policy_tests;
mod rules;
mod sarif;
mod scan;
mod table;
mod text;
mod yaml;

pub use self::check::{
    CheckReport, CheckSummary, CheckTextOptions, NotEvaluated, check_github, check_gitlab, check_json,
    check_junit, check_sarif, check_schema, check_text, unknown_os_remedy,
};
pub use self::drain::{drain_end, drain_text};
pub use self::html::page;
pub use self::image::image_text;
pub use self::image_pulls::{image_pulls_text, pull_daemon_sets, pull_jobs, pull_list};
pub use self::plain::write_json;
pub use self::plan::{can_move, plan_text};
pub use self::policy_tests::{tests_json, tests_junit, tests_schema, tests_text};
pub use self::rules::{
    explain, explain_json, explain_schema, rules_json, rules_markdown, rules_schema, rules_text,
};
pub use self::scan::{ScanView, scan_json, scan_sarif, scan_text};
pub use self::yaml::{yaml, yaml_documents};
