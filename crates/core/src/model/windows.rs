//! Windows: its builds, and the images that run on them.

pub mod build;
pub mod image;
pub mod image_facts;
pub mod os;
pub mod registry_patterns;
pub mod windows_updates;
