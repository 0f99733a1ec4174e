//! Output of audit log reports: a table for people, JSON for machines.

mod json;
mod text;

pub use self::json::{SCHEMA, json, schema};
pub use self::text::{AuditGroupBy, AuditLogView, text};
