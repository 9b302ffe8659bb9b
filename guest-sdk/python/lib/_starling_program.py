"""The tool run_py: a program that a model wrote, and the errors of programs and tools with their place."""

import _starling
import linecache
import os
import sys
import types

import starling

DESCRIPTION = (
    "Runs a Python 3.13 program and returns its result as JSON: the value of the last expression, or what a top-level `return` returns, or else the variable "
    "`result`. `input` is the input that is given beside the code. `tools.NAME(key=value)` calls another tool and returns its output; a tool that fails "
    "raises ToolError with `tool`, `type` and `message`. Top-level `await` works. A program that prints returns {\"result\", \"console\"}. There is the standard library with sqlite3, "
    "requests, yaml and dateutil; no other packages, no processes, and no state between two programs. Files below /tmp are in memory. A call that is given the folder "
    "/workspace starts in it."
)
SCHEMA = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "A program in Python 3.13", "maxLength": 262144},
        "input": {"description": "Any JSON value, which the program sees as `input`"},
    },
    "required": ["code"],
    "additionalProperties": False,
}
FILE = "<program>"
MOST_PRINTED = 16384  # characters that come back with the result; the log has all
NOTHING = "the program returned nothing: end it with an expression or with return VALUE"

mounts = []  # the folders with the files of the call
printed = []
room = MOST_PRINTED
module = types.ModuleType("__main__")


def keep(text):
    """Keeps what a program prints, up to a limit."""
    global room
    if room > 0:
        printed.append(text[:room])
        room -= len(text)


def execute(arguments, encode=_starling.encode):
    code = unfenced(arguments["code"])
    names = module.__dict__
    names["input"] = arguments.get("input")
    linecache.cache[FILE] = (len(code), None, code.splitlines(True), FILE)
    try:
        value = run(program(code), names)
    except SystemExit as leave:
        if leave.code not in (None, 0):
            raise failure(leave, code) from None
        value = None
    except MemoryError:
        names.clear()
        raise
    except BaseException as error:
        raise failure(error, code) from None
    if value is None:
        value = names.get("result")
    try:
        result = encode(value, convert)
    except MemoryError:
        raise
    except BaseException as error:
        raise failure(error, code) from None
    if printed:
        return b'{"result":%b,"console":%b}' % (result, encode("".join(printed), convert))
    return encode({"result": None, "note": NOTHING}, convert) if value is None else result


def program(code):
    if "await" in code and "tools" in code:
        code = without_await(code)
    try:
        return _starling.compile(code, FILE)
    except IndentationError:  # of all lines, as in a text that was quoted
        import textwrap
        straight = textwrap.dedent(code)
        if straight == code:
            raise
        try:
            return _starling.compile(straight, FILE)
        except SyntaxError:
            pass
        raise


def without_await(code):
    """Leaves out each await of a tool's output, which is there when the call returns. All columns stay as they are."""
    import ast
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError):
        return code
    lines, starts = code.encode("utf-8", "surrogatepass").split(b"\n"), {(node.lineno, node.col_offset) for node in nodes if isinstance(node, ast.stmt)}
    for node in nodes:
        value = node.value if isinstance(node, ast.Await) else None
        while isinstance(value, (ast.Call, ast.Attribute, ast.Subscript)):
            value = value.func if isinstance(value, ast.Call) else value.value
        if isinstance(value, ast.Name) and value.id == "tools" and node.lineno <= len(lines):
            line, at = lines[node.lineno - 1], node.col_offset
            if line[at:at + 5] == b"await":
                lines[node.lineno - 1] = line[:at] + (b"0 or " if (node.lineno, at) in starts else b"     ") + line[at + 5:]
    return b"\n".join(lines).decode("utf-8", "surrogatepass")


def run(code, names):
    value = eval(code, names)
    if isinstance(value, types.CoroutineType):
        import asyncio
        value = asyncio.run(value)
    return value


def unfenced(code):
    """Blanks the lines of a fence of Markdown around a program."""
    if "```" in code:
        import re
        inside = re.fullmatch(r"(\s*)```[^\n`]*(\n(?s:.*)\n)[ \t]*```\s*", code)
        if inside:
            return inside[1] + inside[2]
    return code


def failure(error, code):
    message = located(error, code, FILE)
    if printed:
        message += "\nconsole:\n" + "".join(printed)[-2000:]
    return starling.Failure("tool", message)


