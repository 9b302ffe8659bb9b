// Everything here is comfort: each page works without it. Texts from the server are
// set as texts; nothing builds markup, and the content security policy would not
// let it. A list takes its fresh rows from the page as the server writes it.
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
if ($("#row")) copies($("#row").content);

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
  const rows = $$("[data-row]").filter((r) => !r.closest("template"));
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
  f: () => {
    const bad = $$("tr[data-row], .talk > li").filter((r) => $(".bad", r) || r.matches(".r-bad"));
    const at = bad.findIndex((r) => r.matches(".current")), row = bad[(at + 1) % bad.length];
    if (row) $("a[data-open]", row).click();
  },
  o: () => $$(".views a").find((a) => a.pathname.endsWith("/events"))?.click(),
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
  const act = keys[event.key];
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

// A list that changes: the page is read again, and what is fresh takes the place of what was there.
// A reader who types, or was asked something, is not disturbed.
const list = $("#fresh");
let stale = false, reading = false, pause = 1000;

function freshen() {
  if (!stale || reading || document.hidden || $(".ask[open]", list)) return;
  const request = new XMLHttpRequest(), began = Date.now();
  stale = false;
  reading = true;
  request.open("GET", location.href);
  request.responseType = "document";
  request.onload = () => {
    const now = request.status === 200 && request.response && $("#fresh", request.response);
    if (!now || $(".ask[open]", list)) return;
    const rows = (root) => new Map($$("tr[data-row]", root).map((row) => [$("a[data-open], [data-copy]", row)?.href, row]));
    const before = rows(list), current = $("tr.current a[data-open]", list)?.href, focus = list.contains(document.activeElement) && document.activeElement.href;
    copies(now);
    for (const [href, row] of rows(now)) {
      if (before.size && !before.has(href)) row.classList.add("fresh");
      if (current && href === current) row.classList.add("current");
    }
    list.replaceChildren(...now.childNodes);
    if (focus) $$("a", list).find((a) => a.href === focus)?.focus({ preventScroll: true });
  };
  request.onloadend = () => {
    reading = false;
    pause = Math.max(1000, 10 * (Date.now() - began)); // a search that takes long is not repeated at once
    setTimeout(freshen, pause);
  };
  request.send();
}

if (list) {
  listen(list.dataset.live, (source) => {
    source.onmessage = () => { stale = true; if (!reading) setTimeout(freshen, pause); };
  });
  document.addEventListener("visibilitychange", freshen);
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

// A run in progress.
const live = $("#live");
const most = 3000; // rows of a page; more are on the next one

// How long the run has been silent: one whose process died is not to look alive.
let last = Number(live?.dataset.came) || Date.now(), fresh = 0;

function tell() {
  const quiet = Math.max(Math.round((Date.now() - last) / 1000), 0);
  const since = quiet < 60 ? quiet + " s" : quiet < 3600 ? Math.floor(quiet / 60) + " min" : Math.floor(quiet / 3600) + " h";
  const more = fresh && !events ? fresh + (fresh === 1 ? " new event: " : " new events: ") + "load the page again to see " + (fresh === 1 ? "it. " : "them. ") : "";
  say(quiet < 30 ? "on" : "silent", more + "Following the run. The last event came " + since + " ago.");
}

function follow(source) {
  let timer;
  source.onopen = () => { tell(); clearInterval(timer); timer = setInterval(tell, 1000); };
  source.onerror = () => { clearInterval(timer); say("lost", "The connection was lost; trying again."); };
  source.onmessage = (message) => {
    const ev = JSON.parse(message.data);
    last = Date.now();
    fresh++;
    tell();
    if (!events) return;
    if (document.getElementById("e" + ev.seq)) return;
    if (events.children.length >= most) {
      source.close();
      clearInterval(timer);
      say("", "The run goes on. Load the page again to see more.");
      return;
    }
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
    events.append(newRow(ev));
    $$("[data-last]").forEach((span) => { span.textContent = ev.seq.toLocaleString("en"); });
    if (atEnd) scrollTo(0, document.body.scrollHeight);
  };
  source.addEventListener("end", () => {
    source.close();
    clearInterval(timer);
    say("", "The run has ended. Load the page again for its totals.");
  });
}

function say(state, text) {
  live.className = "live " + state;
  live.textContent = text;
}

function newRow(ev) {
  const row = document.importNode($("#row").content, true).firstElementChild;
  const set = (selector, text) => { const e = $(selector, row); if (e) e.textContent = text; return e; };
  row.id = "e" + ev.seq;
  row.classList.add("fresh");
  set(".seq", ev.seq);
  set(".since", ev.since);
  set(".after", ev.after);
  set(".call", ev.call);
  set(".kind", ev.kind).className = "kind d" + ev.depth + " g-" + ev.group;
  set(".text", ev.line);
  set(".size", ev.size);
  set("[data-f=time]", ev.time);
  set("[data-f=hash]", ev.hash);
  set("[data-f=previous]", ev.previous || "none");
  const pre = set("pre.json", ev.payload);
  $("[data-f=path]", row).href = ev.path;
  if (!ev.payload) pre.textContent = "The payload is long. Open the event to see it.";
  return row;
}

if (live) listen(live.dataset.live, follow);
