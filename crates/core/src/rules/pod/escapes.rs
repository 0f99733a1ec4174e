//! The rule on escapes of YAML in commands, arguments and environment variables: `"C:\temp"` contains a TAB.

use super::command::handlers;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::path::Path;
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static COMMAND_ESCAPE: Rule = Rule {
    id: "TSM428",
    name: "command-escape",
    severity: Severity::Warning,
    class: Class::Run,
    summary: "a Windows path contains a control character",
    docs: "In YAML's double quotes a backslash starts an escape: \"C:\\temp\" is `C:`, a TAB and `emp`, and \"C:\\new\" \
           contains a line feed. No component checks this, so the program gets the wrong path. The rule checks the \
           command and the arguments of each container, its environment variables, probes and hooks. It reports a \
           control character in the middle of a Windows path: after a drive (`C:`), after `%NAME%`, or after a part of \
           a path that contains a backslash. Scripts may contain line feeds and TABs elsewhere. `path-control-character` \
           reports mount paths, subPaths and working directories.",
    remedy: "write it in single quotes, with doubled backslashes or with forward slashes",
    see: &["https://yaml.org/spec/1.2.2/#57-escaped-characters"],
    bad: &[
        r#"containers: [{name: app, image: app, command: [cmd, /c, dir, "c:\temp\\healthy"]}]"#,
        r#"containers: [{name: app, image: app, args: ["--config=C:\new\\x"]}]"#,
        r#"containers: [{name: app, image: app, env: [{name: TOOLS, value: "C:\\app\tools"}]}]"#,
        r#"containers: [{name: app, image: app, args: ["C:\\app\bin\\app.dll"]}]"#,
        r#"containers: [{name: app, image: app, livenessProbe: {exec: {command: [cmd, /c, type, "%ProgramData%\next\\ok"]}}}]"#,
    ],
    good: &[
        r"containers: [{name: app, image: app, command: [cmd, /c, dir, 'c:\temp\healthy'], env: [{name: A, value: 'C:\new'}]}]",
        r#"containers: [{name: app, image: app, args: ["C:\\temp", "a\tb", "one\ntwo"]}]"#,
        "containers:\n- name: app\n  image: app\n  command: [powershell, -c]\n  args:\n  - |\n    cd C:\\app\n    New-Item C:\\temp\\ok\n    cd D:\n    dir\n",
        r#"containers: [{name: app, image: app, args: ["copy C:\\a\tC:\\b\ndel C:\\a\n"]}]"#,
    ],
    needs: FieldSet::COMMAND
        .or(FieldSet::ARGS)
        .or(FieldSet::ENV)
        .or(FieldSet::EXEC),
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            check_items(&container.command, || container.at(&["command"]), out);
            check_items(&container.args, || container.at(&["args"]), out);
            for (index, variable) in container.env.iter().enumerate() {
                let path = || {
                    container
                        .at(&["env"])
                        .named_item(index, &variable.name)
                        .field("value")
                };
                check_text(variable.value.as_deref().unwrap_or_default(), path, out);
            }
            for (fields, handler) in handlers(&container) {
                if let Some(exec) = handler.and_then(|handler| handler.exec.as_ref()) {
                    let path = || container.at(fields).fields(&["exec", "command"]);
                    check_items(&exec.command, path, out);
                }
            }
        }
    }),
    ..Rule::BASE
};

fn check_items(items: &[Str<'_>], path: impl Fn() -> Path, out: &mut Reporter<'_>) {
    for (index, item) in items.iter().enumerate() {
        check_text(item, || path().item(index), out);
    }
}

/// The message does not contain the value, because a command line or a variable may contain a password.
fn check_text(text: &str, path: impl Fn() -> Path, out: &mut Reporter<'_>) {
    if let Some(escape) = escape_in_path(text) {
        out.report(path()).message(format!(
            "a Windows path contains {}, which YAML makes of \\{} in double quotes",
            escape.name, escape.letter
        ));
    }
}

/// An escape of YAML that is a control character.
#[derive(PartialEq, Eq, Debug)]
struct Escape {
    character: char,
    letter: char,
    name: &'static str,
}

const fn escape(character: char, letter: char, name: &'static str) -> Escape {
    Escape {
        character,
        letter,
        name,
    }
}

static ESCAPES: &[Escape] = &[
    escape('\0', '0', "a NUL character"),
    escape('\u{7}', 'a', "a bell character"),
    escape('\u{8}', 'b', "a backspace"),
    escape('\t', 't', "a TAB"),
    escape('\n', 'n', "a line feed"),
    escape('\u{b}', 'v', "a vertical tab"),
    escape('\u{c}', 'f', "a form feed"),
    escape('\r', 'r', "a carriage return"),
    escape('\u{1b}', 'e', "an escape character"),
    escape('\u{85}', 'N', "a next-line character"),
    escape('\u{2028}', 'L', "a line separator"),
    escape('\u{2029}', 'P', "a paragraph separator"),
];

/// The first escape inside of a Windows path.
fn escape_in_path(text: &str) -> Option<&'static Escape> {
    let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.find(is_control)?;
    let lines = text.trim_end().split(['\n', '\r']).count();
    let has_spaces = text.contains(' ');
    text.char_indices()
        .filter(|(_, c)| is_control(*c))
        .find_map(|(at, c)| {
            let (before, after) = text.split_at(at);
            let rest = after.strip_prefix(c)?;
            let token = before
                .rsplit(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ',' | ';'))
                .next()?;
            let goes_on =
                rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '\\' | '_' | '-' | '.'));
            let is_inside = match c {
                // Lines of a script end after paths, too; a value of one line does not.
                '\n' | '\r' => {
                    lines == 2 && (is_drive(token) && rest.contains('\\') || !has_spaces && is_path(token))
                }
                '\t' => is_drive(token) || lines == 1 && is_path(token),
                _ => is_path(token),
            };
            let escape = ESCAPES.iter().find(|escape| escape.character == c)?;
            (goes_on && is_inside).then_some(escape)
        })
}

/// Whether a text ends with a drive: `C:`.
fn is_drive(token: &str) -> bool {
    let mut end = token.chars().rev();
    let has_letter = end.next() == Some(':') && end.next().is_some_and(|c| c.is_ascii_alphabetic());
    has_letter && !end.next().is_some_and(char::is_alphanumeric)
}

/// Whether a text is the beginning of a Windows path.
fn is_path(token: &str) -> bool {
    is_drive(token)
        || token.contains('\\')
        || (token.len() > 2 && token.starts_with('%') && token.ends_with('%'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_reported_inside_of_windows_paths_only() {
        for (text, letter) in [
            ("c:\temp\\healthy", Some('t')),
            ("--config=C:\new\\x", Some('n')),
            ("C:\\app\new", Some('n')),
            ("C:\tools", Some('t')),
            ("C:\\app\u{8}in\\a.exe", Some('b')),
            ("D:\run.cmd", Some('r')),
            ("D:\run\\a.cmd", Some('r')),
            ("dir C:\\app\u{7}pp", Some('a')),
            ("%TEMP%\test", Some('t')),
            ("C:\\temp", None),
            ("a\tb", None),
            ("http:\tx", None),
            ("cd C:\\app\ndir\n", None),
            ("cd D:\ndir", None),
            ("line\nC:\\a\tb\nx", None),
            ("C:\\temp\n", None),
            ("copy C:\\a\nnext", None),
        ] {
            assert_eq!(
                escape_in_path(text).map(|escape| escape.letter),
                letter,
                "{text:?}"
            );
        }
    }
}
