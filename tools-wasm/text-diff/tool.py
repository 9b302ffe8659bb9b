"""Unified diffs of texts, and patches."""

import difflib
import re
from typing import Annotated, TypedDict

import starling

MOST_BYTES, MOST_LINES, REACH = 500_000, 10_000, 1_000

MARK = "\\ No newline at end of file"
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Difference(TypedDict):
    equal: bool
    diff: str
    added: int
    removed: int


class Patched(TypedDict):
    text: str
    hunks: int
    moved: list[str]


def diff_texts(old: str, new: str, name: str = "text", context: Annotated[int, {"minimum": 0, "maximum": 100}] = 3,
               ignore_space: bool = False) -> Difference:
    """Compares two texts by lines and returns a unified diff, as `diff -u` and `git diff` write it.

    name: The file's name in the diff's head
    context: How many unchanged lines to show around a change
    ignore_space: Take lines as equal that differ in white space only. Such a diff is for reading: it may not apply
    """
    a, b = lines_of("old", old), lines_of("new", new)
    if ignore_space:
        keys = [" ".join(line.split()) for line in a], [" ".join(line.split()) for line in b]
    else:
        keys = a, b
    out, added, removed = [], 0, 0
    for group in difflib.SequenceMatcher(None, *keys, autojunk=len(a) + len(b) > 2_000).get_grouped_opcodes(context):
        first, last = group[0], group[-1]
        out.append(f"@@ -{span(first[1], last[2])} +{span(first[3], last[4])} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += (" " + line for line in a[i1:i2])
                continue
            removed, added = removed + i2 - i1, added + j2 - j1
            out += ("-" + line for line in a[i1:i2])
            out += ("+" + line for line in b[j1:j2])
    if out:
        out[:0] = [f"--- a/{name}\n", f"+++ b/{name}\n"]
    return {"equal": not out, "diff": "".join(line if line.endswith("\n") else line + "\n" + MARK + "\n" for line in out), "added": added, "removed": removed}


def apply_patch(text: str, patch: str, reverse: bool = False) -> Patched:
    """Applies a unified diff of one file to a text and returns the new text.

    A hunk whose lines have moved is found up to 1,000 lines away and reported in `moved`. The lines themselves must match
    exactly. If any hunk does not match, the call fails and names the line.

    text: The whole text that the patch changes
    patch: A unified diff of one file; lines before its first hunk are ignored
    reverse: Undo the patch
    """
    lines, hunks = lines_of("text", text), read_patch(patch)
    out, at, shift, moved = [], 0, 0, []
    for number, (start, old, new, place) in enumerate(hunks, 1):
        if reverse:
            start, old, new = start[::-1], new, old
        start = start[0] - (1 if old else 0)
        found = find(lines, old, start + shift, at)
        if found is None:
            raise starling.discard(mismatch(lines, old, start + shift, number, place))
        if found != start + shift:
            moved.append(f"hunk {number}: line {found + 1} instead of {start + shift + 1}")
        shift = found - start
        out += lines[at:found] + new
        at = found + len(old)
    out += lines[at:]
    for i, line in enumerate(out[:-1]):
        if not line.endswith("\n"):
            out[i] = line + "\n"
    return {"text": "".join(out), "hunks": len(hunks), "moved": moved}


def lines_of(name, text):
    if len(text) > MOST_BYTES:
        raise starling.discard(f"{name}: {len(text)} characters; the limit is {MOST_BYTES}")
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    if len(lines) > MOST_LINES:
        raise starling.discard(f"{name}: {len(lines)} lines; the limit is {MOST_LINES}")
    return lines


def span(first, last):
    length = last - first
    return f"{first + 1}" if length == 1 else f"{first if length == 0 else first + 1},{length}"


# read_patch returns the hunks: ((old start, new start), old lines, new lines, line of the patch).
def read_patch(patch):
    hunks, lines, i = [], lines_of("patch", patch), 0
    while i < len(lines):
        head = HUNK.match(lines[i])
        if not head:
            if lines[i].startswith("--- ") and hunks:
                raise starling.discard(f"patch: line {i + 1} begins a second file; hint: apply the patch of one file at a time")
            if lines[i].startswith("@@"):
                raise starling.discard(f"patch: line {i + 1} is not the head of a hunk: {lines[i].strip()!r}; hint: write @@ -START,COUNT +START,COUNT @@")
            i += 1
            continue
        place, counts = i + 1, [int(head[2] or 1), int(head[4] or 1)]
        old, new = [], []
        i += 1
        while len(old) < counts[0] or len(new) < counts[1]:
            line = lines[i] if i < len(lines) else "(end)"
            sign, rest = line[0], line[1:] if line.strip() else line
            if i >= len(lines) or sign not in " +-\\\n":
                raise starling.discard(f"patch: the hunk at line {place} announces {counts[0]} old and {counts[1]} new lines, but has {len(old)} and {len(new)} "
                                       f"before line {i + 1}; hint: correct the numbers of its head, and begin unchanged lines with a space")
            if sign == "\\":
                end(old, new, lines[i - 1][0])
            if sign in " -\n":
                old.append(rest)
            if sign in " +\n":
                new.append(rest)
            i += 1
        if i < len(lines) and lines[i].startswith("\\"):
            end(old, new, lines[i - 1][0])
            i += 1
        if len(old) != counts[0] or len(new) != counts[1]:
            raise starling.discard(f"patch: the hunk at line {place} announces {counts[0]} old and {counts[1]} new lines, but has {len(old)} and {len(new)}")
        hunks.append(((int(head[1]), int(head[3])), old, new, place))
    if not hunks:
        raise starling.discard("patch: there is no hunk; hint: a unified diff has lines such as @@ -1,3 +1,4 @@")
    return hunks


# end takes the line break from the line before the mark.
def end(old, new, sign):
    for lines in (old if sign in " -" else None, new if sign in " +" else None):
        if lines:
            lines[-1] = lines[-1].rstrip("\n")


def find(lines, old, start, floor):
    if not old:
        return min(max(start, floor), len(lines))
    for away in range(REACH + 1):
        for at in (start + away, start - away):
            if at >= floor and lines[at:at + len(old)] == old:
                return at
    return None


def mismatch(lines, old, start, number, place):
    for i, line in enumerate(old):
        has = lines[start + i] if 0 <= start + i < len(lines) else None
        if has != line:
            what = "the text ends before it" if has is None else f"the text has {has[:200]!r}"
            return (f"text: hunk {number} (line {place} of the patch) does not match: line {start + i + 1} should be {line[:200]!r}, {what}; "
                    "hint: make the patch from the present text")
    return f"text: hunk {number} (line {place} of the patch) overlaps the hunk before it"
