"use strict";
// A live report: each state of the run replaces the one before, and what the reader opened stays open.
(() => {
  const says = document.getElementById("live"), main = document.querySelector("main");
  const say = (words) => { says.textContent = ` · ${words}`; says.hidden = false; };
  const nameOf = (details) => `${details.closest("[id]").id}/${details.querySelector("summary").textContent}`;
  const source = new EventSource("events");

  source.addEventListener("state", (event) => {
    const made = JSON.parse(event.data);
    const open = new Map([...main.querySelectorAll("details")].map((one) => [nameOf(one), one.open]));
    const focused = document.activeElement && document.activeElement.id, height = scrollY;
    document.title = made.title;
    main.innerHTML = made.body;  // of our own templates, which escape what is foreign; no script in it can run
    document.getElementById("data").textContent = made.data;
    for (const one of main.querySelectorAll("details")) one.open = open.get(nameOf(one)) ?? one.open;
    dispatchEvent(new Event("stallguard:changed"));
    if (focused && main.querySelector(`#${focused}`)) document.getElementById(focused).focus({ preventScroll: true });
    scrollTo({ top: height, behavior: "instant" });
    say("live");
  });
  source.addEventListener("over", () => { source.close(); say("the run is over"); });
  source.addEventListener("closed", () => { source.close(); say("closed: this page is not renewed any more"); });
  source.addEventListener("error", () => { source.close(); say("the connection is lost: this page is not renewed any more"); });
  addEventListener("pagehide", () => source.close());
})();
