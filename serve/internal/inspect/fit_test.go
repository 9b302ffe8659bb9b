package inspect_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// measuring loads pages into frames of a width and looks for texts that lie over each
// other, are cut to a few letters, or make the page wider than its window.
const measuring = `<!doctype html><pre id="found"></pre><script>
"use strict";
const found = [];
function visible(range, doc) {
  const rects = [];
  for (const r of range.getClientRects()) {
    const v = { left: r.left, top: r.top, right: r.right, bottom: r.bottom };
    for (let e = range.startContainer.parentElement; e && e !== doc.body; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.overflowX === "visible" || style.display === "inline") continue;
      const box = e.getBoundingClientRect();
      v.left = Math.max(v.left, box.left); v.right = Math.min(v.right, box.right);
      v.top = Math.max(v.top, box.top); v.bottom = Math.min(v.bottom, box.bottom);
    }
    if (v.right - v.left > 1 && v.bottom - v.top > 1 && v.right > 0) rects.push(v);
  }
  return rects;
}
function measure(frame, name, width) {
  const rendered = new frame.contentWindow.CSSStyleSheet(); // also what is out of sight, and no bar over it
  rendered.replaceSync("li { content-visibility: visible !important } .bar { position: static !important }");
  frame.contentDocument.adoptedStyleSheets.push(rendered);
  const doc = frame.contentDocument, say = (text) => found.push(name + " at " + width + " px: " + text);
  if (doc.documentElement.scrollWidth > width) say("the page is " + doc.documentElement.scrollWidth + " px wide");
  const texts = [], walker = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const shown = node.parentElement.checkVisibility({ visibilityProperty: true });
    if (!node.data.trim() || !shown || node.parentElement.closest("script, option")) continue;
    const range = doc.createRange();
    range.selectNodeContents(node);
    for (const rect of visible(range, doc)) texts.push({ rect, text: node.data.trim().slice(0, 40), element: node.parentElement });
  }
  if (texts.length < 3) say("it shows nothing");
  texts.forEach((a, i) => texts.slice(i + 1, i + 400).forEach((b) => {
    const over = Math.min(a.rect.right, b.rect.right) - Math.max(a.rect.left, b.rect.left);
    const under = Math.min(a.rect.bottom, b.rect.bottom) - Math.max(a.rect.top, b.rect.top);
    if (over > 2 && under > 4 && a.element !== b.element) say(JSON.stringify(a.text) + " lies over " + JSON.stringify(b.text));
  }));
  for (const e of doc.querySelectorAll("body *")) {
    if (getComputedStyle(e).textOverflow === "ellipsis" && e.clientWidth > 0 && e.scrollWidth > e.clientWidth && e.clientWidth < 80)
      say(JSON.stringify(e.textContent.trim().slice(0, 40)) + " is cut to " + e.clientWidth + " px");
  }
}
async function copy(frame, name) {
  const button = frame.contentDocument.querySelector("button.copy");
  if (!button) return;
  let copied;
  frame.contentWindow.navigator.clipboard.writeText = async (text) => { copied = text; };
  button.click();
  await new Promise((done) => setTimeout(done, 50));
  if (copied !== button.previousElementSibling.textContent || button.textContent !== "copied") found.push(name + ": the button copies " + copied);
  copies++;
}
let copies = 0;
async function all() {
  for (const [name, path] of Object.entries(PAGES)) for (const width of [390, 1280]) {
    const frame = document.createElement("iframe");
    frame.style = "border:0;height:900px;width:" + width + "px";
    await new Promise((done) => { frame.onload = done; frame.src = path; document.body.append(frame); });
    measure(frame, name, width);
    await copy(frame, name);
    frame.remove();
  }
  if (copies < 10) found.push("only " + copies + " buttons copy");
  document.querySelector("#found").textContent = JSON.stringify(found);
}
all();
</script>`

// TestPagesFitTheirWindow measures every page at the widths of a phone and of a desktop.
func TestPagesFitTheirWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	view := galleryView(t)
	view.Title = "production-europe-west.db"
	pages := withForms(t, view)
	names, err := json.Marshal(galleryPages)
	if err != nil {
		t.Fatal(err)
	}
	c := newChromium(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/measure" {
			w.Write([]byte(strings.Replace(measuring, "PAGES", string(names), 1)))
			return
		}
		_, port, _ := strings.Cut(r.Host, ":")
		r.AddCookie(&http.Cookie{Name: "starling_inspect_" + port, Value: "x"}) // so that there is a way to sign out
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		// The pages do not let themselves be framed.
		w.Header().Del("X-Frame-Options")
		w.Header().Set("Content-Security-Policy", strings.ReplaceAll(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'", "frame-ancestors 'self'"))
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	}))
	c.open("/measure")
	c.until(`document.querySelector("#found").textContent`)
	var found []string
	c.eval(`JSON.parse(document.querySelector("#found").textContent)`, &found)
	for _, one := range found {
		t.Error(one)
	}
}
