//! Names for messages: the first of them, and how many more there are.

use std::fmt::Write as _;

/// How many are named where there is little room.
pub const BRIEF: usize = 3;

/// The first names, and how many more there are. A name may be long; of each as much is shown as tells it.
pub fn first<'n>(names: impl ExactSizeIterator<Item = &'n str>, most: usize) -> String {
    const LONGEST: usize = 96;
    let count = names.len();
    let names = names.take(most).map(|name| shortened(name, LONGEST));
    let mut text = names.collect::<Vec<_>>().join(", ");
    if count > most {
        let _ = write!(text, " and {} more", count - most);
    }
    text
}

/// The text, or so many characters of it and an ellipsis.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
