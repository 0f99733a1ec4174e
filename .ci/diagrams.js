// Draws the Mermaid diagrams of a page, which GitHub draws itself. Mermaid is loaded only if the page has one.
(() => {
  const codes = [...document.querySelectorAll("code.language-mermaid")];
  if (!codes.length) return;
  for (const code of codes) {
    const drawing = document.createElement("pre");
    drawing.className = "mermaid";
    drawing.style.overflowX = "auto";
    drawing.textContent = code.textContent;
    // The block of code has a button to copy it.
    code.closest("pre").replaceWith(drawing);
  }
  const isDark = ["ayu", "coal", "navy"].some((theme) => document.documentElement.classList.contains(theme));
  const script = document.createElement("script");
  script.src = `${path_to_root}mermaid.min.js`;
  script.onload = async () => {
    mermaid.initialize({ startOnLoad: false, theme: isDark ? "dark" : "default" });
    await mermaid.run();
    // On a phone, a wide diagram scrolls, so that its words stay readable.
    for (const svg of document.querySelectorAll(".mermaid svg")) svg.style.minWidth = `min(${svg.style.maxWidth}, 40rem)`;
  };
  document.head.append(script);
})();
