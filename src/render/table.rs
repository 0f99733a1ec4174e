//! A table whose columns are as wide as their widest cell.

use std::io::{self, Write};

use crate::model::syntax::text::{cut_middle, wrap};

/// A table whose columns are as wide as their cells, within the width of the terminal.
pub struct TextTable {
    rows: Vec<TableRow>,
    /// The columns whose cells may be cut so that a row fits the width.
    cut: Vec<usize>,
    /// The width to fit into, in characters.
    width: usize,
}

#[derive(Default)]
struct TableRow {
    cells: Vec<String>,
    /// The texts below the row.
    details: Vec<String>,
}

impl TextTable {
    /// The width that a table with [`TextTable::cutting`] and all details fit into, unless it has another one.
    pub const WIDTH: usize = 120;
    /// The minimum width of a cell that is cut.
    const NARROWEST: usize = 12;

    /// A table with these headings.
    pub fn new(headings: Vec<String>) -> Self {
        TextTable {
            rows: vec![TableRow {
                cells: headings,
                details: Vec::new(),
            }],
            cut: Vec::new(),
            width: Self::WIDTH,
        }
    }

    /// The same table for a terminal of this width.
    pub fn within(self, width: usize) -> Self {
        TextTable { width, ..self }
    }

    /// Whether every row fits the width without being cut.
    pub fn fits(&self) -> bool {
        // An indent of two, and two between columns.
        self.widest().iter().map(|width| width + 2).sum::<usize>() <= self.width
    }

    /// The same table; if a row would be wider than the width, long cells of these columns are cut in the middle.
    pub fn cutting(self, columns: &[usize]) -> Self {
        TextTable {
            cut: columns.to_vec(),
            ..self
        }
    }

    /// Adds a row with one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.row_with_details(cells, "");
    }

    /// Adds a row and the text below it, which is wrapped and indented.
    pub fn row_with_details(&mut self, cells: Vec<String>, details: &str) {
        self.rows.push(TableRow {
            cells,
            details: Vec::new(),
        });
        self.details(details);
    }

    /// Adds one more text below the last row, unless it is empty.
    pub fn details(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut().filter(|_| !text.is_empty()) {
            row.details.push(text.to_owned());
        }
    }

    /// Writes the table. Numbers are aligned to the right, other cells to the left.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.columns();
        let is_number = |column: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.cells.get(column));
            cells.all(|cell| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let numbers: Vec<bool> = (0..columns).map(is_number).collect();
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::from("  ");
            for ((cell, width), is_number) in row.cells.iter().zip(&widths).zip(&numbers) {
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
            let indent = "      ";
            for details in &row.details {
                for line in wrap(details, self.width.saturating_sub(indent.len())).lines() {
                    writeln!(out, "{indent}{line}")?;
                }
            }
        }
        Ok(())
    }

    fn columns(&self) -> usize {
        self.rows.first().map_or(0, |row| row.cells.len())
    }

    /// The width of the widest cell of each column.
    fn widest(&self) -> Vec<usize> {
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        (0..self.columns()).map(widest).collect()
    }

    /// The width of each column: that of its widest cell, or less if a row must be cut, starting with the
    /// widest column.
    fn widths(&self) -> Vec<usize> {
        let mut widths = self.widest();
        while widths.iter().map(|width| width + 2).sum::<usize>() > self.width {
            let of_cut = |column: &&usize| widths.get(**column).copied().unwrap_or_default();
            let Some(column) = self.cut.iter().max_by_key(of_cut).copied() else {
                break;
            };
            match widths.get_mut(column) {
                Some(width) if *width > Self::NARROWEST => *width -= 1,
                _ => break,
            }
        }
        widths
    }
}
