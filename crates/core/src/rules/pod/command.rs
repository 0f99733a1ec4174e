//! The rule on commands: what a container, a probe or a hook starts that no Windows image has, or that is not a
//! program.

use super::INTRO;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::Handler;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::rules::context::{ContainerAt, PodCx};
use crate::rules::rule::{Check, Reporter, Rule};

pub(super) static UNIX_COMMAND: Rule = Rule {
    id: "TSM417",
    name: "unix-command",
    severity: Severity::Warning,
    class: Class::BestPractice,
    summary: "the command is not a program that Windows images have",
    docs: "Windows images have neither /bin nor a Unix shell nor Unix tools (`cat`, `sleep`, `test`, `chmod`, …). The \
           runtime starts a command without a shell. So built-in commands of cmd.exe or PowerShell (`echo`, `copy`, \
           `Start-Sleep`) do not work, and neither does a whole command line in one string. A container whose command \
           is not found ends in StartError, a probe fails, and a hook is skipped. The rule checks the commands of all \
           containers, of their startup, liveness and readiness probes, and of postStart and preStop. It checks the \
           name only: if the image contains such a program (Git for Windows contains bash and sh), the command works. \
           Windows starts programs and batch files (.exe, .com, .cmd, .bat), but no other scripts (.ps1, .vbs, .py, \
           .jar, …), because it does not search for their interpreters. \
           The rule ignores programs that Windows has too (`curl`, `tar`, `ping`, `find`, `sort`, `hostname`), and the \
           Unix tools in Kubernetes' test images whose Windows variants contain busybox (`agnhost`, `busybox`, \
           `httpd`, `nginx`, …). It reports PowerShell only in images of Microsoft that are known not to have it: Nano \
           Server, and the Nano Server variants of .NET's runtime and ASP.NET.",
    remedy: "start powershell.exe, pwsh.exe or cmd.exe with the command as arguments, or use the full Windows path of \
             a program",
    see: &[
        INTRO,
        "https://learn.microsoft.com/windows-server/administration/windows-commands/cmd",
        "https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/",
    ],
    bad: &[
        "containers: [{name: app, image: app, command: [/bin/sh, -c, date]}]",
        "containers: [{name: app, image: app, command: [/usr/bin/env]}]",
        "containers: [{name: app, image: app, command: [sh, -c, date]}]",
        "initContainers: [{name: init, image: app, command: [bash]}]",
        "initContainers: [{name: init, image: app, command: [cp, -r, /config, /work]}]",
        "containers: [{name: app, image: app, command: [./docker-entrypoint.sh]}]",
        "containers: [{name: app, image: app, livenessProbe: {exec: {command: [cat, /tmp/healthy]}}}]",
        "containers: [{name: app, image: app, readinessProbe: {exec: {command: [test, -f, ready]}}}]",
        "containers: [{name: app, image: app, startupProbe: {exec: {command: [ls, /app]}}}]",
        "containers: [{name: app, image: app, lifecycle: {preStop: {exec: {command: [sleep, '15']}}}}]",
        "containers: [{name: app, image: app, lifecycle: {postStart: {exec: {command: [chmod, '0755', /app]}}}}]",
        // Windows does not start an interpreter.
        r"containers: [{name: app, image: app, command: ['C:\app\start.ps1']}]",
        "containers: [{name: app, image: app, livenessProbe: {exec: {command: ['c:/Health.VBS']}}}]",
        "containers: [{name: app, image: app, lifecycle: {preStop: {exec: {command: [stop.py, --now]}}}}]",
        // Built-in commands of a shell.
        "containers: [{name: app, image: app, livenessProbe: {exec: {command: [echo, ok]}}}]",
        "initContainers: [{name: init, image: app, command: [copy, a.txt, b.txt]}]",
        "containers: [{name: app, image: app, lifecycle: {preStop: {exec: {command: [Start-Sleep, '15']}}}}]",
        // A command line instead of the name of a program.
        "containers: [{name: app, image: app, command: ['cmd /c ping -t localhost']}]",
        "containers: [{name: app, image: app, command: ['powershell.exe -Command Start-Sleep 5']}]",
        r"containers: [{name: app, image: app, command: ['C:\Windows\System32\cmd.exe /c dir']}]",
        "containers: [{name: app, image: app, livenessProbe: {exec: {command: ['cat /tmp/healthy']}}}]",
        "containers: [{name: app, image: app, command: ['server.exe --port 80']}]",
        r"containers: [{name: app, image: app, command: ['C:\Program Files\app\app.exe --port 80']}]",
        r#"containers: [{name: app, image: app, command: ['"C:\Program Files\app\app.exe" --port 80']}]"#,
        "containers: [{name: app, image: app, command: ['ping -t localhost']}]",
        // Nano Server has no PowerShell.
        "containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022', command: [powershell.exe, -Command, Start-Sleep 5]}]",
        r"containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2022', lifecycle: {preStop: {exec: {command: ['C:\Program Files\PowerShell\pwsh.exe', -c, date]}}}}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/core/runtime:3.1-nanoserver-1809', command: [pwsh, -c, date]}]",
        "containers: [{name: app, image: 'registry.k8s.io/e2e-test-images/pause:3.10', command: [sleep, '60']}]",
        // busybox has no such command.
        "containers: [{name: app, image: 'registry.k8s.io/e2e-test-images/busybox:1.29-4', command: [copy, a, b]}]",
    ],
    good: &[
        "containers: [{name: app, image: app, command: [/usr/local/bin/cns.exe]}]",
        r"containers: [{name: app, image: app, command: ['C:\app\start.cmd'], livenessProbe: {exec: {command: [/bin/health.bat]}}}]",
        r"containers: [{name: app, image: app, command: [powershell.exe, 'C:\app\start.ps1']}]",
        "containers: [{name: app, image: app, command: [powershell.exe, -Command, date]}]",
        r"containers: [{name: app, image: app, command: ['C:\Program Files\Git\bin\bash.exe']}]",
        "containers: [{name: app, image: app, command: ['C:/bin/sh.exe']}]",
        "containers: [{name: app, image: app, command: [cmd, /c, echo /bin/sh]}]",
        "containers: [{name: app, image: app, args: [sh]}]",
        // Windows has these programs, or the image may contain them.
        "containers: [{name: app, image: app, livenessProbe: {exec: {command: [curl, -f, 'http://localhost/']}}}]",
        "containers: [{name: app, image: app, command: [dotnet, app.dll], lifecycle: {preStop: {exec: {command: [powershell, -c, Start-Sleep 5]}}}}]",
        "containers: [{name: app, image: app, command: [tar, -xf, a.tar], readinessProbe: {exec: {command: [cmd, /c, type ready]}}}]",
        "containers: [{name: app, image: app, command: [/app/server], livenessProbe: {httpGet: {path: /healthz, port: 80}}}]",
        r"containers: [{name: app, image: app, command: ['C:\Program Files\app\app.exe', --port, '80']}]",
        "containers: [{name: app, image: app, command: [test-runner], args: [cat]}]",
        r"containers: [{name: app, image: app, command: ['C:\Program Files\a.exe']}]",
        r"containers: [{name: app, image: app, command: ['C:\my ping\a.exe']}]",
        r"containers: [{name: app, image: app, command: ['C:\net tools\a.exe']}]",
        r"containers: [{name: app, image: app, command: ['C:\node js\app.exe', --port, '80']}]",
        // A HostProcess container finds the node's PowerShell.
        r"{securityContext: {windowsOptions: {hostProcess: true, runAsUserName: 'NT AUTHORITY\SYSTEM'}}, hostNetwork: true, containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022', command: [powershell.exe, -Command, Start-Sleep 5]}]}",
        // These images have PowerShell.
        "containers: [{name: app, image: 'mcr.microsoft.com/powershell:nanoserver-ltsc2022', command: [pwsh, -c, date]}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/sdk:8.0-nanoserver-ltsc2022', command: [pwsh, -c, date]}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/aspnet:8.0-windowsservercore-ltsc2022', command: [powershell, -c, date]}]",
        "containers: [{name: app, image: 'corp.example/app:1.0-nanoserver-ltsc2022', command: [pwsh, -c, date]}]",
        // These images have Unix tools on Windows too.
        "containers: [{name: app, image: 'registry.k8s.io/e2e-test-images/busybox:1.29-4', command: [sleep, '60']}]",
        "containers: [{name: app, image: 'registry.k8s.io/e2e-test-images/agnhost:2.47', livenessProbe: {exec: {command: [cat, /tmp/health]}}}]",
        "initContainers: [{name: init, image: 'registry.k8s.io/e2e-test-images/busybox:1.29-4', command: [mkdir, -p, /work]}]",
        "containers: [{name: app, image: 'registry.k8s.io/e2e-test-images/nginx:1.14-alpine', lifecycle: {preStop: {exec: {command: [echo, bye]}}}}]",
        "containers: [{name: app, image: 'registry.k8s.io/e2e-test-images/httpd:2.4.39-4', command: [sh, -c, date]}]",
    ],
    needs: FieldSet::COMMAND.or(FieldSet::EXEC),
    check: Check::Pod(|cx, out| {
        for container in cx.containers() {
            let tools = ImageTools::of(cx, &container);
            check_command(&container.command, tools, || container.at(&["command"]), out);
            for (fields, handler) in handlers(&container) {
                if let Some(exec) = handler.and_then(|handler| handler.exec.as_ref()) {
                    check_command(
                        &exec.command,
                        tools,
                        || container.at(fields).fields(&["exec", "command"]),
                        out,
                    );
                }
            }
        }
    }),
    ..Rule::BASE
};

