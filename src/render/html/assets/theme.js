"use strict";
try {
  const chosen = localStorage.getItem("transom-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* A browser may refuse storage to files. */ }
