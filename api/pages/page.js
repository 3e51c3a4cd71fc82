"use strict";
// Everything is on the page without this script: it renews the page, filters rows and adds keys.
(() => {
  const root = document.documentElement;
  const kept = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem("koord." + name);
      localStorage.setItem("koord." + name, value);
    } catch { /* storage may be forbidden */ }
    return value;
  };
  const theme = kept("theme");
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;

  let paused = false, failures = 0;
  const state = document.getElementById("state");
  const filter = document.getElementById("filter");
  const rows = () => [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden);

  const narrow = () => {
    const wanted = filter.value.toLowerCase();
    for (const row of document.querySelectorAll("table.filtered tbody tr"))
      row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
  };

  const say = (text) => { state.textContent = text; };

  const renew = async () => {
    if (paused || document.hidden) return;
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      const active = document.activeElement;
      const place = active && active.closest("tbody tr") ? active.dataset.key : null;
      for (const name of ["live", "facts"])
        document.getElementById(name).replaceChildren(...next.getElementById(name).childNodes);
      narrow();
      if (place) [...document.querySelectorAll("tr[data-key]")].find((row) => row.dataset.key === place)?.focus();
      failures = 0;
      say("live");
    } catch {
      failures += 1;
      say("no answer");
    }
  };
  const again = () => setTimeout(() => renew().finally(again), Math.min(2000 * 2 ** failures, 30000));

  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement.closest?.("tbody tr"));
    const to = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + step))];
    to.focus();
    to.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    "/": () => filter.focus(),
    p: () => { paused = !paused; say(paused ? "paused" : "live"); },
    t: () => {
      const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
      root.dataset.theme = kept("theme", dark ? "light" : "dark");
    },
    "?": () => document.getElementById("keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === filter) {
      if (event.key === "Escape") { filter.value = ""; narrow(); filter.blur(); }
      return;
    }
    const action = keys[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  filter.addEventListener("input", narrow);
  filter.hidden = false;
  say("live");
  again();
})();