/// The commands of a container, of its hooks and of its probes, with their paths.
pub(in crate::rules) fn commands<'c>(
    container: &ContainerAt<'c>,
) -> impl Iterator<Item = (Path, &'c [Str<'c>])> {
    let own = (container.at(&["command"]), &*container.container.command);
    let of_handlers = handlers(container).into_iter().filter_map(|(fields, handler)| {
        let path = container.at(fields).fields(&["exec", "command"]);
        Some((path, &*handler?.exec.as_ref()?.command))
    });
    std::iter::once(own)
        .chain(of_handlers)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Whether the rule on commands reports a program, whatever the image contains.
pub(in crate::rules) fn is_reported_command(program: &str) -> bool {
    CommandProblem::of(program).is_some()
}

/// The probes and hooks of a container, with their paths.
pub(super) fn handlers<'c>(
    container: &ContainerAt<'c>,
) -> [(&'static [&'static str], Option<&'c Handler<'c>>); 5] {
    let container = container.container;
    [
        (
            &["lifecycle", "postStart"],
            container.lifecycle.post_start.as_ref(),
        ),
        (&["lifecycle", "preStop"], container.lifecycle.pre_stop.as_ref()),
        (&["startupProbe"], container.startup_probe.as_ref()),
        (&["livenessProbe"], container.liveness_probe.as_ref()),
        (&["readinessProbe"], container.readiness_probe.as_ref()),
    ]
}

