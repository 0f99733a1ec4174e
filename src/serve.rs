//! A running server: what is assembled, what judges reviews, and the line that each review leaves in the log.

pub(crate) mod audit;
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod gauges;
pub(crate) mod reviewer;
pub(crate) mod standalone;
