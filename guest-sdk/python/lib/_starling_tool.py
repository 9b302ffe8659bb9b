"""tool.py: its public functions with a docstring are tools. Types become schemas, and the JSON of a call becomes their values."""

import ast
import asyncio
import collections.abc
import contextlib
import dataclasses
import datetime
import decimal
import enum
import inspect
import io
import json
import linecache
import re
import sys
import traceback
import types
import typing
import uuid

import _starling
import _starling_program as program
import starling

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
ENTRY = re.compile(r"(?P<indent>\s*)(?::param )?\*{0,2}(?P<name>\w+)(?: \([^)]*\))?: *(?P<text>.*)")
HEADS = ("args:", "arguments:", "parameters:", "params:", "attributes:")
TYPES = "int, float, str, bool, list, dict, Literal, Enum, date, datetime, a dataclass or a TypedDict"


class Unsupported(Exception):
    """A type that no JSON Schema describes. part is where in the tool's own text it stands."""

    def __init__(self, message, part=None):
        super().__init__(message)
        self.part = part


def load(files, tools, Tool):
    """Adds the tools of the first file to tools, or returns why it has none: FILE:LINE:COLUMN: reason, the line and a mark."""
    file, text = files[0]
    sys.path.append("/tool")
    try:
        source = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return f"{file}:{text[:error.start].count(bytes([10])) + 1}: the file is not UTF-8"
    sources = {file: source, **{f"/tool/{name}": text.decode("utf-8", "replace") for name, text in files[1:]}}
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    module = types.ModuleType(file.removesuffix(".py"))
    module.__file__ = f"/tool/{file}"
    sys.modules[module.__name__] = module
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # start-up has no log
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        return refusal(error, sources, file)
    try:
        found = [value for name, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
                 and (hasattr(value, "__starling__") or value.__doc__ and not name.startswith("_"))]
        if not found:
            raise Unsupported("there is no tool: a tool is a public function with a docstring, in which every parameter has a type")
        for function in found:
            row, call = make(function, sources)
            if row["name"] in tools:
                raise Unsupported(f"there are two tools named {row['name']}", ("function", function.__name__))
            tools[row["name"]] = Tool(row, call)
    except Unsupported as error:
        line, start, end = find(source, error.part)
        return f"{file}:{line}:{start}: {error}" + program.mark(source.split("\n"), line, start, end) if error.part else f"{file}: {error}"


def refusal(error, sources, file):
    lines = lambda name: sources[name].split("\n")
    shown = lambda name: name.removeprefix("/tool/")
    if isinstance(error, SyntaxError) and error.filename in sources:
        end = error.end_offset if error.end_lineno == error.lineno else None
        start = max(error.offset or 1, 1)
        return f"{shown(error.filename)}:{error.lineno}:{start}: {type(error).__name__}: {error.msg}" + program.mark(lines(error.filename), error.lineno, start, end)
    traces = program.frames(error, sources)
    if not traces:
        return f"{file}: {program.describe(error)}"
    name = traces[-1].tb_frame.f_code.co_filename
    line, start, end = program.place(traces[-1], lines(name))
    return f"{shown(name)}:{line}:{start}: {program.describe(error)}" + program.mark(lines(name), line, start, end)


def find(source, part):
    """The line and the columns of a function's name, of a parameter, or of a field of a class."""
    if part is None:
        return 1, 1, None
    kind, owner, *rest = part
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if getattr(node, "name", None) != owner or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        spot = node
        if kind == "parameter":
            given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs + [a for a in (node.args.vararg, node.args.kwarg) if a]
            spot = next((a.annotation or a for a in given if a.arg == rest[0]), node)
        elif kind == "returns":
            spot = node.returns or node
        elif kind == "field":
            spot = next((s.annotation for s in node.body if isinstance(s, ast.AnnAssign) and getattr(s.target, "id", None) == rest[0]), node)
        data = lines[spot.lineno - 1].encode()
        start = len(data[:spot.col_offset].decode()) + 1
        if spot is node:
            start = lines[spot.lineno - 1].index(owner, spot.col_offset) + 1
            return spot.lineno, start, start + len(owner)
        return spot.lineno, start, len(data[:spot.end_col_offset].decode()) + 1 if spot.end_lineno == spot.lineno else None
    return 1, 1, None


