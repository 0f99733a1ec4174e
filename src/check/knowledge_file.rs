//! Reads a file of known faults and dates of support, as YAML or JSON.

use std::path::Path;

use crate::manifest;
use crate::model::knowledge::KnowledgeFile;
use crate::process::files::{self, Accept};

/// The maximum size of such a file: twice what a ConfigMap may have.
const MOST: u64 = 2 << 20;

/// A file that cannot be used.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("cannot use the knowledge of {file}: {why}")]
pub struct KnowledgeLoadError {
    file: String,
    why: String,
}

/// Reads the rows of a file.
///
/// # Errors
/// If it cannot be read, or does not have the form of this version; the error names the file and the row.
pub fn read_knowledge(file: &Path, accept: Accept) -> Result<KnowledgeFile, KnowledgeLoadError> {
    let failed = |why: String| KnowledgeLoadError {
        file: file.display().to_string(),
        why,
    };
    let bytes = files::read(file, accept, MOST).map_err(|error| failed(error.to_string()))?;
    let parsed = manifest::parse(bytes);
    if let Some(error) = parsed.errors.first() {
        return Err(failed(error.to_string()));
    }
    if let Some(warning) = parsed.warnings.first() {
        let line = warning.position.line;
        return Err(failed(format!("line {line}: {}", warning.message)));
    }
    let [document] = &parsed.documents[..] else {
        return Err(failed(format!(
            "it has {} documents, and needs one",
            parsed.documents.len()
        )));
    };
    KnowledgeFile::parse(document.json()).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_yaml_or_json_and_an_error_names_the_file_and_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("knowledge.yaml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_knowledge(&file, Accept::Regular)
        };
        let head = "schema: transom.dev/knowledge/v1\nsource: Example\ndate: 2027-03-01\n";
        assert_eq!(read(head).unwrap().source, "Example");
        let json = r#"{"schema": "transom.dev/knowledge/v1", "source": "Example", "date": "2027-03-01"}"#;
        assert_eq!(read(json), read(head));
        for (text, message) in [
            ("a: [\n", "knowledge.yaml: line "),
            ("", "it has 0 documents"),
            ("schema: transom.dev/knowledge/v9\n", "upgrade Transom"),
            (&format!("{head}faults: 1\n"), "faults"),
            (&format!("{head}source: Other\n"), "line 4"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        std::fs::remove_file(&file).unwrap();
        let missing = read_knowledge(&file, Accept::Regular).unwrap_err().to_string();
        assert!(missing.contains("knowledge.yaml"), "{missing}");
    }
}
