// Everything here is comfort: each page works without it. Texts from the server are
// set as texts; nothing builds markup, and the content security policy would not
// let it. A page that changes takes what is fresh from the page as the server writes it.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Colours of JSON, when a payload is first looked at.
const token = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

function colour(pre) {
  if (pre.dataset.done || pre.textContent.length > 200000) return;
  pre.dataset.done = "1";
  const text = pre.textContent, parts = [];
  let at = 0;
  for (const m of text.matchAll(token)) {
    parts.push(text.slice(at, m.index));
    const span = document.createElement("span");
    const word = m[1] ?? m[3] ?? m[4];
    span.className = m[1] ? (m[2] ? "j-key" : "j-string") : m[3] ? "j-number" : "j-word";
    span.textContent = word;
    parts.push(span);
    at = m.index + word.length;
  }
  parts.push(text.slice(at));
  pre.replaceChildren(...parts);
}

document.addEventListener("toggle", (event) => {
  if (event.target.open) $$("pre.json", event.target).forEach(colour);
}, true);
$$("pre.json.whole").forEach(colour);

// Ids and hashes have a button behind them that copies them.
function copies(root) {
  for (const e of $$("[data-copy]", root)) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy plain";
    button.textContent = "copy";
    button.title = "Copy the " + e.dataset.copy;
    e.after(button);
  }
}
copies(document);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
  } catch { // over HTTP the clipboard is closed to pages
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = document.execCommand("copy") ? "copied" : "selected";
  }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
});

// Forms that take a while say so.
for (const form of document.forms) {
  form.addEventListener("submit", () => {
    const button = $("button[data-busy]", form);
    if (!button) return;
    button.dataset.idle = button.textContent;
    button.textContent = button.dataset.busy;
    setTimeout(() => { button.disabled = true; });
  });
}
window.addEventListener("pageshow", () => {
  for (const button of $$("button[data-idle]")) {
    button.textContent = button.dataset.idle;
    button.disabled = false;
  }
});

// The token in the address that the program printed.
const signIn = $("#sign-in");
if (signIn && location.pathname.endsWith("/sign-in") && location.hash.length > 1) {
  $("#token").value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  signIn.submit();
}

// The event that the address names.
const events = $("#events");
if (events && !location.hash) {
  const at = events.dataset.at, row = document.getElementById("e" + at);
  if (row && row !== events.firstElementChild) {
    row.scrollIntoView({ block: "center" });
    mark(row);
  }
} else if (events) {
  const row = document.getElementById(location.hash.slice(1));
  if (row) { mark(row); const d = $("details", row); if (d) d.open = true; }
}

// Rows, walked through with the keys.
function mark(row) {
  $$(".current[data-row]").forEach((r) => r.classList.remove("current"));
  row.classList.add("current");
}

function move(step) {
  const rows = $$("[data-row]");
  if (!rows.length) return;
  const at = rows.findIndex((r) => r.classList.contains("current"));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
  mark(next);
  const target = $("summary, a[data-open]", next);
  if (target) target.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  e: () => {
    const all = $$("#events details"), open = all.some((d) => !d.open);
    all.forEach((d) => { d.open = open; });
  },
  n: () => $("a[rel=next]")?.click(),
  p: () => $("a[rel=prev]")?.click(),
  g: () => scrollTo(0, 0),
  G: () => scrollTo(0, document.body.scrollHeight),
  "/": () => { const s = $("#search"); if (s) { s.focus(); s.select(); } else $(".brand").click(); },
  r: () => $(".brand").click(),
  "?": () => help.showModal(),
};

const help = $("#keys");
const helpButton = $("#keys-button");
helpButton.hidden = false;
helpButton.addEventListener("click", () => help.showModal());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const link = $$("[data-key]").find((a) => a.dataset.key === event.key), act = keys[event.key] ?? (link && (() => link.click()));
  if (!act) return;
  event.preventDefault();
  act();
});

