//! Names of public images, for tests of the grammar.

/// A row of `tests/images/names.txt`, which explains its columns.
struct NamedImage {
    name: String,
    sign: String,
    build: String,
    certain: String,
}

/// Every row of the table. The tests read it at run time, because Transom's image is built without the test files.
#[expect(clippy::disallowed_methods, reason = "a table that the program does not have")]
fn rows() -> Vec<NamedImage> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/images/names.txt");
    let table = std::fs::read_to_string(table).unwrap();
    let lines = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.map(
        |line| match line.split('|').map(str::trim).collect::<Vec<_>>()[..] {
            [name, sign, build, certain, source] if !source.is_empty() => NamedImage {
                name: name.to_owned(),
                sign: sign.to_owned(),
                build: build.to_owned(),
                certain: certain.to_owned(),
            },
            _ => panic!("not five columns: {line}"),
        },
    );
    rows.collect()
}

#[test]
fn the_names_of_public_images_mean_what_they_are() {
    use super::tests::on;
    use super::{OsHint, build_hint, is_certainly_linux, os_hint};

    let (mut wrong, mut of_windows) = (Vec::new(), 0);
    for row in rows() {
        let got = on(&row.name, |image| {
            let hint = os_hint(image);
            let sign = match hint {
                OsHint::WindowsOnlyRepository => "windows-repository".to_owned(),
                OsHint::WindowsTagToken(token) => format!("windows-tag {token}"),
                OsHint::LinuxTag(token) => format!("linux-tag {token}"),
                OsHint::LinuxOnlyRepository => "linux-repository".to_owned(),
                OsHint::DotnetLinuxOnly => "dotnet-linux".to_owned(),
                OsHint::None => "-".to_owned(),
            };
            let build = build_hint(image).map_or("-".to_owned(), |hint| {
                format!("{}{}", hint.build.number(), if hint.certain { "!" } else { "" })
            });
            let certain = match hint {
                OsHint::None => "-",
                OsHint::WindowsOnlyRepository => "yes",
                _ if is_certainly_linux(image) => "yes",
                _ => "no",
            };
            (sign, build, certain)
        });
        if (got.0.as_str(), got.1.as_str(), got.2) != (&*row.sign, &*row.build, &*row.certain) {
            wrong.push(format!(
                "{}: {} {} {}, got {got:?}",
                row.name, row.sign, row.build, row.certain
            ));
        }
        of_windows += usize::from(row.sign.starts_with("windows-"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(of_windows >= 60, "{of_windows}");
}
