//! Notes the folders whose objects exist only after another program has rendered them: Kustomize's and Helm charts.

use std::path::Path;

use serde::Deserialize;

use super::{CheckNote, Manifests, NoteLevel};
use crate::manifest;
use crate::model::syntax::text::shell_word;
use crate::process::files::{self, Accept};

/// The names that Kustomize looks for in a folder.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
const CHART: &str = "Chart.yaml";

/// The fields that state what a file describes.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RenderedFile {
    kind: String,
    r#type: String,
}

impl RenderedFile {
    /// The first of these files in a folder, unless it is excluded.
    fn find(folder: &Path, names: &[&str], leaves_out: &impl Fn(&Path) -> bool) -> Option<Self> {
        let paths = names.iter().map(|name| folder.join(name));
        let path = paths
            .into_iter()
            .find(|path| path.is_file() && !leaves_out(path))?;
        let bytes = files::read(&path, Accept::Regular, files::MANIFEST_BYTES).ok()?;
        let parsed = manifest::parse(bytes);
        let document = parsed.documents.first()?;
        Some(serde_json::from_str(document.json()).unwrap_or_default())
    }
}

/// Notes how to check what a folder renders. Nothing renders a Kustomize component or a library chart alone, and a chart
/// inside of another one is rendered with it.
pub(super) fn note(folder: &Path, leaves_out: impl Fn(&Path) -> bool, manifests: &mut Manifests) {
    let Some(command) = manifests.command() else {
        return;
    };
    let name = shell_word(&folder.display().to_string());
    let kustomization = RenderedFile::find(folder, &KUSTOMIZATIONS, &leaves_out);
    let renderer = if kustomization.is_some_and(|file| file.kind != "Component") {
        format!("kubectl kustomize {name}")
    } else if RenderedFile::find(folder, &[CHART], &leaves_out).is_some_and(|file| file.r#type != "library")
        && !is_below_chart(folder)
    {
        format!("helm template {name}")
    } else {
        return;
    };
    let source = folder.display().to_string();
    let message =
        format!("its files are read as written; for what the folder renders: {renderer} | {command} -");
    manifests.add_note(CheckNote::new(source, (0, 0), NoteLevel::Note, message));
}

/// Whether a folder above this one has a chart. A relative path does not show all of them.
fn is_below_chart(folder: &Path) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    real.ancestors().skip(1).any(|above| above.join(CHART).is_file())
}