// A stream ends with its page, which a browser may keep for the way back: it opens only a few
// connections to a host.
function listen(address, ready) {
  let source;
  const begin = () => { source = new EventSource(address); ready(source); };
  begin();
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) begin(); });
}

// A page that changes is read again, and what is fresh takes the place of what was there. A reader who
// types, selects a text, or was asked something, is not disturbed.
const list = $("#fresh[data-live]");
let stream, stale = false, reading = false, pause = 1000;
const disturbs = () => $(".ask[open], input:focus", list) || !getSelection().isCollapsed && list.contains(getSelection().anchorNode);
const nameOf = (row) => $("a[data-open]", row)?.href ?? row.id;

function freshen() {
  if (!stale || reading || document.hidden || disturbs()) return;
  const request = new XMLHttpRequest(), began = Date.now();
  stale = false;
  reading = true;
  request.open("GET", location.href);
  request.responseType = "document";
  request.onload = () => {
    const now = request.status === 200 && request.response && $("#fresh", request.response);
    if (!now || disturbs()) {
      stale = true;
      return;
    }
    const before = new Set($$("[data-row]", list).map(nameOf)), current = $(".current[data-row]", list), unfolded = $$("[data-row] details[open]", list).map((d) => nameOf(d.closest("[data-row]")));
    const held = list.contains(document.activeElement) && document.activeElement, atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
    copies(now);
    $$("pre.json.whole", now).forEach(colour);
    for (const row of $$("[data-row]", now)) {
      const name = nameOf(row);
      row.classList.toggle("fresh", before.size > 0 && !before.has(name));
      if (current && !$(".current[data-row]", now) && name === nameOf(current)) row.classList.add("current");
      if (unfolded.includes(name)) $("details", row).open = true;
    }
    const scrolled = $(".panel", list)?.scrollTop;
    list.replaceChildren(...now.childNodes);
    if (scrolled) $(".panel", list)?.scrollTo(0, scrolled);
    if (held) $$(held.localName, list).find((e) => held.href ? e.href === held.href : e.textContent === held.textContent)?.focus({ preventScroll: true });
    if (atEnd && $("#events")) scrollTo(0, document.body.scrollHeight);
    if (!now.dataset.live) stream.close(); // nothing changes any more
    tell();
  };
  request.onloadend = () => {
    reading = false;
    pause = Math.max(1000, 10 * (Date.now() - began)); // a search that takes long is not repeated at once
    setTimeout(freshen, pause);
  };
  request.send();
}

// How long a followed run has been silent: one whose process died is not to look alive.
function tell() {
  const live = $("#live");
  if (!live || stream?.readyState !== EventSource.OPEN) {
    if (live && stream) say(live, "lost", "The connection was lost; trying again.");
    return;
  }
  const quiet = Math.max(Math.round((Date.now() - live.dataset.came) / 1000), 0);
  const since = quiet < 60 ? quiet + " s" : quiet < 3600 ? Math.floor(quiet / 60) + " min" : Math.floor(quiet / 3600) + " h";
  say(live, quiet < 30 ? "on" : "silent", "Following the run. The last event came " + since + " ago.");
}

function say(live, state, text) {
  live.className = "live " + state;
  live.textContent = text;
}

if (list) {
  listen(list.dataset.live, (source) => {
    stream = source;
    source.onopen = source.onerror = tell;
    source.onmessage = () => { stale = true; if (!reading) setTimeout(freshen, pause); };
  });
  setInterval(tell, 1000);
  document.addEventListener("visibilitychange", freshen);
  document.addEventListener("selectionchange", () => setTimeout(freshen));
  list.addEventListener("toggle", freshen, true);
}

// The field of the search completes its last word.
const words = $("#words");
if (words) {
  const all = $$("option", words).map((o) => o.value), field = $("#search");
  field.addEventListener("input", () => {
    const head = field.value.slice(0, field.value.lastIndexOf(" ") + 1);
    $$("option", words).forEach((o, i) => { o.value = head + all[i]; });
  });
}
