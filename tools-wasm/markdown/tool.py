"""Markdown to HTML and back, in a safe subset."""

import html
import re
from typing import TypedDict

import starling
from html_markdown import convert, join

MOST, DEEP = 500_000, 20


class Html(TypedDict):
    html: str
    headings: list[str]


class Markdown(TypedDict):
    markdown: str
    title: str


def markdown_to_html(markdown: str, page_title: str | None = None) -> Html:
    """Converts Markdown to safe HTML: headings, paragraphs, emphasis, code, links, images, lists, task lists, quotes, tables, rules.

    HTML in the Markdown is shown as text, and only links with http, https, mailto or without a scheme become links. So the result
    holds no script. `headings` lists the headings.

    markdown: The text, as CommonMark with the tables, ~~strikethrough~~ and task lists of GitHub; links by [text](url)
    page_title: Makes a whole page with this title instead of a fragment
    """
    check("markdown", markdown)
    headings = []
    out = "\n".join(blocks(markdown.replace("\r\n", "\n").expandtabs(4).split("\n"), headings, 0))
    if page_title is not None:
        out = f'<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">\n<title>{html.escape(page_title)}</title>\n</head>\n<body>\n{out}\n</body>\n</html>'
    return {"html": out + "\n", "headings": headings}


def html_to_markdown(source: str, base_url: str = "") -> Markdown:
    """Converts HTML to Markdown. Scripts, styles and attributes are left out. Use it for HTML that you have; read_page fetches a page.

    source: HTML, a fragment or a whole page
    base_url: The page's address, which makes relative links absolute
    """
    check("source", source)
    page = convert(source, base_url, escape=True)
    return {"markdown": join(page.blocks) + "\n" if page.blocks else "", "title": " ".join(page.title.split())}


def check(field, text):
    if len(text) > MOST:
        raise starling.discard(f"{field}: {len(text)} characters; the limit is {MOST}; hint: convert it in parts")
    if at := re.search(r"\x00", text):
        raise starling.discard(f"{field}: character {at.start() + 1} is a zero byte; hint: this is not text")


FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$")
HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+(.*?))??(?:\s+#+)?\s*$")
RULE = re.compile(r" {0,3}([-*_])(?:\s*\1){2,}\s*$")
ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])( +|$)")
DIVIDER = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")


# blocks returns the HTML of lines.
def blocks(lines, headings, depth):
    out, i = [], 0
    if depth > DEEP:
        raise starling.discard(f"markdown: lists and quotes are nested more than {DEEP} levels deep, at {' '.join(lines)[:60]!r}; hint: nest fewer")
    while i < len(lines):
        line = lines[i]
        if not line.strip():
            i += 1
        elif match := FENCE.match(line):
            body, mark, i = [], match[1], i + 1
            while i < len(lines) and not re.match(r" {0,3}" + re.escape(mark[0]) + "{%d,}\\s*$" % len(mark), lines[i]):
                body.append(lines[i])
                i += 1
            i += 1
            language = f' class="language-{html.escape(match[2])}"' if match[2] else ""
            out.append(f"<pre><code{language}>" + html.escape("".join(row + "\n" for row in body), quote=False) + "</code></pre>")
        elif line.startswith("    "):
            body = []
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                body.append(lines[i][4:])
                i += 1
            out.append("<pre><code>" + html.escape("\n".join(body).rstrip(), quote=False) + "\n</code></pre>")
        elif match := HEADING.match(line):
            out.append(heading(len(match[1]), match[2] or "", headings))
            i += 1
        elif RULE.match(line):
            out.append("<hr>")
            i += 1
        elif re.match(" {0,3}>", line):
            body = []
            while i < len(lines) and lines[i].strip() and (re.match(" {0,3}>", lines[i]) or not starts(lines[i])):
                body.append(re.sub(r"^ {0,3}> ?", "", lines[i]))
                i += 1
            out += ["<blockquote>", *blocks(body, headings, depth + 1), "</blockquote>"]
        elif ITEM.match(line):
            i = listed(lines, i, out, headings, depth)
        elif "|" in line and i + 1 < len(lines) and "-" in lines[i + 1] and DIVIDER.match(lines[i + 1]) and len(cells(line)) == len(cells(lines[i + 1])):
            i = table(lines, i, out)
        else:
            body = [line]
            i += 1
            while i < len(lines) and lines[i].strip() and not starts(lines[i]) and not re.match(r" {0,3}(=+|-+)\s*$", lines[i]):
                body.append(lines[i])
                i += 1
            if i < len(lines) and (under := re.match(r" {0,3}(=+|-+)\s*$", lines[i])):
                out.append(heading(1 if under[1][0] == "=" else 2, " ".join(map(str.strip, body)), headings))
                i += 1
            else:
                out.append("<p>" + inline("\n".join(row.lstrip() for row in body).rstrip()) + "</p>")
    return out


