//! What audit logs tell, printed: a table for people, a document for machines.

mod json;
mod text;

pub use self::json::{SCHEMA, json};
pub use self::text::{AuditGroupBy, AuditLogView, text};