def make(function, sources):
    """The row of a tool in the description, and the function that a call of it runs."""
    declared = {name: value for name, value in getattr(function, "__starling__", {}).items() if value is not None}
    name = declared.pop("name", function.__name__)
    at = ("function", function.__name__)
    if not NAME.fullmatch(name):
        raise Unsupported(f"the tool's name {name!r} is not a small letter with small letters, digits, - and _ behind it", at)
    signature = inspect.signature(function)
    text, notes = documented(function.__doc__ or "", signature.parameters)
    if not text:
        raise Unsupported("the docstring does not say what the tool does", at)
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise Unsupported(program.describe(error), at) from None
    properties, required, readers, others, read_other = {}, [], {}, False, None
    for key, parameter in signature.parameters.items():
        place = ("parameter", function.__name__, key)
        if parameter.kind is parameter.VAR_KEYWORD:
            others, read_other = schema(hints.get(key, typing.Any), place)
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Unsupported(f"the parameter {key} has no name of its own in JSON", place)
        if key not in hints:
            raise Unsupported(f"the parameter {key} has no type", place)
        made, readers[key] = schema(hints[key], place)
        properties[key] = complete(made, notes.get(key), parameter.default, parameter.empty)
        if parameter.default is parameter.empty:
            required.append(key)
    row = {"name": name, "description": text,
           "input_schema": {"type": "object", "properties": properties, "required": required, "additionalProperties": others}, **declared}
    if hints.get("return", typing.Any) not in (None, type(None), typing.Any):
        row["output_schema"] = schema(hints["return"], ("returns", function.__name__))[0]
    wait = asyncio.run if inspect.iscoroutinefunction(function) else lambda value: value

    def call(arguments, encode=_starling.encode, convert=program.convert):
        values = {}
        for key, value in arguments.items():
            try:
                values[key] = readers.get(key, read_other)(value)
            except (TypeError, ValueError) as error:
                raise starling.discard(f"{key}: {error}") from None
        try:
            return encode(wait(function(**values)), convert)
        except (starling.Failure, MemoryError):
            raise
        except BaseException as error:
            raise failed(error, sources) from None

    return row, call


def failed(error, sources):
    """The failure that an error is. One that the tool raises itself is shown without its place, which the log has."""
    kind = {"network": "transient", "timeout": "transient", "denied": "cancel"}.get(starling._kind(error), "tool")
    traces = program.frames(error, sources)
    if kind != "tool" and traces:  # of an exchange, the line of the tool that made it
        frame = traceback.extract_tb(traces[-1], limit=1)[0]
        starling.log(f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}\n{program.describe(error)}")
    else:
        traceback.print_exception(error.with_traceback(traces[0] if traces else error.__traceback__))
    if kind != "tool" or not traces:
        return starling.Failure(kind, program.describe(error))
    file = traces[-1].tb_frame.f_code.co_filename
    line = sources[file].split("\n")[traces[-1].tb_lineno - 1]
    if traces[-1].tb_next is None and line.strip().startswith(("raise ", "raise\n")):
        return starling.Failure("tool", str(error) or program.describe(error))
    return starling.Failure("tool", program.located(error, sources[file], file))


def documented(text, parameters):
    """The description of a docstring, and what its lines "name: text" say of parameters."""
    kept, notes, open_name, indent = [], {}, None, 0
    for line in inspect.cleandoc(text).split("\n"):
        entry = ENTRY.fullmatch(line)
        if entry and entry["name"] in parameters:
            open_name, indent = entry["name"], len(entry["indent"])
            notes[open_name] = entry["text"].strip()
        elif open_name and line.strip() and len(line) - len(line.lstrip()) > indent:
            notes[open_name] += " " + line.strip()
        else:
            open_name = None
            if line.strip().lower() not in HEADS:
                kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), notes


def complete(made, note, default, empty):
    if note:
        made = {**made, "description": note}
    if default is not empty and default is not None:
        try:
            made = {**made, "default": json.loads(_starling.encode(default, program.convert))}
        except (TypeError, ValueError):
            pass
    return made


def wrong(what):
    return TypeError(f"it has to be {what}")


def read_bool(value):
    if isinstance(value, bool):
        return value
    raise wrong("true or false")


def read_int(value):
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise wrong("an integer")


def read_float(value):
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise wrong("a number")


def read_str(value):
    if isinstance(value, str):
        return value
    raise wrong("a string")


def read_none(value):
    if value is None:
        return None
    raise wrong("null")


def read_any(value):
    return value


def text_reader(make):
    return lambda value: make(read_str(value))


