// What a page does beyond itself: ages that go on, pages that stay new, keys. All works without it.
"use strict";

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function ago(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const at = units.findIndex(([size]) => seconds >= size);
  if (at < 0) return "0 s ago";
  const [size, unit] = units[at];
  const rest = at < units.length - 1 ? Math.floor((seconds % size) / units[at + 1][0]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${units[at + 1][1]}` : ""} ago`;
}

function age() {
  for (const one of document.querySelectorAll("time[data-ago]")) {
    one.textContent = ago(Date.now() - Number(one.dataset.ago));
  }
}
setInterval(age, 1000);

// A page that says so is fetched again every few seconds, while it is looked at and not worked in.
const main = document.getElementById("main");
const every = Number(main.dataset.live || 0);
if (every) {
  setInterval(async () => {
    const busy = document.hidden || main.contains(document.activeElement) && document.activeElement !== main;
    if (busy || String(getSelection())) return;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = found.getElementById("main");
      if (next) main.replaceChildren(...next.childNodes);
      age();
    } catch { /* the server is away: the page stays as it is */ }
  }, every * 1000);
}

// In a drawing, what a thing is connected with stands out.
for (const node of document.querySelectorAll("[data-node]")) {
  const mark = (on) => {
    for (const line of document.querySelectorAll(".edges path")) {
      const near = line.dataset.from === node.dataset.node || line.dataset.to === node.dataset.node;
      line.classList.toggle("near", on && near);
    }
  };
  for (const [event, on] of [["mouseenter", true], ["mouseleave", false], ["focus", true], ["blur", false]]) {
    node.addEventListener(event, () => mark(on));
  }
}

// "/" searches; "g" and a letter go to a page.
const pages = { o: "", l: "lineage", v: "views", s: "relations", f: "features", c: "consistency", t: "ticks" };
let went = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find").focus();
  } else if (event.key === "g") {
    went = Date.now();
  } else if (Date.now() - went < 1500 && event.key in pages) {
    location.href = `/console/${pages[event.key]}`;
  }
});
