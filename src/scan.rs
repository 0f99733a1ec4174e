//! Scanning: what is stored already, judged as admission would judge it if it were created again. Reads nothing by itself.

mod collect;
mod judge;
mod judged;
mod like;
mod nodes;
pub mod pods;
pub mod report;
mod world;

pub(crate) use self::collect::{Alike, MOST_OWNERS};
pub use self::collect::{Frame, Scan};
pub use self::judge::{Looked, Passed, look, look_at};
pub use self::judged::{Fate, Foreign, Found, Judged, Outcome, Uid};
pub use self::like::{Like, like};
pub use self::nodes::nodes;
pub use self::world::{NotAsked, Overrides, World};