PLAIN = {
    bool: ({"type": "boolean"}, read_bool), int: ({"type": "integer"}, read_int), float: ({"type": "number"}, read_float),
    str: ({"type": "string"}, read_str), None: ({"type": "null"}, read_none), type(None): ({"type": "null"}, read_none),
    typing.Any: ({}, read_any), object: ({}, read_any),
    datetime.datetime: ({"type": "string", "format": "date-time"}, text_reader(datetime.datetime.fromisoformat)),
    datetime.date: ({"type": "string", "format": "date"}, text_reader(datetime.date.fromisoformat)),
    datetime.time: ({"type": "string", "format": "time"}, text_reader(datetime.time.fromisoformat)),
    uuid.UUID: ({"type": "string", "format": "uuid"}, text_reader(uuid.UUID)),
    decimal.Decimal: ({"type": ["string", "number"]}, lambda value: decimal.Decimal(str(value))),
}
LISTS = {list: list, set: set, frozenset: frozenset, tuple: tuple, collections.abc.Sequence: list, collections.abc.Iterable: list, collections.abc.Collection: list}
DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def schema(hint, place, above=()):
    """The JSON Schema of a type, and the function that makes its value of a JSON value."""
    while isinstance(hint, (typing.NewType, typing.TypeAliasType)):
        hint = hint.__supertype__ if isinstance(hint, typing.NewType) else hint.__value__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Required, typing.NotRequired):
        return schema(args[0], place, above)
    if origin is typing.Annotated:
        made, read = schema(args[0], place, above)
        for note in args[1:]:
            made = {**made, **(note if isinstance(note, dict) else {"description": note} if isinstance(note, str) else {})}
        return made, read
    try:
        if hint in PLAIN:
            return PLAIN[hint]
    except TypeError:
        pass
    if origin is typing.Literal:
        return values(list(args)), one_of(args)
    if origin in (typing.Union, types.UnionType):
        return union([schema(arg, place, above) for arg in args])
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return values([member.value for member in hint]), hint
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)):
        return record(hint, place, above)
    base = origin or hint
    if base is tuple and args and args[-1] is not ...:
        items = [schema(arg, place, above) for arg in args]

        def read_tuple(value):
            if not isinstance(value, list) or len(value) != len(items):
                raise wrong(f"a list of {len(items)} values")
            return tuple(read(item) for (_, read), item in zip(items, value))

        return {"type": "array", "prefixItems": [made for made, _ in items], "minItems": len(items), "maxItems": len(items)}, read_tuple
    if base in LISTS:
        item, read = schema(args[0], place, above) if args else ({}, read_any)
        kind = LISTS[base]

        def read_list(value):
            if not isinstance(value, list):
                raise wrong("a list")
            return kind([read(item) for item in value])

        made = {"type": "array", "items": item} if item else {"type": "array"}
        return ({**made, "uniqueItems": True} if kind in (set, frozenset) else made), read_list
    if base in DICTS:
        if args and args[0] is not str:
            raise Unsupported(f"the keys of a dict are strings in JSON: dict[str, ...], not {shown(hint)}", place)
        item, read = schema(args[1], place, above) if args else ({}, read_any)

        def read_dict(value):
            if not isinstance(value, dict):
                raise wrong("an object")
            return {key: read(item) for key, item in value.items()}

        return ({"type": "object", "additionalProperties": item} if item else {"type": "object"}), read_dict
    raise Unsupported(f"a tool cannot take or return {shown(hint)}: use {TYPES}", place)


def shown(hint):
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def values(members):
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    found = list(dict.fromkeys(kinds.get(type(member)) for member in members))
    if None in found:
        return {"enum": json.loads(_starling.encode(members, program.convert))}
    return {"type": found[0] if len(found) == 1 else found, "enum": members}


def one_of(members):
    def read(value):
        for member in members:
            if type(member) is type(value) and member == value:
                return member
        raise wrong(" or ".join(map(repr, members)))
    return read


def union(arms):
    def read(value):
        reasons = []
        for _, reader in arms:
            try:
                return reader(value)
            except (TypeError, ValueError) as error:
                reasons.append(str(error))
        raise TypeError(", or ".join(reasons))

    made = [arm[0] for arm in arms]
    if all(list(one) == ["type"] and isinstance(one["type"], str) for one in made):
        return {"type": [one["type"] for one in made]}, read
    return {"anyOf": made}, read


def record(hint, place, above):
    """A dataclass or a TypedDict."""
    if hint in above:
        raise Unsupported(f"{hint.__name__} contains itself, which a tool's schema cannot", place)
    try:
        hints = typing.get_type_hints(hint, include_extras=True)
    except Exception as error:
        raise Unsupported(program.describe(error), ("function", hint.__name__)) from None
    text = hint.__doc__ or ""
    if text.startswith(hint.__name__ + "("):  # what dataclass writes itself
        text = ""
    typed_dict = typing.is_typeddict(hint)
    fields = hints if typed_dict else {field.name: field for field in dataclasses.fields(hint) if field.init}
    text, notes = documented(text, fields)
    properties, readers = {}, {}
    for key in fields:
        made, readers[key] = schema(hints[key], ("field", hint.__name__, key), (*above, hint))
        properties[key] = complete(made, notes.get(key), dataclasses.MISSING if typed_dict else fields[key].default, dataclasses.MISSING)
    required = sorted(hint.__required_keys__, key=list(hints).index) if typed_dict else [
        key for key, field in fields.items() if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING]

    def read(value):
        if not isinstance(value, dict):
            raise wrong(f"an object with {', '.join(required) or 'members'}")
        missing = [key for key in required if key not in value]
        if missing or any(key not in readers for key in value):
            raise TypeError(f"{hint.__name__} has the members {', '.join(readers)}")
        return hint(**{key: readers[key](item) for key, item in value.items()})

    made = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ({**made, "description": text} if text else made), read