def starts(line):
    item = ITEM.match(line)
    return bool(FENCE.match(line) or HEADING.match(line) or RULE.match(line) and not re.match(r" {0,3}-+\s*$", line) or re.match(" {0,3}>", line)
                or item and line[item.end():].strip() and (not item[2][0].isdigit() or item[2][:-1] == "1"))


def heading(level, text, headings):
    headings.append(re.sub(r"[*_`]", "", text))
    return f"<h{level}>{inline(text)}</h{level}>"


def listed(lines, i, out, headings, depth):
    first = ITEM.match(lines[i])[2]
    ordered, sign = first[0].isdigit(), first[-1]
    items, loose = [], False
    while i < len(lines) and (match := ITEM.match(lines[i])) and match[2][-1] == sign and match[2][0].isdigit() == ordered and not RULE.match(lines[i]):
        width = match.end() if 1 <= len(match[3]) <= 4 else match.end(2) + 1
        body = [lines[i][width:]]
        i += 1
        while i < len(lines):
            if not lines[i].strip():
                ahead = next((n for n in range(i, min(i + 50, len(lines))) if lines[n].strip()), None)
                if ahead is None or not (lines[ahead].startswith(" " * width) or ITEM.match(lines[ahead]) and ITEM.match(lines[ahead])[2][-1] == sign):
                    break
                loose = True
                if not lines[ahead].startswith(" " * width):
                    i = ahead
                    break
                body.append("")
            elif lines[i].startswith(" " * width):
                body.append(lines[i][width:])
            elif starts(lines[i]) or ITEM.match(lines[i]):
                break
            else:
                body.append(lines[i].lstrip())
            i += 1
        items.append(body)
    number = int(first[:-1]) if ordered else 1
    out.append(("<ol>" if number == 1 else f'<ol start="{number}">') if ordered else "<ul>")
    for body in items:
        box = ""
        if task := re.match(r"\[([ xX])\] +", body[0]):
            box = f'<input type="checkbox" disabled{"" if task[1] == " " else " checked"}> '
            body[0] = body[0][task.end():]
        inner = blocks(body, headings, depth + 1)
        if not loose:
            inner = [re.sub(r"^<p>(.*)</p>$", r"\1", part, flags=re.S) for part in inner]
        out.append(f"<li>{box}" + "\n".join(inner) + "</li>")
    out.append("</ol>" if ordered else "</ul>")
    return i


def cells(line):
    line = line.strip().removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]


def table(lines, i, out):
    head = cells(lines[i])
    styles = [' style="text-align:%s"' % {(1, 1): "center", (0, 1): "right", (1, 0): "left"}[key] if any(key := (int(c[0] == ":"), int(c[-1] == ":"))) else "" for c in cells(lines[i + 1])]
    row = lambda tag, texts: "<tr>" + "".join(f"<{tag}{style}>{inline(text)}</{tag}>" for text, style in zip(texts, styles)) + "</tr>"
    out += ["<table>", "<thead>", row("th", head), "</thead>", "<tbody>"]
    i += 2
    while i < len(lines) and lines[i].strip() and not starts(lines[i]):
        texts = cells(lines[i])
        out.append(row("td", texts + [""] * (len(head) - len(texts))))
        i += 1
    out += ["</tbody>", "</table>"]
    return i


