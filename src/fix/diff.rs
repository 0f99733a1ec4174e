//! Unified diffs, as `patch` and `git apply` read them.

use similar::TextDiff;

/// The changes of a file in the unified format with three lines of context; empty if there are none.
pub fn unified(name: &str, before: &[u8], after: &[u8]) -> Vec<u8> {
    let name = name.strip_prefix("./").unwrap_or(name).replace('\\', "/");
    // git and patch remove the first folder of a relative path; an absolute path stays.
    let (old, new) = if name.starts_with('/') {
        (name.clone(), name)
    } else {
        (format!("a/{name}"), format!("b/{name}"))
    };
    let mut written = Vec::new();
    let diff = TextDiff::from_lines(before, after);
    // Writing to a vector cannot fail.
    let _ = diff
        .unified_diff()
        .context_radius(3)
        .header(&old, &new)
        .to_writer(&mut written);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_keeps_line_ends() {
        let diff = unified("./web.yaml", b"a\r\nb\r\nc", b"a\r\nc");
        let expected =
            "--- a/web.yaml\n+++ b/web.yaml\n@@ -1,3 +1,2 @@\n a\r\n-b\r\n c\n\\ No newline at end of file\n";
        assert_eq!(String::from_utf8(diff).unwrap(), expected);
        assert_eq!(unified("a", b"x", b"x"), b"");
    }
}
