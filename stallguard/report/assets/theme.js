"use strict";
// Before the first paint: the theme that was chosen last time, if this place may remember anything.
(() => {
  try {
    const chosen = localStorage.getItem("stallguard-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* a file in a mail may have no storage */ }
  document.documentElement.classList.add("alive");
})();
