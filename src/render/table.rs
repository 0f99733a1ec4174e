//! Columns that are as wide as what stands in them.

use std::io::{self, Write};

use crate::model::text::cut_middle;

/// Rows of cells.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// The most characters of a row; any number if 0.
    most: usize,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: Vec<String>) -> Self {
        Table {
            rows: vec![headings],
            most: 0,
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The same with rows of at most so many characters: the widest texts are cut in their middle.
    pub fn within(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Writes it. Numbers stand to the right, all else to the left.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let mut widths: Vec<usize> = (0..columns).map(width).collect();
        let is_number = |column: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
            cells.all(|cell| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let numbers: Vec<bool> = (0..columns).map(is_number).collect();
        if self.most > 0 {
            narrow(&mut widths, &numbers, self.most);
        }
        for row in &self.rows {
            let mut line = String::from("  ");
            for ((cell, width), is_number) in row.iter().zip(&widths).zip(&numbers) {
                let width = *width;
                let cell = cut_middle(cell, width, width / 2);
                let padded = if *is_number {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
                line.push_str(&padded);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Takes characters from the widest columns of text until a row fits.
fn narrow(widths: &mut [usize], numbers: &[bool], most: usize) {
    /// A column is never narrower, so that its heading and a name can be read.
    const LEAST: usize = 12;
    // Two spaces before each column.
    let mut over = (widths.iter().sum::<usize>() + 2 * widths.len()).saturating_sub(most);
    while over > 0 {
        let texts = widths
            .iter_mut()
            .zip(numbers)
            .filter(|(_, is_number)| !**is_number);
        let Some((widest, _)) = texts
            .max_by_key(|(width, _)| **width)
            .filter(|(width, _)| **width > LEAST)
        else {
            return;
        };
        *widest -= 1;
        over -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_to_its_width_and_its_numbers_are_whole() {
        let mut table = Table::new(["NAME", "COUNT", "RULES"].map(str::to_owned).into());
        table.row(vec!["x".repeat(100), "12345".to_owned(), "y".repeat(80)]);
        let mut out = Vec::new();
        table.within(80).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(" 12345 ") && text.contains('…'), "{text}");
    }
}
