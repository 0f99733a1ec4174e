"use strict";
const byId = (id) => document.getElementById(id);
const text = byId("text"), gutter = byId("gutter"), findings = byId("findings"), status = byId("status");

// The module: a request is written into its memory, and the answer is read from there.
let module, functions;
const instantiate = () => { functions = new WebAssembly.Instance(module, {}).exports; };
const load = async () => {
  const packed = Uint8Array.from(atob(byId("module").textContent), (character) => character.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  module = await WebAssembly.compile(await new Response(unpacked).arrayBuffer());
  instantiate();
};
const call = (request) => {
  const bytes = new TextEncoder().encode(JSON.stringify(request));
  try {
    const at = functions.request_buffer(bytes.length);
    new Uint8Array(functions.memory.buffer, at, bytes.length).set(bytes);
    const length = functions.answer_request();
    const answer = new Uint8Array(functions.memory.buffer, functions.answer_buffer(), length);
    return JSON.parse(new TextDecoder().decode(answer));
  } catch (error) {
    // After a panic the memory of the module cannot be trusted.
    instantiate();
    throw error;
  }
};

const settings = () => ({
  text: text.value,
  today: new Date().toISOString().slice(0, 10),
  mode: byId("mode").value,
  kubernetes: Number(byId("kubernetes").value),
  forWindows: byId("windows").checked,
  placement: byId("placement").checked,
});

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;

// What the severity of a line is: the gutter shows the worst.
const WEIGHT = { error: 4, warning: 3, advice: 2, resolved: 1 };
const isResolved = (finding) => finding.resolvedBy !== null;
const lineHeight = () => parseFloat(getComputedStyle(text).lineHeight);

// Only marked lines are elements, because each element costs time in a long manifest.
const showGutter = (marks) => {
  const count = text.value.split("\n").length;
  const lines = [];
  let plain = "";
  for (let line = 1; line <= count; line++) {
    const severity = marks.get(line);
    if (severity === undefined) {
      plain += `${line}\n`;
    } else {
      lines.push(plain, element("span", { textContent: line, className: severity }));
      plain = "";
    }
  }
  gutter.replaceChildren(...lines, plain);
  text.rows = count;
  // The scroll bar of long lines must not hide the last line.
  text.style.height = `${count * lineHeight() + 32}px`;
};

const goTo = (line, column) => {
  const before = text.value.split("\n").slice(0, line - 1).join("\n");
  const start = line > 1 ? before.length + 1 : 0;
  const end = text.value.indexOf("\n", start);
  text.focus({ preventScroll: true });
  text.setSelectionRange(start + column - 1, end < 0 ? text.value.length : end);
  const top = (line - 1) * lineHeight();
  for (const scroller of [byId("editor"), byId("code")]) {
    if (scroller.scrollHeight > scroller.clientHeight) scroller.scrollTop = Math.max(0, top - scroller.clientHeight / 3);
  }
  text.scrollIntoView({ block: "nearest" });
};

// The text of a card; cards with the same text are equally high.
const looks = new WeakMap();

// Cards stand at their lines; one that has no space follows the one before it.
const placeFindings = () => {
  const cards = [...findings.children];
  const samples = new Map();
  const like = cards.map((card) => {
    const look = card.querySelector("details[open]") ? card : looks.get(card);
    if (!samples.has(look)) samples.set(look, card);
    return look;
  });
  // The browser lays out one card of each look, and the others when they are near the screen.
  cards.forEach((card, index) => card.classList.toggle("alike", samples.get(like[index]) !== card));
  // All are measured before one moves, so that the browser computes the layout once.
  const height = lineHeight(), code = byId("code").offsetHeight;
  const heights = new Map([...samples].map(([look, card]) => [look, card.offsetHeight]));
  let bottom = 0;
  cards.forEach((card, index) => {
    const top = Math.max(8 + (card.dataset.line - 1) * height, bottom + 6);
    card.style.top = `${top}px`;
    card.style.setProperty("--height", `${heights.get(like[index])}px`);
    bottom = top + heights.get(like[index]);
  });
  findings.style.height = `${Math.max(bottom + 8, code)}px`;
};

const EFFECTS = { Deny: "denies the object", Warn: "kubectl shows a warning", Audit: "is recorded only", Disabled: "has no effect" };
const effectOf = (finding) => {
  if (finding.resolvedBy === "placement") return "Admission fixes it: placement adds what is missing.";
  if (finding.resolvedBy !== null) return "Admission fixes it: it removes the field.";
  const reason = finding.actionReason ? ` (${finding.actionReason})` : "";
  return `In this mode it ${EFFECTS[finding.action]}${reason}.`;
};

const findingCard = (finding) => {
  const kind = isResolved(finding) ? "resolved" : finding.severity;
  const card = element("li", { className: `finding ${kind}` });
  card.dataset.line = finding.line;
  const rule = element("a", { href: `${document.body.dataset.rules}${finding.id.toLowerCase()}.html`, textContent: `${finding.id} ${finding.rule}` });
  const go = element("button", { type: "button", className: "go", textContent: `line ${finding.line}` });
  go.addEventListener("click", () => goTo(finding.line, finding.column));
  const why = element("details", {}, element("summary", { textContent: "Why" }));
  why.addEventListener("toggle", () => {
    // Made when someone reads it.
    if (why.children.length === 1) {
      why.append(element("p", {}, element("code", { textContent: finding.path })), element("p", { textContent: finding.why }),
        element("p", { className: "effect", textContent: effectOf(finding) }));
    }
    placeFindings();
  });
  const label = isResolved(finding) ? "fixed by admission" : finding.severity;
  card.append(
    element("p", { className: "head" }, element("b", { textContent: label }), rule, go),
    element("p", { textContent: `${finding.message}; ${finding.remedy}` }),
    why);
  looks.set(card, [kind, finding.rule, String(finding.line).length, finding.message, finding.remedy].join("\n"));
  return card;
};
const problemCard = (severity, problem) => {
  const card = element("li", { className: `finding ${severity}` });
  card.dataset.line = Math.max(1, problem.line);
  const go = element("button", { type: "button", className: "go", textContent: `line ${card.dataset.line}` });
  go.addEventListener("click", () => goTo(Number(card.dataset.line), 1));
  const label = severity === "error" ? "cannot be read" : "note";
  card.append(element("p", { className: "head" }, element("b", { textContent: label }), go), element("p", { textContent: problem.message }));
  looks.set(card, card);
  return card;
};

const showFindings = (answer) => {
  const all = answer.objects.flatMap((object) => object.findings);
  const problems = [...answer.errors.map((error) => ["error", error]), ...answer.notes.map((note) => ["advice", note])];
  const cards = [...all.map((finding) => [finding.line, findingCard(finding)]),
    ...problems.map(([severity, problem]) => [Math.max(1, problem.line), problemCard(severity, problem)])];
  cards.sort((a, b) => a[0] - b[0]);
  const marks = new Map();
  const mark = (line, severity) => {
    if ((WEIGHT[severity] ?? 0) > (WEIGHT[marks.get(line)] ?? 0)) marks.set(line, severity);
  };
  all.forEach((finding) => mark(finding.line, isResolved(finding) ? "resolved" : finding.severity));
  problems.forEach(([severity, problem]) => mark(Math.max(1, problem.line), severity));
  showGutter(marks);
  findings.replaceChildren(...cards.map(([, card]) => card));
  placeFindings();
};

const showStatus = (answer, milliseconds) => {
  const open = answer.objects.flatMap((object) => object.findings).filter((finding) => !isResolved(finding));
  const count = (severity) => open.filter((finding) => finding.severity === severity).length;
  const denied = answer.objects.filter((object) => object.decision === "deny");
  const parts = [];
  const add = (number, className, one, many) => {
    if (number) parts.push(element("span", { className, textContent: plural(number, one, many) }));
  };
  add(answer.errors.length, "error", "part cannot be read", "parts cannot be read");
  add(count("error"), "error", "error", "errors");
  add(count("warning"), "warning", "warning", "warnings");
  add(count("advice"), "advice", "advice", "advice");
  if (!parts.length) parts.push(element("span", { className: "ok", textContent: "No findings" }));
  const more = denied.length > 3 ? ` and ${denied.length - 3} more` : "";
  const decision = denied.length ? `admission denies ${denied.slice(0, 3).map((object) => object.title).join(", ")}${more}`
    : answer.objects.length ? "admission denies nothing" : "there is nothing to evaluate";
  const unknown = answer.objects.some((object) => object.verdict === "Unknown") ? "; whether pods are for Windows is not known: select it above" : "";
  const line = parts.flatMap((part, index) => (index ? [", ", part] : [part]));
  status.replaceChildren(...line, "; ", decision, unknown, element("span", { className: "quiet", textContent: ` (${milliseconds.toFixed(0)} ms)` }));
};

const DECISIONS = { allow: "allow", deny: "deny", "would-deny": "allow; Enforce would deny", patch: "allow with changes", skip: "not reviewed" };
const showObjects = (answer) => {
  const rows = answer.objects.map((object) => {
    const evidence = object.evidence.map((sign) => sign.path).join(", ");
    const decision = object.notReviewed ? `not reviewed: ${object.notReviewed}` : DECISIONS[object.decision];
    const suppressed = object.suppressed ? ` (${plural(object.suppressed, "finding is", "findings are")} suppressed)` : "";
    return element("tr", {}, element("th", { scope: "row", textContent: object.title }), element("td", { textContent: object.verdict ?? "" }),
      element("td", {}, element("code", { textContent: evidence })), element("td", { className: object.decision, textContent: decision + suppressed }));
  });
  byId("objects").tBodies[0].replaceChildren(...rows);
  byId("skipped").hidden = !answer.skipped.length;
  byId("skipped").textContent = `Not evaluated, because the pods of these kinds are not known: ${answer.skipped.join(", ")}.`;
};

let fixed = null;
const showFix = (answer) => {
  fixed = answer.fixed.text;
  byId("take").disabled = fixed === null;
  const lines = answer.fixed.diff.split("\n").slice(2, -1).map((line) => {
    const className = { "+": "added", "-": "removed", "@": "hunk" }[line[0]] ?? "";
    return element("span", { className, textContent: line });
  });
  byId("diff").replaceChildren(...(lines.length ? lines : ["Nothing to change."]));
  const left = answer.fixed.objects.flatMap((object) => object.remaining);
  byId("left").hidden = !left.length;
  byId("left").querySelector("summary").textContent = `${plural(left.length, "finding is", "findings are")} left, and why`;
  byId("left").querySelector("ul").replaceChildren(...left.map((finding) =>
    element("li", {}, element("code", { textContent: finding.path }), `: ${finding.reason} [${finding.id} ${finding.rule}]`)));
};

const showPatches = (answer) => {
  const shown = [];
  for (const object of answer.objects) {
    const patch = object.podPatch ?? object.patch;
    if (!patch.length) continue;
    const what = object.podPatch ? `Admission does not change ${object.title}. It changes each pod that is created from its template:` : `${object.title}:`;
    shown.push(element("p", { textContent: what }),
      element("pre", { className: "patch", tabIndex: 0, textContent: `[\n${patch.map((one) => `  ${JSON.stringify(one)}`).join(",\n")}\n]` }));
  }
  byId("patches").replaceChildren(...(shown.length ? shown : [element("p", { textContent: "Admission would change nothing." })]));
};

const check = () => {
  const begun = performance.now();
  let answer;
  try {
    answer = call(settings());
  } catch (error) {
    status.replaceChildren(element("span", { className: "error", textContent: `This manifest cannot be evaluated (${error.message}). Please report it.` }));
    return;
  }
  const milliseconds = performance.now() - begun;
  showFindings(answer);
  showObjects(answer);
  showFix(answer);
  showPatches(answer);
  // Last, so that the rest is complete when the status changes.
  showStatus(answer, milliseconds);
  document.body.dataset.milliseconds = milliseconds.toFixed(1);
};
let waiting;
const checkSoon = () => {
  clearTimeout(waiting);
  waiting = setTimeout(check, 150);
};

// A link has the manifest and the settings in its fragment, which browsers do not send to the server.
const stream = async (bytes, transform) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(transform)).arrayBuffer());
const toFragment = async () => {
  const state = new TextEncoder().encode(JSON.stringify({ ...settings(), today: undefined }));
  const packed = await stream(state, new CompressionStream("deflate-raw"));
  let characters = "";
  packed.forEach((byte) => { characters += String.fromCharCode(byte); });
  return `#m=${btoa(characters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
};
const fromFragment = async () => {
  if (!location.hash.startsWith("#m=")) return false;
  try {
    const packed = Uint8Array.from(atob(location.hash.slice(3).replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(await stream(packed, new DecompressionStream("deflate-raw"))));
    text.value = String(state.text);
    for (const id of ["mode", "kubernetes"]) if ([...byId(id).options].some((option) => option.value === String(state[id]))) byId(id).value = state[id];
    byId("windows").checked = state.forWindows === true;
    byId("placement").checked = state.placement === true;
    byId("example").value = "";
    return true;
  } catch {
    return false;
  }
};

const replaceText = (value) => {
  text.focus({ preventScroll: true });
  text.select();
  // Unlike an assignment, this can be undone by Ctrl+Z.
  if (!document.execCommand("insertText", false, value)) text.value = value;
  text.setSelectionRange(0, 0);
  check();
};

const start = async () => {
  await load();
  const known = call({ today: "2000-01-01", mode: "Enforce", kubernetes: 0, forWindows: false, placement: false });
  const example = byId("example");
  example.append(element("option", { value: "", textContent: "Your manifest", hidden: true }));
  known.examples.forEach(({ title }, index) => example.append(element("option", { value: index, textContent: title })));
  for (let minor = known.kubernetes; minor >= 20; minor--) byId("kubernetes").append(element("option", { value: minor, textContent: `1.${minor}` }));
  if (!await fromFragment()) {
    example.value = "0";
    text.value = known.examples[0].text;
  }
  example.addEventListener("change", () => {
    text.value = known.examples[Number(example.value)].text;
    check();
  });
  text.addEventListener("input", () => {
    example.value = "";
    checkSoon();
  });
  for (const id of ["mode", "kubernetes", "windows", "placement"]) byId(id).addEventListener("change", check);
  byId("settings").addEventListener("submit", (event) => event.preventDefault());
  byId("take").addEventListener("click", () => { if (fixed !== null) replaceText(fixed); });
  byId("link").addEventListener("click", async () => {
    history.replaceState(null, "", await toFragment());
    let done = "The link is in the address bar";
    try {
      await navigator.clipboard.writeText(location.href);
      done = "Copied";
    } catch { /* Without permission, the address bar has it. */ }
    byId("link").textContent = done;
    setTimeout(() => { byId("link").textContent = "Copy link"; }, 2000);
  });
  window.addEventListener("hashchange", async () => { if (await fromFragment()) check(); });
  window.addEventListener("resize", placeFindings);
  check();
};
start().catch((error) => {
  status.replaceChildren(element("span", { className: "error", textContent: `This browser cannot run the checks: ${error.message}` }));
});
