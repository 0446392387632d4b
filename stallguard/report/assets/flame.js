"use strict";
// Flame graphs: the call under the pointer is described; a selected call is enlarged to the whole width.
(() => {
  const LETTER = 7.3, SHORTEST = 4;  // pixels of a letter; letters that are worth showing

  const enliven = (figure) => {
    const picture = figure.querySelector("svg");
    const output = figure.querySelector("output"), all = figure.querySelector("button");
    const bars = [...picture.children].map((element, index) => ({
      element, index, parent: Number(element.dataset.parent),
      left: parseFloat(element.getAttribute("x")), width: parseFloat(element.getAttribute("width")),
      words: element.getAttribute("aria-label"), children: [],
    }));
    if (!bars.length) return;
    for (const bar of bars) if (bar.parent >= 0) bars[bar.parent].children.push(bar.index);
    let enlarged = bars[0], current = bars[0];

    const describe = (bar) => { output.textContent = bar ? bar.words : ""; };
    const legible = () => {
      const pixels = picture.clientWidth / 100;
      for (const bar of bars) {
        const shown = parseFloat(bar.element.getAttribute("width")) * pixels;
        bar.element.classList.toggle("narrow", shown < LETTER * SHORTEST);
      }
    };
    // Of the selected call, its callers are as wide as it is, what it calls grows with it, and the others are hidden.
    const enlarge = (bar) => {
      enlarged = bar;
      const callers = new Set();
      for (let at = bar.parent; at >= 0; at = bars[at].parent) callers.add(at);
      const inside = new Set([bar.index]);
      for (const one of bars) {
        if (inside.has(one.parent)) inside.add(one.index);
        const shown = inside.has(one.index), above = callers.has(one.index);
        one.element.classList.toggle("hidden", !shown && !above);
        one.element.classList.toggle("above", above);
        if (!shown && !above) continue;
        const scale = above ? 0 : 100 / Math.max(bar.width, 1e-9);
        one.element.setAttribute("x", above ? "0%" : `${(one.left - bar.left) * scale}%`);
        one.element.setAttribute("width", above ? "100%" : `${one.width * scale}%`);
      }
      all.hidden = bar === bars[0];
      legible();
    };
    const focus = (bar, move) => {
      current.element.setAttribute("tabindex", "-1");
      current = bar;
      bar.element.setAttribute("tabindex", "0");
      if (move) bar.element.focus({ preventScroll: false });
      describe(bar);
    };
    const select = (bar) => enlarge(bar === enlarged ? bars[0] : bar);
    const shown = (index) => index >= 0 && !bars[index].element.classList.contains("hidden");
    const beside = (bar, step) => {
      const row = bar.parent < 0 ? [bar.index] : bars[bar.parent].children.filter(shown);
      return row[row.indexOf(bar.index) + step];
    };
    const barOf = (event) => bars[[...picture.children].indexOf(event.target.closest("[data-parent]"))];

    for (const bar of bars) bar.element.setAttribute("tabindex", bar === current ? "0" : "-1");
    picture.addEventListener("pointerover", (event) => describe(barOf(event)));
    picture.addEventListener("pointerleave", () => describe(null));
    picture.addEventListener("click", (event) => {
      const bar = barOf(event);
      if (!bar) return;
      focus(bar, false);
      select(bar);
    });
    picture.addEventListener("focusin", (event) => { const bar = barOf(event); if (bar) focus(bar, false); });
    picture.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const steps = {
        ArrowUp: () => current.parent, ArrowDown: () => current.children.find(shown),
        ArrowLeft: () => beside(current, -1), ArrowRight: () => beside(current, 1),
      };
      if (event.key in steps) {
        const next = steps[event.key]();
        if (next !== undefined && next >= 0) focus(bars[next], true);
      } else if (event.key === "Enter" || event.key === " ") select(current);
      else if (event.key === "Escape") enlarge(bars[0]);
      else return;
      event.preventDefault();
    });
    all.addEventListener("click", () => {
      enlarge(bars[0]);
      focus(bars[0], true);
    });
    new ResizeObserver(legible).observe(picture);
    legible();
  };

  const mount = () => document.querySelectorAll(".flame").forEach(enliven);
  mount();
  addEventListener("stallguard:changed", mount);
})();
