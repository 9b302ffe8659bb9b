"""What main.c calls: start once, then describe or execute."""

import builtins
import contextlib
import gc
import io
import json
import sys

import _starling

# What start-up imports, so that the host keeps it in the memory that every call begins with.
WARM = """re math datetime decimal fractions statistics random itertools functools collections dataclasses enum typing textwrap string csv
html html.parser urllib.parse urllib.request base64 binascii hashlib hmac difflib copy operator traceback linecache asyncio time calendar
bisect heapq uuid struct array contextlib pprint unicodedata zlib gzip ast abc types inspect secrets xml.etree.ElementTree ipaddress shlex
pathlib tempfile shutil zipfile logging zoneinfo _strptime warnings weakref concurrent.futures.thread threading queue numbers cmath tomllib
pickle fnmatch glob requests starling _starling_program"""

# A program like those that models write: what it uses is compiled, cached and specialised in that memory.
PRACTICE = """
import re, json
from collections import Counter
def double(row):
    return {**row, "score": round(row["score"] * 2, 3)}
rows = [double(row) for row in json.loads(json.dumps([{"name": f"n{i}", "score": i / 7, "tags": ["a", None, True]} for i in range(9)]))]
for i, row in enumerate(sorted(rows, key=lambda row: -row["score"])):
    row["rank"] = i + 1
words = Counter(re.findall(r"[a-z]+", "the quick brown fox, the lazy dog")).most_common(3)
total = sum(row["score"] for row in rows if row["score"] > 1)
try:
    {}["missing"]
except KeyError as error:
    text = f"{error!r} {total:.2f} {'x'.upper().strip().split()}"
print(text, words, sep=" ", end="\\n")
[rows, words, {"text": text, "input": input}]
"""

tools = {}


class Tool:
    def __init__(self, row, call):
        self.row, self.call = row, call


def start():
    """Returns the reason why the packed tool is none, or None."""
    with _patterns():
        import _starling_http
        for name in WARM.split():
            __import__(name)
    import _starling_world
    _starling_world.fit()
    _start_program()
    files, refusal = _starling.sources(), None
    if files:
        import _starling_tool
        tools.clear()
        refusal = _starling_tool.load(files, tools, Tool)
    starling._starting = False
    gc.collect()
    return refusal


@contextlib.contextmanager
def _patterns():
    """Regular expressions that freeze.py has compiled. To compile them here is a quarter of the start."""
    import _sre
    import array
    import re._compiler as compiler

    import _starling_patterns
    plain = compiler.compile

    def compile(pattern, flags=0):
        found = _starling_patterns.TABLE.get((pattern, int(flags))) if isinstance(pattern, (str, bytes)) else None
        if found is None:
            return plain(pattern, flags)
        return _sre.compile(pattern, found[0], array.array("I", found[1]).tolist(), *found[2:])

    compiler.compile = compile
    yield
    compiler.compile = plain
    del sys.modules["_starling_patterns"]


def _start_program():
    import _starling_program as program

    class Stream(io.TextIOWrapper):
        def write(self, text):
            n = super().write(text)
            program.keep(text)
            return n

    def silent():
        return Stream(io.BufferedWriter(io.BytesIO()), encoding="utf-8", errors="backslashreplace", line_buffering=True)

    tools["run_py"] = Tool({"name": "run_py", "description": program.DESCRIPTION, "input_schema": program.SCHEMA}, program.execute)
    names = program.module.__dict__
    given = {"__builtins__": builtins, "tools": starling.tools, "ToolError": starling.ToolError, "starling": starling}
    sys.modules["__main__"] = program.module
    for code in [PRACTICE] * 3 + ["1+1"] * 2 + ["def f(): return 1 // 0\nf()"] * 2:
        sys.stdout = sys.stderr = silent()
        names.update(given)
        execute(json.dumps({"tool": "run_py", "input": {"code": code, "input": {"a": [1]}}, "context": {}}).encode())
        for name in [name for name in names if not name.startswith("__")]:
            del names[name]
        program.printed.clear()
        program.room = program.MOST_PRINTED
    starling.context.clear()
    names.update(given)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
        stream = Stream(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def describe():
    return json.dumps({"tools": [tool.row for tool in tools.values()]}).encode()


def execute(document, folders=(), scan=json.decoder.JSONDecoder().scan_once, encode=_starling.encode, tools=tools):
    document, _ = scan(document.decode(), 0)
    starling.context.update(document.get("context") or ())
    mounts.extend(folders)
    tool = tools.get(document["tool"])
    try:
        if tool is None:
            raise starling.Failure("tool", f"there is no tool {document['tool']!r}")
        return b'{"output":%b}' % tool.call(document["input"])
    except starling.Failure as error:
        failure = {"kind": error.kind, "message": str(error)}
        if error.retry_after_ms:
            failure["retry_after_ms"] = error.retry_after_ms
    except MemoryError as error:
        failure = {"kind": "tool", "message": describe_error(error)}
    except BaseException as error:
        failure = {"kind": "tool", "message": located(error, "", "")}
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass
    return encode({"error": failure}, convert)


import starling
from _starling_program import convert, describe as describe_error, located, mounts
