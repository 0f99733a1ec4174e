//! Scanning: what is stored already, judged as admission would judge it if it were created again. Reads nothing by itself.

mod judge;
mod judged;
pub mod pods;
pub mod report;
mod world;

pub use self::judge::{Looked, Passed, look};
pub use self::judged::{Fate, Foreign, Found, Judged, Outcome, Uid};
pub use self::world::{NotAsked, Overrides, World};
