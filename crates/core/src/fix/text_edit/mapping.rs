//! Edits mappings: renames, changes, removes and adds entries.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Map, Value};

use super::{Child, EditResult, Layout, TextEditor};
use crate::manifest::{SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode};

/// What differs between two values of a mapping.
struct MappingChange<'v> {
    /// The keys of entries that get other keys, and these.
    renamed: Vec<(&'v str, &'v str)>,
    removed: Vec<&'v str>,
    added: Vec<(&'v str, &'v Value)>,
}

impl<'v> MappingChange<'v> {
    fn between(before: &'v Map<String, Value>, after: &'v Map<String, Value>) -> Self {
        let removed = before.keys().filter(|key| !after.contains_key(*key));
        let added = after.iter().filter(|(key, _)| !before.contains_key(*key));
        let mut change = MappingChange {
            renamed: Vec::new(),
            removed: removed.map(String::as_str).collect(),
            added: added.map(|(key, value)| (key.as_str(), value)).collect(),
        };
        // A scalar whose key has a new name stays where it is, and may get a new value.
        for has_new_value in [false, true] {
            let MappingChange {
                renamed,
                removed,
                added,
            } = &mut change;
            removed.retain(|old| {
                let value = before.get(*old).filter(|value| value.is_string());
                let is_same = |new: &Value| new.is_string() && (has_new_value || Some(new) == value);
                let new = value.and_then(|_| added.iter().position(|(_, new)| is_same(new)));
                if let Some(new) = new {
                    renamed.push((*old, added.remove(new).0));
                }
                new.is_none()
            });
        }
        change
    }
}

impl<'t> TextEditor<'t> {
    /// Changes a mapping; the layout is that of its entries.
    pub(super) fn mapping(
        &mut self,
        node: &'t SyntaxNode,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
        layout: Layout,
    ) -> EditResult {
        let SyntaxForm::Mapping(mapping) = &node.form else {
            return Ok(());
        };
        if mapping.has_duplicates {
            return self.refuse("a key is given twice in one mapping: remove one of them");
        }
        let change = MappingChange::between(before, after);
        for (old, new) in change.renamed {
            self.at(old, |editor| {
                let Some((_, entry)) = editor.entry(mapping, old)? else {
                    return editor.refuse("its key comes from a merge key (`<<`): write it out");
                };
                if let Some((before, after)) = before.get(old).zip(after.get(new)) {
                    editor.child(Child::of(entry, layout), before, after)?;
                }
                editor.rename(entry, new)
            });
        }
        self.change_entries(mapping, before, after, layout);
        let gone = self.remove_entries(mapping, &change.removed)?;
        if change.added.is_empty() {
            return Ok(());
        }
        let added = change.added.iter();
        if !mapping.flow {
            let lines: String = added
                .map(|(key, value)| self.notation.entry(key, value, layout))
                .collect();
            self.insert_lines(node.span.end, &lines);
            return Ok(());
        }
        let added: Vec<_> = added
            .map(|(key, value)| self.notation.member(Some(key), value))
            .collect();
        self.add_in_flow(node, last_kept(mapping, &gone), &added, !gone.is_empty())
    }

    /// Changes the entries that both values have.
    fn change_entries(
        &mut self,
        mapping: &'t SyntaxMapping,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
        layout: Layout,
    ) {
        for (key, before) in before {
            if let Some(after) = after.get(key).filter(|after| *after != before) {
                self.at(key, |editor| {
                    editor.entry(mapping, key)?.map_or(Ok(()), |(_, entry)| {
                        let layout = editor.layout_below(entry, layout);
                        editor.child(Child::of(entry, layout), before, after)
                    })
                });
            }
        }
    }

    /// Gives an entry another key, in the quotes of the old one.
    fn rename(&mut self, entry: &SyntaxEntry, key: &str) -> EditResult {
        let span = entry.key_span.clone();
        let form = match self.part(span.clone()).chars().next() {
            Some('"') => SyntaxForm::DoubleQuoted,
            Some('\'') => SyntaxForm::SingleQuoted,
            Some('&' | '!' | '?') => return self.refuse("its key has an anchor or a tag"),
            _ => SyntaxForm::Plain,
        };
        let key = self.notation.scalar(&Value::from(key), &form);
        self.replace(span, key);
        Ok(())
    }

    /// Removes the entries of keys; returns their indexes.
    fn remove_entries(&mut self, mapping: &'t SyntaxMapping, keys: &[&str]) -> EditResult<BTreeSet<usize>> {
        let mut gone = BTreeSet::new();
        for key in keys {
            self.at(key, |editor| {
                if let Some((index, entry)) = editor.entry(mapping, key)? {
                    editor.check_removal(&entry.value)?;
                    gone.insert(index);
                }
                Ok(())
            });
        }
        if mapping.flow {
            self.remove_from_flow(mapping, &gone)?;
        } else {
            self.remove_lines(mapping, &gone)?;
        }
        Ok(gone)
    }

    /// The entry of a key, and its index. `None` if a merge key has the entry: it is changed where it is written. If that is
    /// not enough, the verification fails.
    fn entry(&self, mapping: &'t SyntaxMapping, key: &str) -> EditResult<Option<(usize, &'t SyntaxEntry)>> {
        let found = mapping
            .find(key)
            .and_then(|index| Some((index, mapping.entries.get(index)?)));
        if found.is_none() && mapping.entries.iter().all(|entry| entry.key.is_some()) {
            return self.refuse("its key is written in a way that is not known");
        }
        Ok(found)
    }

    /// The layout of the entries of a mapping.
    pub(super) fn layout_in(
        &self,
        node: &SyntaxNode,
        mapping: &SyntaxMapping,
        layout: Layout,
    ) -> EditResult<Layout> {
        // The entries of a mapping with a key that is given twice are not edited.
        if mapping.flow || mapping.has_duplicates {
            return Ok(Layout {
                column: None,
                ..layout
            });
        }
        let column = self.column(node.span.start)?;
        let dash = mapping.entries.iter().find_map(|entry| match &entry.value.form {
            SyntaxForm::Sequence { flow: false, .. } => {
                let dash = self.column(entry.value.span.start).ok()?;
                dash.checked_sub(column)
            }
            _ => None,
        });
        Ok(Layout {
            column: Some(column),
            dash: dash.unwrap_or(layout.dash),
            ..layout
        })
    }

    /// The layout below an entry.
    fn layout_below(&self, entry: &SyntaxEntry, layout: Layout) -> Layout {
        let step = match (&entry.value.form, layout.column) {
            (SyntaxForm::Mapping(SyntaxMapping { flow: false, .. }), Some(column)) => {
                let below = self.column(entry.value.span.start).ok();
                below.and_then(|below| below.checked_sub(column))
            }
            _ => None,
        };
        Layout {
            step: step.filter(|step| *step > 0).unwrap_or(layout.step),
            ..layout
        }
    }
}

/// The bytes of the last entry that stays.
fn last_kept(mapping: &SyntaxMapping, gone: &BTreeSet<usize>) -> Option<Range<usize>> {
    let mut entries = mapping.entries.iter().enumerate();
    let (_, last) = entries.rfind(|(index, _)| !gone.contains(index))?;
    Some(last.key_span.start..last.value.span.end)
}