/// What is known of the programs in an image, by its name.
#[derive(Clone, Copy, Default)]
struct ImageTools {
    /// It has busybox, with Unix tools.
    busybox: bool,
    /// It is based on Nano Server, which has no `powershell.exe`.
    is_nano_server: bool,
    /// It has no PowerShell, as far as its publisher is known.
    no_powershell: bool,
}

impl ImageTools {
    fn of(cx: &PodCx<'_>, container: &ContainerAt<'_>) -> Self {
        // A HostProcess container starts the programs of the node, which has PowerShell, whatever its image is.
        let image = (!cx.spec.is_host_process(container.container))
            .then(|| cx.image(container).map(|image| &image.reference))
            .flatten();
        image.map_or_else(ImageTools::default, |image| ImageTools {
            busybox: image.has_busybox(),
            is_nano_server: image.is_nano_server(),
            no_powershell: image.has_no_powershell(),
        })
    }
}

fn check_command(command: &[Str<'_>], tools: ImageTools, path: impl Fn() -> Path, out: &mut Reporter<'_>) {
    let Some(first) = command.first() else {
        return;
    };
    let problem = match CommandProblem::of(first) {
        Some(CommandProblem::Unix) if tools.busybox => None,
        Some(CommandProblem::Builtin) if tools.busybox && is_in(BUILTINS_OF_BUSYBOX, first.trim()) => None,
        None if tools.no_powershell && is_powershell(first) => Some(CommandProblem::NoPowerShell),
        other => other,
    };
    let Some(problem) = problem else {
        return;
    };
    let finding = out.report(path().item(0));
    if tools.no_powershell {
        finding.remedy(
            "start cmd.exe with the command as arguments, or a program of the image by its full Windows path; Nano \
             Server has no PowerShell",
        );
    } else if tools.is_nano_server {
        finding.remedy(
            "start cmd.exe, or pwsh.exe if the image has it, with the command as arguments, or use the full Windows \
             path of a program",
        );
    }
    let text = shown(first);
    match problem {
        CommandProblem::Unix => _ = finding.message(format!("{text} is a Unix program")),
        CommandProblem::Script => _ = finding.message(format!("{text} is a script for a Unix shell")),
        CommandProblem::Interpreted(start) => {
            finding
                .message(format!(
                    "\"{text}\" is not a program, and Windows does not start its interpreter"
                ))
                .remedy(format!("write {}", start.replace("FILE", &text)));
        }
        CommandProblem::Builtin => {
            finding
                .message(format!("{text} is a built-in command of cmd.exe, not a program"))
                .remedy(format!("write [cmd.exe, /c, {text}, …]"));
        }
        CommandProblem::Cmdlet => {
            finding.message(format!("{text} is a command of PowerShell, not a program"));
            if !tools.is_nano_server {
                finding.remedy(format!("write [powershell.exe, -Command, {text} …]"));
            }
        }
        CommandProblem::NoPowerShell => {
            finding
                .message(format!("the image has no PowerShell, so {text} does not start"))
                .remedy("use cmd.exe, or an image with PowerShell, as those based on Server Core");
        }
        CommandProblem::Line => {
            finding
                .message(format!(
                    "\"{text}\" is a whole command line, but the first item must be a program"
                ))
                .remedy("make each word a separate item, or start a shell: [cmd.exe, /c, …]");
        }
    }
}

/// Whether a program is PowerShell, with or without a path.
fn is_powershell(program: &str) -> bool {
    let name = program.trim().rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    matches!(name.strip_suffix(".exe").unwrap_or(&name), "powershell" | "pwsh")
}

/// Why Windows does not start a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommandProblem {
    Unix,
    Script,
    /// The beginning of a command that starts such a file.
    Interpreted(&'static str),
    Builtin,
    Cmdlet,
    NoPowerShell,
    Line,
}

/// Folders of Unix programs.
const FOLDERS: [&str; 6] = [
    "/bin/",
    "/sbin/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/local/bin/",
    "/usr/local/sbin/",
];

/// Extensions of files that Windows starts.
const STARTED: [&str; 4] = ["exe", "com", "cmd", "bat"];

/// Extensions of files that only an interpreter can run, and how to start it.
const INTERPRETED: [(&str, &str); 12] = [
    ("ps1", "[powershell.exe, -File, FILE]"),
    ("psm1", "[powershell.exe, -Command, Import-Module FILE]"),
    ("vbs", "[cscript.exe, FILE]"),
    ("wsf", "[cscript.exe, FILE]"),
    ("py", "[python.exe, FILE]"),
    ("rb", "[ruby.exe, FILE]"),
    ("pl", "[perl.exe, FILE]"),
    ("php", "[php.exe, FILE]"),
    ("js", "[node.exe, FILE]"),
    ("jar", "[java.exe, -jar, FILE]"),
    ("dll", "[dotnet.exe, FILE]"),
    ("msi", "[msiexec.exe, /i, FILE]"),
];

/// The extension of the last part of a path, in lower case; empty if it has none.
fn extension(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    name.rsplit_once('.')
        .filter(|(stem, _)| !stem.is_empty())
        .map(|(_, extension)| extension.to_ascii_lowercase())
        .unwrap_or_default()
}

/// Unix programs that manifests use and that do not exist on Windows under the same name.
static UNIX: &[&str] = &[
    "[",
    "apk",
    "apt-get",
    "ash",
    "awk",
    "base64",
    "basename",
    "bash",
    "cat",
    "chgrp",
    "chmod",
    "chown",
    "chroot",
    "cp",
    "cut",
    "dash",
    "dd",
    "df",
    "dirname",
    "du",
    "dumb-init",
    "env",
    "false",
    "flock",
    "gosu",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "id",
    "ip",
    "iptables",
    "kill",
    "killall",
    "ksh",
    "ln",
    "ls",
    "mknod",
    "mktemp",
    "modprobe",
    "mount",
    "mv",
    "nc",
    "nohup",
    "nsenter",
    "pgrep",
    "pidof",
    "pkill",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "rm",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "stat",
    "su",
    "su-exec",
    "sudo",
    "sysctl",
    "tail",
    "tee",
    "test",
    "tini",
    "touch",
    "tr",
    "true",
    "umount",
    "uname",
    "unzip",
    "wc",
    "wget",
    "which",
    "xargs",
    "yum",
    "zsh",
];

/// Built-in commands of cmd.exe whose names are unlikely to be programs of an image.
static BUILTINS: &[&str] = &[
    "cd", "chdir", "copy", "date", "del", "dir", "echo", "erase", "exit", "for", "if", "md", "mkdir",
    "mklink", "move", "pushd", "rd", "ren", "rename", "rmdir", "set", "type",
];

/// Those of them that are programs of busybox.
static BUILTINS_OF_BUSYBOX: &[&str] = &["date", "echo", "mkdir", "rmdir"];

/// Commands of PowerShell that manifests use.
static CMDLETS: &[&str] = &[
    "copy-item",
    "get-childitem",
    "get-content",
    "get-date",
    "get-eventlog",
    "get-item",
    "get-process",
    "get-service",
    "invoke-command",
    "invoke-expression",
    "invoke-restmethod",
    "invoke-webrequest",
    "move-item",
    "new-item",
    "out-file",
    "remove-item",
    "rename-item",
    "resolve-dnsname",
    "restart-service",
    "set-content",
    "set-item",
    "set-itemproperty",
    "set-location",
    "start-process",
    "start-service",
    "start-sleep",
    "stop-process",
    "stop-service",
    "test-connection",
    "test-netconnection",
    "test-path",
    "wait-event",
    "wait-process",
    "write-host",
    "write-output",
];

/// Programs that start a command line, in addition to those above and every name that ends in `.exe`. A path is not
/// compared with them: its first word may be the beginning of a folder (`C:\net tools\a.exe`).
static LAUNCHERS: &[&str] = &[
    "certutil",
    "cmd",
    "cscript",
    "curl",
    "dotnet",
    "findstr",
    "icacls",
    "ipconfig",
    "java",
    "msiexec",
    "net",
    "netsh",
    "node",
    "npm",
    "npx",
    "perl",
    "php",
    "ping",
    "powershell",
    "pwsh",
    "python",
    "python3",
    "reg",
    "robocopy",
    "ruby",
    "sc",
    "tar",
    "taskkill",
    "tasklist",
    "timeout",
    "wscript",
    "xcopy",
];

impl CommandProblem {
    fn of(program: &str) -> Option<CommandProblem> {
        let program = program.trim();
        if let Some((word, rest)) = program.split_once(char::is_whitespace) {
            // A path may contain spaces; then its first word is not a program, and text follows the `.exe` of its last.
            let known = CommandProblem::of_word(word).is_some() || starts_a_line(word);
            let is_line = known && !rest.trim_start().is_empty() || goes_on_after_exe(program);
            return is_line.then_some(CommandProblem::Line);
        }
        CommandProblem::of_word(program)
    }

    fn of_word(program: &str) -> Option<CommandProblem> {
        let extension = extension(program);
        // The folder may exist in a Windows image, too.
        let is_windows_program = || STARTED.iter().any(|known| extension == *known);
        let in_unix_folder = FOLDERS.iter().any(|folder| program.starts_with(folder));
        if let Some((_, start)) = INTERPRETED.iter().find(|(known, _)| extension == *known) {
            Some(CommandProblem::Interpreted(start))
        } else if in_unix_folder && !is_windows_program() || UNIX.contains(&program) {
            Some(CommandProblem::Unix)
        } else if is_in(BUILTINS, program) {
            Some(CommandProblem::Builtin)
        } else if is_in(CMDLETS, program) {
            Some(CommandProblem::Cmdlet)
        } else {
            // Extensions are case-sensitive on Unix.
            let name = program.strip_suffix(".sh");
            name.filter(|name| !name.is_empty())
                .map(|_| CommandProblem::Script)
        }
    }
}

/// Whether text follows the path of a program that ends in `.exe`, in quotes or not.
fn goes_on_after_exe(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    [".exe ", ".exe\t", ".exe\" ", ".exe' "]
        .iter()
        .any(|end| lower.contains(end))
}

/// Whether a word is a program that arguments can follow.
fn starts_a_line(word: &str) -> bool {
    let is_exe = word
        .len()
        .checked_sub(4)
        .and_then(|at| word.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(".exe"));
    is_exe || is_in(LAUNCHERS, word)
}

/// Whether a word is in a list; Windows ignores the case of names.
fn is_in(words: &[&str], word: &str) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}
