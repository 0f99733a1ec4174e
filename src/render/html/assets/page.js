"use strict";
(() => {
  const root = document.documentElement;
  const find = (id) => document.getElementById(id);

  // The theme: what the system wants, until a person chooses.
  const theme = find("theme");
  const themes = ["system", "light", "dark"];
  const worn = () => root.dataset.theme ?? "system";
  const wear = (name) => {
    if (name === "system") delete root.dataset.theme;
    else root.dataset.theme = name;
    try {
      localStorage.setItem("transom-theme", name);
    } catch { /* A browser may refuse storage to files. */ }
    theme.textContent = `Theme: ${name}`;
  };
  theme.textContent = `Theme: ${worn()}`;
  theme.hidden = false;
  theme.addEventListener("click", () => wear(themes[(themes.indexOf(worn()) + 1) % themes.length]));

  // Every header that sorts holds a button: tablesort listens on the header, a keyboard and a screen reader know the button.
  const sorted = find("sorted");
  for (const table of document.querySelectorAll("table[data-sorts]")) {
    new Tablesort(table);
    for (const header of table.tHead.rows[0].cells) {
      if (header.dataset.sortMethod === "none") continue;
      header.removeAttribute("tabindex");
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
    }
    table.addEventListener("afterSort", () => {
      const header = table.querySelector("th[aria-sort]");
      if (sorted) sorted.textContent = `Sorted by ${header.textContent}, ${header.ariaSort}`;
      if (table.id === "owners") remember();
    });
  }

  // The filters of the workloads. The address keeps them, so that a link shows what its sender saw.
  const form = find("filter");
  if (!form) return;
  const owners = find("owners");
  const rows = [...owners.tBodies[0].rows];
  const count = find("count");
  const fields = ["q", "ns", "outcome", "severity", "rule"];
  const texts = new WeakMap();
  const text = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const value = (name) => form.elements[name].value;

  const apply = () => {
    const words = value("q").toLowerCase().split(/\s+/).filter(Boolean);
    const [ns, outcome, severity, rule] = fields.slice(1).map(value);
    let shown = 0;
    for (const row of rows) {
      const { ns: itsNs, outcome: itsOutcome, severity: itsSeverity, rule: itsRules } = row.dataset;
      const fits =
        (!ns || itsNs === ns) &&
        (!outcome || itsOutcome === outcome) &&
        (!severity || itsSeverity === severity) &&
        (!rule || itsRules.split(" ").includes(rule)) &&
        words.every((word) => text(row).includes(word));
      if (row.hidden === fits) row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} workload${rows.length === 1 ? "" : "s"}`;
  };

  const remember = () => {
    const said = new URLSearchParams();
    for (const name of fields) if (value(name)) said.set(name, value(name));
    const header = owners.querySelector("th[aria-sort]");
    if (header) {
      said.set("sort", header.dataset.key);
      if (header.ariaSort === "descending") said.set("dir", "desc");
    }
    const here = location.href.split("#")[0];
    history.replaceState(null, "", said.size ? `${here}#${said}` : here);
  };

  const sort = (key, direction) => {
    const header = [...owners.tHead.rows[0].cells].find((cell) => cell.dataset.key === key);
    for (let turn = 0; header && header.ariaSort !== direction && turn < 2; turn += 1) header.click();
  };

  // An address without `=` names a section: the filters stay.
  const recall = (jump) => {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) return;
    const said = new URLSearchParams(hash);
    for (const name of fields) {
      const field = form.elements[name];
      field.value = said.get(name) ?? "";
      if (field.selectedIndex === -1) field.value = "";
    }
    apply();
    if (said.has("sort")) sort(said.get("sort"), said.has("dir") ? "descending" : "ascending");
    if (jump && hash) {
      const title = find("workloads-title");
      title.scrollIntoView();
      title.focus({ preventScroll: true });
    }
  };

  for (const link of document.querySelectorAll("a[data-rule], a[data-ns]")) {
    const said = new URLSearchParams();
    for (const name of ["ns", "rule"]) if (link.dataset[name]) said.set(name, link.dataset[name]);
    link.hash = said;
  }

  let waiting;
  const change = (patience) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      apply();
      remember();
    }, patience);
  };
  form.addEventListener("input", (event) => change(event.target.name === "q" ? 120 : 0));
  form.addEventListener("reset", () => change(0));
  form.addEventListener("submit", (event) => event.preventDefault());

  const details = () => rows.filter((row) => !row.hidden).map((row) => row.querySelector("details"));
  const open = find("open");
  open.addEventListener("click", () => {
    const wanted = open.getAttribute("aria-pressed") !== "true";
    open.setAttribute("aria-pressed", wanted);
    for (const each of details()) each.open = wanted;
  });

  // Paper has no details to open.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.more"), ...details()].filter((each) => !each.open);
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });

  form.hidden = false;
  addEventListener("hashchange", () => recall(true));
  recall(false);
})();
