//! The vocabulary: plain values that the rules and the engine speak in. No I/O, no clock, no policy decisions.

pub mod build;
pub mod edit;
pub mod facts;
pub mod finding;
pub mod image;
pub mod node;
pub mod object;
pub mod os;
pub mod path;
pub mod pod;
pub mod policy;
pub mod scalar;
pub mod selection;
pub mod strict;
pub mod subject;
pub mod text;
pub mod workload;
