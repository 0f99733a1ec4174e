//! The vocabulary: plain values that the rules and the engine speak in. No I/O, no clock, no policy decisions.

pub mod build;
pub mod dns;
pub mod edit;
pub mod facts;
pub mod field;
pub mod fields;
pub mod image;
pub mod json;
pub(crate) mod named;
pub mod node;
pub mod object;
pub mod os;
pub mod owner;
pub mod path;
pub mod pod;
pub mod policy;
pub mod probe;
pub mod selection;
pub mod selector;
pub mod severity;
pub mod strict;
pub mod subject;
pub mod text;
mod view;
pub mod workload;
pub mod workload_of;
