//! The data model: plain values that the rules and the engine use. No I/O, no clock, no policy decisions.

pub mod cluster;
pub mod doubling_pause;
pub mod field_set;
pub mod knowledge;
pub mod nodes;
pub mod objects;
pub mod syntax;
pub mod windows;
