# Code generated: a copy of tools-wasm/markdown/html_markdown.py. DO NOT EDIT.
"""HTML to Markdown."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

DROPPED = {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "audio", "video", "select", "dialog", "head"}
AROUND = {"nav", "header", "footer", "aside", "form", "button", "menu"}
BLOCKS = {"p", "div", "section", "article", "main", "address", "figure", "figcaption", "fieldset", "details", "summary", "dl", "dt", "dd", "body", "html", "center",
          "table", "thead", "tbody", "tfoot", "caption", "ul", "ol", "li", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "tr"} | AROUND
VOID = {"br", "img", "hr", "input", "meta", "link", "wbr", "source", "col", "area", "base", "embed", "track", "param"}
MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
ROLES = {"navigation", "banner", "contentinfo", "complementary", "search", "dialog", "menu"}
IMPLIED = {"li": ("li",), "p": ("p",), "td": ("td", "th"), "th": ("td", "th"), "tr": ("td", "th", "tr"), "dt": ("dt", "dd"), "dd": ("dt", "dd")}
DEEP = 200


class Converter(HTMLParser):
    def __init__(self, base="", escape=False):
        super().__init__(convert_charrefs=True)
        self.base, self.escape = base, escape
        self.title, self.meta, self.links = "", {}, []
        self.blocks = []  # (text, is an item of a list, in main or article, in navigation and the like, depth of quotes)
        self.text, self.marks = [], []
        self.open = []  # the names of the open elements that count
        self.lists, self.quotes, self.pre, self.heading = [], 0, 0, 0
        self.item, self.rows = None, None
        self.dropped, self.in_title = 0, False

    def handle_starttag(self, name, attributes):
        given = dict(attributes)
        if name == "meta":
            label = (given.get("name") or given.get("property") or "").lower()
            self.meta.setdefault(label, given.get("content") or "")
        if name == "base" and given.get("href"):
            self.base = urljoin(self.base, given["href"])
        if name == "title" and not self.title:
            self.in_title = True
        if name == "body":
            self.dropped = 0
            self.open = [tag for tag in self.open if tag not in DROPPED]
        if name in VOID:
            if not self.dropped:
                self.void(name, given)
            return
        while self.open and self.open[-1] in IMPLIED.get(name, ()):  # its end may be left out
            self.handle_endtag(self.open[-1])
        if len(self.open) >= DEEP and name not in DROPPED:
            return
        around = given.get("role") in ROLES or given.get("aria-hidden") == "true" or "hidden" in given
        self.open.append(name + "!" if around and name not in ("main", "article", "body") else name)
        if name in DROPPED:
            self.dropped += 1
        elif not self.dropped:
            self.begin(name, given)

    def handle_endtag(self, name):
        if name == "title":
            self.in_title = False
        at = next((i for i in range(len(self.open) - 1, -1, -1) if self.open[i].rstrip("!") == name), None)
        if at is None:
            return
        if name not in BLOCKS and any(tag.rstrip("!") in BLOCKS for tag in self.open[at + 1:]):
            self.finish(name)
            del self.open[at]
            return
        for tag in reversed(self.open[at:]):
            self.finish(tag.rstrip("!"))
            self.open.pop()

    def finish(self, name):
        if name in DROPPED:
            self.dropped = max(0, self.dropped - 1)
        elif not self.dropped:
            self.end(name)

    def void(self, name, given):
        if name == "br":
            self.text.append("\n" if self.pre else " " if self.rows is not None or self.heading else "  \n")
        elif name == "hr":
            self.flush()
            self.block("---")
        elif name == "img" and (alt := " ".join((given.get("alt") or "").split())):
            address = self.address(given.get("src"))
            self.text.append(f"![{alt}]({address})" if address and self.escape else f"[image: {alt}]")

    def begin(self, name, given):
        if name in BLOCKS and not (self.rows is not None and name not in ("table", "tr")):
            self.flush()
        if name in ("ul", "ol"):
            start = given.get("start") or "1"
            self.lists.append([name, int(start) if start.isdigit() and len(start) < 9 else 1])
        elif name == "li":
            kind = self.lists[-1] if self.lists else ["ul", 1]
            self.item = "- " if kind[0] == "ul" else f"{kind[1]}. "
            kind[1] += 1
        elif name == "blockquote":
            self.quotes += 1
        elif name == "pre":
            self.pre += 1
        elif name[0] == "h" and name[1:].isdigit():
            self.heading = int(name[1])
        elif name == "table":
            self.rows = []
        elif name == "tr" and self.rows is not None:
            self.rows.append([])
        elif name in ("td", "th") and self.rows is not None:
            self.text, self.marks = [], []
        elif (name in MARKS or name in ("code", "kbd", "samp", "a")) and not self.pre:
            self.marks.append((name, len(self.text), given))

    def end(self, name):
        if name in ("td", "th") and self.rows is not None:
            if not self.rows:
                self.rows.append([])
            self.close_marks()
            self.rows[-1].append(" ".join("".join(self.text).split()).replace("|", "\\|"))
            self.text = []
        elif name == "table" and self.rows is not None:
            rows, self.rows, self.text, self.marks = [row for row in self.rows if any(row)], None, [], []
            if rows and max(map(len, rows)) == 1:
                for row in rows:
                    self.block(row[0])
            elif rows:
                width = max(map(len, rows))
                lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows]
                self.block("\n".join([lines[0], "|" + " --- |" * width, *lines[1:]]))
        elif name in BLOCKS:
            if self.rows is None:
                self.flush()
            if name in ("ul", "ol") and self.lists:
                self.lists.pop()
            elif name == "li":
                self.item = None
            elif name == "blockquote":
                self.quotes = max(0, self.quotes - 1)
            elif name == "pre":
                self.pre = max(0, self.pre - 1)
            elif name[0] == "h" and name[1:].isdigit():
                self.heading = 0
        elif any(mark[0] == name for mark in self.marks):
            while self.close_mark() != name:
                pass

    def close_marks(self):
        while self.marks:
            self.close_mark()

    def close_mark(self):
        name, at, given = self.marks.pop()
        raw = "".join(self.text[at:])
        inner = raw.strip()
        if inner and name == "a":
            address = self.address(given.get("href"))
            label = " ".join(inner.split())
            if address:
                self.links.append((re.sub(r"[*`\\]", "", label), address))
                inner = f"[{label}]({address})"
        elif inner and name in MARKS:
            inner = MARKS[name] + inner + MARKS[name]
        elif inner:
            ticks = "`" * (max((len(run) for run in re.findall("`+", inner)), default=0) + 1)
            inner = f"{ticks} {inner} {ticks}" if "`" in inner else f"`{inner}`"
        before, after = (" " if raw[:1].isspace() else ""), (" " if raw[-1:].isspace() and raw.strip() else "")
        self.text[at:] = [before + inner + after]
        return name

    def address(self, written):
        written = (written or "").strip()
        try:
            address = urljoin(self.base, written)
        except ValueError:
            return ""
        scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", address)
        if not written or written.startswith("#") or scheme and scheme[0].lower() not in ("http:", "https:", "mailto:"):
            return ""
        return re.sub(r"[\x00-\x20<>()\\]", lambda m: f"%{ord(m[0]):02X}", address)

    def handle_data(self, data):
        if self.in_title:
            self.title += data
        elif self.dropped:
            return
        elif self.pre:
            self.text.append(data)
        else:
            data = re.sub(r"\s+", " ", data)
            if self.escape and not any(mark[0] in ("code", "kbd", "samp") for mark in self.marks):
                data = re.sub(r"([\\`*_\[\]<])", r"\\\1", data)
            self.text.append(data)

    def flush(self):
        self.close_marks()
        text, self.text = "".join(self.text), []
        if self.pre:
            if text.strip():
                fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
                self.block(f"{fence}\n" + text.strip("\n") + f"\n{fence}")
            return
        text = re.sub(r" *\n *", "  \n", re.sub(r" {2,}(?!\n)", " ", text)).strip()
        if not text:
            return
        if self.escape and not self.heading:
            text = re.sub(r"^(#{1,6} |[-+>] |\d+(?=[.)] ))", lambda m: m[1] + "\\" if m[1].isdigit() else "\\" + m[1], text)
        if self.heading:
            text = "#" * self.heading + " " + " ".join(text.split())
        self.block(text)

    def block(self, text):
        item = False
        if self.lists or self.item:
            indent = " " * sum(3 if kind == "ol" else 2 for kind, _ in self.lists[:-1])
            mark = self.item or " " * (3 if self.lists and self.lists[-1][0] == "ol" else 2)
            item, self.item = bool(self.item), None
            text = indent + mark + text.replace("\n", "\n" + indent + " " * len(mark))
        if self.quotes:
            quote = "> " * min(self.quotes, 20)
            text = "\n".join((quote + line).rstrip() for line in text.split("\n"))
        names = set(self.open)
        main = bool(names & {"main", "article"})
        around = bool(names & (AROUND - {"header"} if main else AROUND)) or any(name.endswith("!") for name in names)
        self.blocks.append((text, item, main, around, self.quotes))


# convert returns the converter after the whole document.
def convert(html, base="", escape=False):
    converter = Converter(base, escape)
    converter.feed(html)
    converter.close()
    converter.flush()
    return converter


# join writes blocks one below the other; items of a list stay together.
def join(blocks):
    out = []
    for i, (text, item, _, _, quotes) in enumerate(blocks):
        if i:
            near = item and blocks[i - 1][1]
            out.append("\n" if near else "\n>\n" if quotes and blocks[i - 1][4] else "\n\n")
        out.append(text)
    return "".join(out)
