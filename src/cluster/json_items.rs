//! Splits the JSON of a list, or of a watch, into its objects while it arrives: no more than one object is held, however many
//! there are. Pure.

use std::collections::VecDeque;

use memchr::memchr2;

/// How much of an object that is too large is kept: its name is at the beginning.
pub const PREFIX: usize = 256 << 10;
/// The most bytes around the objects of a list.
const MOST_AROUND: usize = 64 << 10;

/// Where the objects are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sequence {
    /// In the array of a list.
    List,
    /// One after the other, like the events of a watch; or a single one.
    Values,
}

/// An object as bytes of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonItem {
    Whole(Vec<u8>),
    /// The beginning of one that is larger than the limit.
    TooLarge(Vec<u8>),
}

/// The state between two pieces of the text.
#[derive(Debug)]
pub struct JsonItems {
    sequence: Sequence,
    /// The most bytes of an object.
    limit: usize,
    /// How many brackets are open.
    depth: usize,
    /// Whether the array of a list is open.
    is_in_array: bool,
    is_in_string: bool,
    is_escaped: bool,
    /// The object that is open, and its size so far, of which the text may be dropped.
    item: Vec<u8>,
    item_bytes: usize,
    /// The list without its objects.
    around: Vec<u8>,
    complete: VecDeque<JsonItem>,
}

impl JsonItems {
    /// Before the first byte. `limit`: the most bytes of an object.
    pub fn new(sequence: Sequence, limit: usize) -> Self {
        JsonItems {
            sequence,
            limit,
            depth: 0,
            is_in_array: false,
            is_in_string: false,
            is_escaped: false,
            item: Vec::new(),
            item_bytes: 0,
            around: Vec::new(),
            complete: VecDeque::new(),
        }
    }

    /// The next complete object.
    pub fn pop(&mut self) -> Option<JsonItem> {
        self.complete.pop_front()
    }

    /// The bytes that are kept of the next complete object; 0 if there is none.
    pub fn next_bytes(&self) -> usize {
        self.complete.front().map_or(0, |item| match item {
            JsonItem::Whole(bytes) | JsonItem::TooLarge(bytes) => bytes.len(),
        })
    }

    /// The bytes of the object that is not complete yet; 0 between two objects.
    pub fn open_bytes(&self) -> usize {
        self.item_bytes
    }

    /// How many of these bytes are kept.
    pub fn kept_bytes(&self) -> usize {
        self.item.len()
    }

    /// The list without its objects; `None` if it is not complete.
    pub fn around(&self) -> Option<&[u8]> {
        (self.depth == 0 && !self.around.is_empty()).then_some(&*self.around)
    }

