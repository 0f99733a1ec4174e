//! Columns that are as wide as what stands in them.

use std::io::{self, Write};

/// Rows of cells.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: Vec<String>) -> Self {
        Table { rows: vec![headings] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Writes it. Numbers stand to the right, all else to the left.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let is_number = |column: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
            cells.all(|cell| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let numbers: Vec<bool> = (0..columns).map(is_number).collect();
        for row in &self.rows {
            let mut line = String::from("  ");
            for ((cell, width), is_number) in row.iter().zip(&widths).zip(&numbers) {
                let width = *width;
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