LINK = re.compile(r"(!?)\[((?:[^\[\]\\]|\\.|\[[^\[\]]{0,200}\]){0,1000})\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)?)>?(?:\s+[\"']([^\"']*)[\"'])?\s*\)")
AUTO = re.compile(r"<((?:https?://|mailto:)[^\s<>]+)>|(?<![\w/])https?://[^\s<>]*[^\s<>.,:;!?'\")\]*_~]")
EMPHASIS = ((re.compile(r"\*\*(?=\S)((?:(?!\*\*).)+?)(?<=\S)\*\*", re.S), "strong"), (re.compile(r"(?<!\w)__(?=\S)((?:(?!__).)+?)(?<=\S)__(?!\w)", re.S), "strong"),
            (re.compile(r"\*(?=[^\s*])([^*]+?)(?<=\S)\*", re.S), "em"), (re.compile(r"(?<!\w)_(?=[^\s_])([^_]+?)(?<=\S)_(?!\w)", re.S), "em"),
            (re.compile(r"~~(?=\S)((?:(?!~~).)+?)(?<=\S)~~", re.S), "del"))


# inline returns the HTML of text. Finished parts are kept aside, behind numbers between zero bytes.
def inline(text, depth=0):
    kept = []

    def keep(made):
        kept.append(made)
        return f"\x00{len(kept) - 1}\x00"

    def link(match):
        image, label, address, title = match.groups()
        address, title = html.unescape(re.sub(r"\\(.)", r"\1", restore(address, True))), restore(title or "", True)
        scheme = re.match(r"\s*([^/?#]*?):", address)
        if scheme and scheme[1].lower() not in ("http", "https", "mailto"):
            return match[0]
        extra = f' title="{html.escape(title)}"' if title else ""
        if image:
            return keep(f'<img src="{html.escape(address)}" alt="{html.escape(restore(label))}"{extra}>')
        return keep(f'<a href="{html.escape(address)}"{extra}>{inline(restore(label, True), depth + 1) if depth < 2 else html.escape(label)}</a>')

    def restore(part, raw=False):
        return re.sub("\x00(\\d+)\x00", lambda m: sources[int(m[1])] if raw and int(m[1]) in sources else re.sub("<[^>]*>", "", kept[int(m[1])]), part)

    def code(match):
        body = match[2].replace("\n", " ")
        body = body[1:-1] if len(body) > 2 and body[0] == body[-1] == " " and body.strip() else body
        sources[len(kept)] = match[0]
        return keep("<code>" + html.escape(body, quote=False) + "</code>")

    def escaped(match):
        sources[len(kept)] = match[0]
        return keep(html.escape(match[1], quote=False))

    def auto(match):
        address = match[1] or match[0]
        return keep(f'<a href="{html.escape(address)}">{html.escape(address, quote=False)}</a>') if "\x00" not in address else match[0]

    sources = {}
    text = re.sub(r"(?<![`\\])(`+)(?!`)(.{1,5000}?)(?<!`)\1(?!`)", code, text, flags=re.S)
    text = re.sub(r"\\([!-/:-@\[-`{-~])", escaped, text)
    text = LINK.sub(link, text)
    if not depth:
        text = AUTO.sub(auto, text)
    text = html.escape(re.sub(r"&(#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]\w{1,30});", lambda m: keep(html.escape(html.unescape(m[0]), quote=False)), text), quote=False)
    for pattern, tag in EMPHASIS:
        text = pattern.sub(rf"<{tag}>\1</{tag}>", text)
    text = re.sub(r"(?: {2,}|\\)\n", "<br>\n", text)
    for _ in range(3):
        text = re.sub("\x00(\\d+)\x00", lambda m: kept[int(m[1])], text)
    return text
