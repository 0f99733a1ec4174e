//! Texts, JSON and paths: what everything else is written in.

pub mod dns;
pub mod edit;
pub mod json;
pub mod json_types;
pub mod path;
pub mod report_schema;
pub mod strict_json;
pub mod string_enum;
pub mod suggest;
pub mod text;