def convert(value):
    """Makes of a value without JSON one that has it, or returns NotImplemented. A key of a dict has to become a string."""
    import dataclasses, datetime, decimal, enum, fractions, pathlib, uuid
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, fractions.Fraction, uuid.UUID, datetime.timedelta, pathlib.PurePath)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise TypeError("the result has bytes that are not UTF-8: return base64.b64encode(value).decode(), or value.hex()") from None
    if hasattr(value, "iter_content"):
        raise TypeError("the result has a Response of requests: return response.json() or response.text")
    if isinstance(value, type) or callable(value):
        return NotImplemented
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):
        return {key: value[key] for key in value.keys()}
    if hasattr(value, "__iter__") or hasattr(value, "__next__"):
        return list(value)
    return NotImplemented


def located(error, code, file):
    """The text of an error, with the lines of the program that lead to it, the innermost first, and a mark below the place."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    lines = code.split("\n")
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        text = f"{type(error).__name__}: {error.msg}\n  at line {error.lineno}, column {max(error.offset or 1, 1)}"
        end = error.end_offset if error.end_lineno == error.lineno else None
        return text + mark(lines, error.lineno, max(error.offset or 1, 1), end)
    text, shown, last, count = describe(error), "", None, 0
    for trace in reversed(frames(error, (file,))):
        line, start, end = place(trace, lines)
        if last is None and file == FILE and isinstance(error, TypeError) and 1 <= line <= len(lines) and lines[line - 1][start - 1:].startswith("input("):
            text += " (`input` is the value that is given beside the code, and there is nobody to ask)"
        name = trace.tb_frame.f_code.co_name
        frame = f"\n  at line {line}, column {start}" + ("" if name == "<module>" else f" in {name}")
        if frame != last and count < 10:  # a recursion is one line
            text += frame
            count += 1
        last = frame
        shown = shown or mark(lines, line, start, end)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and cause is not error:
        shown += "\ncaused by " + describe(cause)
    return text + shown


def describe(error):
    name = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, starling.ToolError):
            return f"ToolError: {error.tool}: {error.message}"
        if isinstance(error, ModuleNotFoundError):
            text += f" ({missing(error.name)})"
        if isinstance(error, FileNotFoundError):
            text += f" ({files()})"
        if isinstance(error, TypeError) and "'await' expression" in text:
            text += " (tools are called without await)"
        if isinstance(error, MemoryError) and not text:
            text = "the program needs more memory than its limit"
        if isinstance(error, BaseExceptionGroup):
            text += "".join("\n  " + describe(one) for one in error.exceptions[:5])
        return f"{name}: {text}" if text else name
    except BaseException:
        return f"{name}, whose text cannot be read"


def files():
    """What files there are."""
    if mounts:
        return f"the files of this call are in {', '.join(mounts)}; a relative path begins in {os.getcwd()}"
    if os.path.isdir("/tool"):
        return "a tool has the modules beside its tool.py and no other files, but those of run --dir: put data into a .py file"
    return "there are no files but those that the program itself writes, below /tmp; run --dir gives some"


def missing(name):
    """Why a module is not here."""
    if name == "ssl":
        return "the host makes the HTTPS connections and checks certificates: use requests, urllib.request or http.client, without a context"
    if name and name.partition(".")[0] in sys.stdlib_module_names:
        return "the sandbox has no sockets, processes, terminals or C libraries for this module of the standard library"
    return "the standard library, requests, yaml and dateutil are here"


def frames(error, files):
    found, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            found.append(trace)
        trace = trace.tb_next
    return found


def place(trace, lines):
    """The line of a frame, and its columns from 1. CPython counts the bytes of UTF-8."""
    line, start, end = trace.tb_lineno, None, None
    for index, position in enumerate(trace.tb_frame.f_code.co_positions()):
        if index == trace.tb_lasti // 2:
            _, final, start, end = position
            if final != line:
                end = None
            break
    data = lines[line - 1].encode("utf-8", "replace") if 1 <= line <= len(lines) else b""
    start = len(data[:start or 0].decode("utf-8", "ignore")) + 1
    return line, start, None if end is None else len(data[:end].decode("utf-8", "ignore")) + 1


def mark(lines, number, start, end=None):
    """A line, or the part of a long one, with carets below the columns from start to end."""
    if not 1 <= number <= len(lines):
        return ""
    line = lines[number - 1].rstrip("\r").replace("\t", " ")
    if end is None:
        end = max(len(line) + 1, start + 1)
    left = max(0, start - 60)
    head = f"\n{number} | "
    width = max(1, min(end - start, left + 100 - start))
    return f"{head}{line[left:left + 100]}\n{' ' * (len(head) - 1 + start - 1 - left)}{'^' * width}"