    /// Continues with the next piece of the text.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if self.is_in_string {
                let length = self.string_run(bytes);
                bytes = self.keep(bytes, length);
                continue;
            }
            match first {
                b'{' | b'[' => {
                    let opens_array = self.sequence == Sequence::List && self.depth == 1 && *first == b'[';
                    if opens_array {
                        bytes = self.keep(bytes, 1);
                        (self.depth, self.is_in_array) = (2, true);
                    } else {
                        self.depth += 1;
                        bytes = self.keep(bytes, 1);
                    }
                }
                b'}' | b']' => {
                    if self.is_in_array && self.depth == 2 {
                        (self.depth, self.is_in_array) = (1, false);
                        bytes = self.keep(bytes, 1);
                        continue;
                    }
                    bytes = self.keep(bytes, 1);
                    self.depth = self.depth.saturating_sub(1);
                    self.end_item();
                }
                _ => {
                    self.is_in_string = *first == b'"';
                    let is_bracket = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
                    let rest = bytes.get(1..).unwrap_or_default();
                    let plain = rest.iter().position(is_bracket).unwrap_or(rest.len());
                    let length = if self.is_in_string { 1 } else { 1 + plain };
                    bytes = self.keep(bytes, length);
                }
            }
        }
    }

    /// How many bytes of a string can be skipped together.
    fn string_run(&mut self, bytes: &[u8]) -> usize {
        if std::mem::take(&mut self.is_escaped) {
            return 1;
        }
        let Some(at) = memchr2(b'"', b'\\', bytes) else {
            return bytes.len();
        };
        if bytes.get(at) == Some(&b'"') {
            self.is_in_string = false;
        } else {
            self.is_escaped = true;
        }
        at + 1
    }

    /// Keeps the first bytes where they belong, and returns the others.
    fn keep<'b>(&mut self, bytes: &'b [u8], length: usize) -> &'b [u8] {
        let (kept, rest) = bytes.split_at(length.min(bytes.len()));
        let item_depth = match self.sequence {
            Sequence::List => 3,
            Sequence::Values => 1,
        };
        let is_of_item = self.depth >= item_depth && (self.sequence == Sequence::Values || self.is_in_array);
        if is_of_item {
            self.item_bytes = self.item_bytes.saturating_add(kept.len());
            if self.item_bytes <= self.limit {
                self.item.extend_from_slice(kept);
            } else if self.item.len() > PREFIX {
                self.item.truncate(PREFIX);
                self.item.shrink_to_fit();
            }
        } else if self.sequence == Sequence::List
            && (self.depth < 2 || !self.is_in_array)
            && self.around.len() < MOST_AROUND
        {
            self.around.extend_from_slice(kept);
        }
        rest
    }

    /// Ends the object if its last bracket was closed.
    fn end_item(&mut self) {
        let outside = match self.sequence {
            Sequence::List => 2,
            Sequence::Values => 0,
        };
        let has_ended = self.depth == outside && (self.sequence == Sequence::Values || self.is_in_array);
        if !has_ended || self.item_bytes == 0 {
            return;
        }
        let item = std::mem::take(&mut self.item);
        let is_whole = std::mem::take(&mut self.item_bytes) <= self.limit;
        self.complete.push_back(if is_whole {
            JsonItem::Whole(item)
        } else {
            JsonItem::TooLarge(item)
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn split(sequence: Sequence, text: &str, piece: usize) -> (Vec<String>, Option<Value>) {
        let mut items = JsonItems::new(sequence, 1_000);
        let mut found = Vec::new();
        for bytes in text.as_bytes().chunks(piece) {
            items.feed(bytes);
            while let Some(item) = items.pop() {
                found.push(match item {
                    JsonItem::Whole(bytes) => String::from_utf8(bytes).unwrap(),
                    JsonItem::TooLarge(bytes) => format!("too large: {}", bytes.len()),
                });
            }
        }
        (
            found,
            items
                .around()
                .map(|around| serde_json::from_slice(around).unwrap()),
        )
    }

    #[test]
    fn objects_are_split_whatever_their_texts_contain_and_wherever_the_pieces_end() {
        let objects = [
            json!({"metadata": {"name": "a"}, "items": [[1], {"b": [{}]}]}),
            json!({"text": "}]{[\"\\", "more": ["\\\\\"", "é"]}),
            json!({}),
        ];
        let expected: Vec<String> = objects.iter().map(ToString::to_string).collect();
        let metadata = json!({"continue": "x", "array": [1, [2]]});
        for list in [
            json!({"kind": "PodList", "metadata": metadata, "items": objects}),
            json!({"items": objects, "metadata": metadata}),
        ] {
            let mut around = list.clone();
            around["items"] = json!([]);
            let text = serde_json::to_string_pretty(&list).unwrap();
            for piece in [1, 2, 3, 7, 10_000] {
                let (found, rest) = split(Sequence::List, &text, piece);
                let found: Vec<Value> = found
                    .iter()
                    .map(|text| serde_json::from_str(text).unwrap())
                    .collect();
                assert_eq!(found, objects, "{piece}");
                assert_eq!(rest, Some(around.clone()), "{piece}");
            }
        }
        let events = expected.join("\n");
        for piece in [1, 5, 10_000] {
            assert_eq!(split(Sequence::Values, &events, piece).0, expected);
        }
    }

    #[test]
    fn a_list_that_ends_early_is_not_complete_and_null_is_no_object() {
        let (found, around) = split(
            Sequence::List,
            r#"{"metadata": {}, "items": [{"a": 1}, {"b": "#,
            4,
        );
        assert_eq!((found.len(), around), (1, None));
        let (found, around) = split(Sequence::List, r#"{"metadata": {}, "items": null}"#, 4);
        assert_eq!((found.len(), around.is_some()), (0, true));
    }

    #[test]
    fn of_an_object_over_the_limit_only_the_beginning_is_kept() {
        let large = json!({"metadata": {"name": "large"}, "text": "<".repeat(200_000)});
        let list = json!({"items": [{"a": 1}, large, {"b": 2}]}).to_string();
        let mut items = JsonItems::new(Sequence::List, 100_000);
        let mut most = 0;
        for bytes in list.as_bytes().chunks(1_000) {
            items.feed(bytes);
            most = most.max(items.item.capacity());
        }
        assert!(most <= 2 * 100_000, "{most}");
        let kinds: Vec<bool> = items
            .complete
            .iter()
            .map(|item| matches!(item, JsonItem::Whole(_)))
            .collect();
        assert_eq!(kinds, [true, false, true]);
        let Some(JsonItem::TooLarge(prefix)) = items.complete.get(1) else {
            panic!()
        };
        assert!(prefix.len() <= PREFIX && prefix.starts_with(br#"{"metadata":{"name":"large"}"#));
    }
}
