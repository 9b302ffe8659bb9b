"""Queries over tables, in a part of SQL."""

import csv
import io
import json
import math
import re
from typing import Annotated, Any, Literal, TypedDict

import starling

MOST_CHARS, MOST_ROWS, MOST_PAIRS, MOST_QUERY = 2_000_000, 50_000, 200_000, 4_000


class Answer(TypedDict):
    columns: list[str]
    rows: list[list[Any]]
    total: int
    more: bool


class Column(TypedDict):
    name: str
    type: str
    nulls: int
    distinct: int
    examples: list[Any]


class Description(TypedDict):
    rows: int
    columns: list[Column]


Format = Literal["auto", "csv", "tsv", "json"]


def query_table(query: str, tables: dict[str, Any], format: Format = "auto", limit: Annotated[int, {"minimum": 1, "maximum": 5000}] = 200) -> Answer:
    """Runs one SELECT over tables: CSV or TSV text, JSON text, or arrays of objects. Use it to filter, count, sum, group, sort and join data.

    SELECT [DISTINCT] * or expressions [AS name] FROM t [JOIN u ON t.id = u.t_id | LEFT JOIN ...] [WHERE ...] [GROUP BY ...] [HAVING ...]
    [ORDER BY ... [DESC]] [LIMIT n [OFFSET n]]

    Operators: = <> < <= > >= AND OR NOT, IN (...), BETWEEN, LIKE (any case; % and _), IS NULL, + - * / %, || (joins text), CASE WHEN.
    Aggregates: count(*), count(x), count(DISTINCT x), sum, avg, min, max, median, group_concat(x).
    Functions: lower, upper, trim, length, substr(x, from, length), replace(x, a, b), round(x, places), abs, coalesce, number(x), text(x).
    A column with other letters stands in double quotes: "Unit price". Text stands in single quotes. There are no subqueries and no window functions.

    query: For example SELECT city, count(*) AS n, sum(price) FROM orders WHERE price > 5 GROUP BY city ORDER BY n DESC
    tables: The tables by name, such as {"orders": "id,city,price\\n1,Rome,9.5\\n"}. Empty cells are NULL; cells that look like numbers are numbers, but 007 stays text
    format: How to read text; auto looks at it
    limit: The most rows to return; total counts all
    """
    if len(query) > MOST_QUERY:
        raise starling.discard(f"query: {len(query)} characters; the limit is {MOST_QUERY}")
    parsed = Parser(query).select()
    read = {}
    for name, content in tables.items():
        read[name.lower()] = read_table(f"tables.{name}", content, format)
    try:
        columns, rows = run(parsed, read)
    except RecursionError:
        raise starling.discard("query: an expression is nested too deeply; hint: simplify it") from None
    return {"columns": columns, "rows": rows[:limit], "total": len(rows), "more": len(rows) > limit}


def describe_table(data: Any, format: Format = "auto") -> Description:
    """Describes a table before a query: the number of rows, and each column's name, type, empty cells, distinct values and examples.

    data: CSV or TSV text with a line of names, JSON text, or an array of objects
    format: How to read text; auto looks at it
    """
    names, rows = read_table("data", data, format)
    columns = []
    for i, name in enumerate(names):
        values = [row[i] for row in rows if row[i] is not None]
        kinds = sorted({"number" if is_number(v) else "boolean" if isinstance(v, bool) else "text" if isinstance(v, str) else "json" for v in values})
        distinct = dict.fromkeys(map(key, values))
        examples = [v if not isinstance(v, str) else v[:60] for v in values[:3]]
        columns.append({"name": name, "type": " or ".join(kinds) or "empty", "nulls": len(rows) - len(values), "distinct": len(distinct), "examples": examples})
    return {"rows": len(rows), "columns": columns}


def read_table(field, content, format):
    if isinstance(content, str):
        if len(content) > MOST_CHARS:
            raise starling.discard(f"{field}: {len(content)} characters; the limit is {MOST_CHARS}; hint: give a part of the table")
        if format == "auto":
            head = content.lstrip("\ufeff \r\n")
            first = head.partition("\n")[0]
            format = "json" if head[:1] in ("[", "{") else "tsv" if "\t" in first else "csv"
        if format != "json":
            return read_csv(field, content, format)
        try:
            content = json.loads(content.lstrip("\ufeff"))
        except ValueError as error:
            try:
                content = [json.loads(line) for line in content.splitlines() if line.strip()]
            except ValueError:
                raise starling.discard(f"{field}: not JSON: {error}; hint: name the format if it is csv or tsv") from None
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise starling.discard(f"{field}: a table is text or an array of objects; hint: write [{{\"id\": 1}}, {{\"id\": 2}}]")
    if len(content) > MOST_ROWS:
        raise starling.discard(f"{field}: {len(content)} rows; the limit is {MOST_ROWS}")
    names = list(dict.fromkeys(name for row in content for name in row))
    return names, [[row.get(name) for name in names] for row in content]


def read_csv(field, text, format):
    text = text.lstrip("\ufeff")
    delimiter = "\t" if format == "tsv" else max(",;|", key=text.partition("\n")[0].count)
    rows = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip() or f"column{i}" for i, name in enumerate(next(reader, []), 1)]
        for row in reader:
            if not row:
                continue
            if len(row) > len(names):
                raise starling.discard(f"{field}: line {reader.line_num} has {len(row)} cells, the first line names {len(names)}; hint: put cells that hold the separator {delimiter!r} in double quotes")
            if len(rows) == MOST_ROWS:
                raise starling.discard(f"{field}: more than {MOST_ROWS} rows")
            rows.append([cell(value) for value in row] + [None] * (len(names) - len(row)))
    except csv.Error as error:
        raise starling.discard(f"{field}: line {reader.line_num}: {error}; hint: double quotes inside of a quoted cell are written twice") from None
    if not names:
        raise starling.discard(f"{field}: the text is empty; hint: its first line holds the names of the columns")
    seen = {}
    for i, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            names[i] = f"{name}_{seen[name]}"
    return names, rows


NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?")


def cell(text):
    if NUMBER.fullmatch(text):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    return text if text.strip() else None


TOKEN = re.compile(r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"|[^\W\d]\w*)|(?P<sign><=|>=|<>|!=|\|\||[-+*/%=<>(),.;]))""")
KEYWORDS = set("select distinct from join left inner outer on where group by having order limit offset as and or not in between like is null case when then else end asc desc true false".split())
AGGREGATES = {"count", "sum", "avg", "min", "max", "median", "group_concat"}


class Parser:
    def __init__(self, query):
        self.query, self.tokens, self.at, self.depth = query, [], 0, 0
        place = 0
        while query[place:].strip():
            match = TOKEN.match(query, place)
            if not match:
                place += len(query[place:]) - len(query[place:].lstrip())
                self.fail(f"{query[place]!r} is not understood", place)
            text = match[match.lastgroup]
            kind = match.lastgroup
            if kind == "name" and text.lower() in KEYWORDS:
                kind, text = "word", text.lower()
            self.tokens.append((kind, text, match.start(match.lastgroup)))
            place = match.end()
        self.tokens.append(("end", "the end", len(query)))

    def fail(self, why, place=None):
        place = self.tokens[self.at][2] if place is None else place
        raise starling.discard(f"query: character {place + 1}: {why}; hint: write SELECT a, count(*) AS n FROM t WHERE b > 1 GROUP BY a ORDER BY n DESC LIMIT 10")

    def take(self, *words):
        kind, text, _ = self.tokens[self.at]
        if kind in ("word", "sign") and text in words:
            self.at += 1
            return text
        return None

    def need(self, *words):
        return self.take(*words) or self.fail(f"{' or '.join(words).upper()} is expected, not {self.tokens[self.at][1]!r}")

    def name(self):
        kind, text, _ = self.tokens[self.at]
        if kind != "name":
            self.fail(f"a name is expected, not {text!r}")
        self.at += 1
        return text[1:-1].replace('""', '"') if text[0] == '"' else text

    def many(self, read):
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def select(self):
        self.need("select")
        q = {"distinct": self.take("distinct"), "columns": self.many(self.column), "joins": []}
        self.need("from")
        q["from"] = self.table()
        while word := self.take("join", "left", "inner"):
            if word != "join":
                self.take("outer")
                self.need("join")
            table = self.table()
            self.need("on")
            q["joins"].append((word == "left", table, self.expression()))
        q["where"] = self.expression() if self.take("where") else None
        q["group"] = self.many(self.expression) if self.take("group") and self.need("by") else None
        q["having"] = self.expression() if self.take("having") else None
        q["order"] = self.many(self.ordering) if self.take("order") and self.need("by") else []
        q["limit"] = self.count() if self.take("limit") else None
        q["offset"] = self.count() if self.take("offset") else 0
        self.take(";")
        if self.tokens[self.at][0] != "end":
            self.fail(f"{self.tokens[self.at][1]!r} is not expected here")
        return q

    def count(self):
        kind, text, _ = self.tokens[self.at]
        if kind != "number" or "." in text:
            self.fail("a whole number is expected")
        self.at += 1
        return int(text)

    def table(self):
        name, place = self.name(), self.tokens[self.at - 1][2]
        alias = self.name() if self.take("as") or self.tokens[self.at][0] == "name" else name
        return name, alias, place

    def column(self):
        if self.take("*"):
            return "*", None
        start = self.tokens[self.at][2]
        value = self.expression()
        written = self.query[start:self.tokens[self.at][2]].strip()
        if self.take("as") or self.tokens[self.at][0] == "name":
            return value, self.name()
        return value, value[2] if value[0] == "column" else written

    def ordering(self):
        value = self.expression()
        return value, self.take("asc", "desc") == "desc"

    def expression(self, level=0):
        self.depth += 1
        if self.depth > 40:
            self.fail("the expression is nested too deeply")
        try:
            return self.binary(level)
        finally:
            self.depth -= 1

    LEVELS = (("or",), ("and",), None, ("+", "-", "||"), ("*", "/", "%"))

    def binary(self, level):
        if level == 5:
            return self.primary()
        if level == 2:
            return self.comparison()
        left = self.binary(level + 1)
        while sign := self.take(*self.LEVELS[level]):
            left = sign, left, self.binary(level + 1)
        return left

    def comparison(self):
        if self.take("not"):
            return "not", self.comparison()
        left = self.binary(3)
        while True:
            if sign := self.take("=", "<>", "!=", "<", "<=", ">", ">="):
                left = sign, left, self.binary(3)
            elif self.take("is"):
                negated = self.take("not")
                self.need("null")
                left = ("not", ("null", left)) if negated else ("null", left)
            else:
                negated = self.take("not")
                if self.take("in"):
                    self.need("(")
                    value = "in", left, self.many(self.expression)
                    self.need(")")
                elif self.take("between"):
                    low = self.binary(3)
                    self.need("and")
                    value = "and", (">=", left, low), ("<=", left, self.binary(3))
                elif self.take("like"):
                    value = "like", left, self.binary(3)
                elif negated:
                    self.fail("IN, BETWEEN or LIKE is expected after NOT")
                else:
                    return left
                left = ("not", value) if negated else value

    def primary(self):
        kind, text, place = self.tokens[self.at]
        if self.take("("):
            if self.tokens[self.at][1] == "select":
                self.fail("there are no subqueries")
            value = self.expression()
            self.need(")")
            return value
        if self.take("-"):
            return "minus", self.expression(5)
        if word := self.take("null", "true", "false"):
            return "value", {"null": None, "true": True, "false": False}[word]
        if self.take("case"):
            arms = []
            while self.take("when"):
                condition = self.expression()
                self.need("then")
                arms.append((condition, self.expression()))
            other = self.expression() if self.take("else") else ("value", None)
            self.need("end")
            return "case", arms, other
        self.at += 1
        if kind == "number":
            return "value", float(text) if "." in text else int(text)
        if kind == "text":
            return "value", text[1:-1].replace("''", "'")
        self.at -= 1
        name = self.name()
        if self.take("("):
            return self.function(name.lower(), place)
        if self.take("."):
            return "column", name, self.name(), place
        return "column", None, name, place

    def function(self, name, place):
        if name in AGGREGATES:
            if name == "count" and self.take("*"):
                self.need(")")
                return "aggregate", "count", None, False
            distinct = bool(self.take("distinct"))
            value = self.expression()
            if contains_aggregate(value):
                self.fail(f"{name} cannot hold another aggregate", place)
            self.need(")")
            return "aggregate", name, value, distinct
        if name not in FUNCTIONS:
            self.fail(f"there is no function {name}; there are {', '.join(sorted(AGGREGATES | set(FUNCTIONS)))}", place)
        args = [] if self.tokens[self.at][1] == ")" else self.many(self.expression)
        self.need(")")
        low, high, _ = FUNCTIONS[name]
        if not low <= len(args) <= high:
            self.fail(f"{name} takes {low if low == high else f'{low} to {high}'} arguments, not {len(args)}", place)
        return "function", name, args, place


def contains_aggregate(node):
    if isinstance(node, tuple) and node and node[0] == "aggregate":
        return True
    return isinstance(node, (tuple, list)) and any(contains_aggregate(part) for part in node)


def run(q, tables):
    scope, rows = [], [()]
    for left, (name, alias, place), on in [(False, q["from"], None), *q["joins"]]:
        if name.lower() not in tables:
            raise starling.discard(f"query: character {place + 1}: there is no table {name!r}; hint: tables has {', '.join(tables) or 'none'}")
        if any(alias.lower() == known for known, _ in scope):
            raise starling.discard(f"query: character {place + 1}: the table {alias!r} is named twice; hint: give it another name: FROM {name} AS a JOIN {name} AS b ON ...")
        names, more = tables[name.lower()]
        before = list(scope)
        scope += ((alias.lower(), column) for column in names)
        rows = more if on is None else join(rows, more, left, on, before, scope, len(names))
    where = compile(q["where"], scope) if q["where"] else None
    if where:
        rows = [row for row in rows if where(row) is True]
    columns = []
    for value, name in q["columns"]:
        if value == "*":
            repeated = [column for _, column in scope]
            columns += ((("at", i), column if repeated.count(column) == 1 else f"{alias}.{column}") for i, (alias, column) in enumerate(scope))
        else:
            columns.append((value, name))
    aliases = {name.lower(): value for value, name in columns}
    order = [(aliased(value, aliases, columns, scope), down) for value, down in q["order"]]
    having = aliased(q["having"], aliases, columns, scope) if q["having"] else None
    parts = [value for value, _ in columns] + [value for value, _ in order]
    if q["group"] or having or any(map(contains_aggregate, parts)):
        group = [aliased(value, aliases, columns, scope) for value in q["group"] or []]
        parts, having, rows = grouped(rows, parts, having, group, scope)
        if having:
            rows = [row for row in rows if having(row) is True]
    else:
        parts = [compile(part, scope) for part in parts]
    out = [[part(row) for part in parts] for row in rows]
    width = len(columns)
    if q["distinct"]:
        first = {}
        for row in out:
            first.setdefault(tuple(map(key, row[:width])), row)
        out = list(first.values())
    for i, (_, down) in reversed(list(enumerate(order, width))):
        out.sort(key=lambda row: rank(row[i]), reverse=down)
    end = None if q["limit"] is None else q["offset"] + q["limit"]
    return [name for _, name in columns], [row[:width] for row in out[q["offset"]:end]]


# aliased puts in the expression for a name of the result, or for its number.
def aliased(node, aliases, columns, scope):
    if isinstance(node, list):
        return [aliased(part, aliases, columns, scope) for part in node]
    if not isinstance(node, tuple):
        return node
    match node:
        case ("value", int(n)) if not isinstance(n, bool) and 1 <= n <= len(columns) and columns is not None:
            return columns[n - 1][0]
        case ("column", None, name, _) if name.lower() in aliases and not any(name.lower() == column.lower() for _, column in scope):
            return aliases[name.lower()]
        case ("column", *_) | ("value", _):
            return node
    return tuple(aliased(part, aliases, (), scope) for part in node)


def join(rows, more, left, on, before, scope, width):
    out, pairs = [], 0
    test = compile(on, scope)
    index, probe = None, None
    if on[0] == "=":  # equal columns of both sides are found by an index
        sides = [columns_of(side, scope) for side in on[1:]]
        for own, other in ((0, 1), (1, 0)):
            if sides[own] and sides[other] and max(sides[own]) < len(before) <= min(sides[other]):
                probe, value = compile(on[1 + own], scope), compile(on[1 + other], scope)
                index, empty = {}, (None,) * len(before)
                for row in more:
                    index.setdefault(key(value((*empty, *row))), []).append(row)
    for row in rows:
        found = False
        if index is not None:
            value = probe(row)
            candidates = index.get(key(value), ()) if value is not None else ()
        else:
            candidates = more
        for other in candidates:
            pairs += 1
            if pairs > MOST_PAIRS:
                raise starling.discard(f"query: the join compares more than {MOST_PAIRS:,} pairs of rows; hint: join ON one equal column, such as a.id = b.id")
            both = (*row, *other)
            if test(both) is True:
                out.append(both)
                found = True
        if left and not found:
            out.append((*row, *(None,) * width))
    return out


def columns_of(node, scope):
    if isinstance(node, tuple) and node and node[0] == "column":
        return {position(node, scope)}
    return set().union(*(columns_of(part, scope) for part in node)) if isinstance(node, (tuple, list)) else set()


def position(node, scope):
    _, table, name, place = node
    found = [i for i, (alias, column) in enumerate(scope) if column == name and table in (None, alias)] or \
        [i for i, (alias, column) in enumerate(scope) if column.lower() == name.lower() and (table is None or table.lower() == alias)]
    if len(found) != 1:
        why = f"the column {name!r} is in several tables; hint: name the table, such as {scope[found[0]][0]}.{name}" if found else \
            f"there is no column {table + '.' if table else ''}{name}; hint: there are {', '.join(dict.fromkeys(column for _, column in scope))[:400]}"
        raise starling.discard(f"query: character {place + 1}: {why}")
    return found[0]


# grouped puts the rows into groups. A row of the result is (values of the group's expressions, rows of the group).
def grouped(rows, parts, having, group, scope):
    keys = [compile(value, scope) for value in group]
    found = {} if group else {(): ((), [])}
    for row in rows:
        values = [value(row) for value in keys]
        found.setdefault(tuple(map(key, values)), (values, []))[1].append(row)

    def over(node):
        stripped = bare(node)
        for i, value in enumerate(group):
            if bare(value) == stripped:
                return lambda row: row[0][i]
        match node:
            case ("aggregate", name, value, distinct):
                return aggregate(name, compile(value, scope) if value else None, distinct)
            case ("column", _, name, place):
                position(node, scope)
                raise starling.discard(f"query: character {place + 1}: {name} is neither in GROUP BY nor in an aggregate; hint: add it to GROUP BY, or write min({name})")
            case ("at", i):
                raise starling.discard(f"query: SELECT * cannot be grouped ({scope[i][1]} is not in GROUP BY); hint: name the columns")
        return build(node, over)

    return [over(part) for part in parts], over(having) if having else None, list(found.values())


# bare is an expression without its places in the query.
def bare(node):
    if isinstance(node, list):
        return [bare(part) for part in node]
    if not isinstance(node, tuple):
        return node
    if node and node[0] == "column":
        return node[0], node[2].lower()
    return tuple(bare(part) for part in (node[:-1] if node and node[0] == "function" else node))


def aggregate(name, value, distinct):
    def compute(row):
        if value is None:
            return len(row[1])
        values = [v for v in map(value, row[1]) if v is not None]
        if distinct:
            values = list({key(v): v for v in values}.values())
        if name == "count":
            return len(values)
        if not values:
            return None
        if name == "group_concat":
            return ", ".join(map(text, values))
        if name in ("min", "max"):
            return (min if name == "min" else max)(values, key=rank)
        for v in values:
            if not is_number(v):
                raise starling.discard(f"query: {name} meets {v!r}, which is not a number; hint: leave such rows out with WHERE, or use number(...)")
        if name == "median":
            values.sort()
            middle = len(values) // 2
            return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
        total = sum(values) if all(isinstance(v, int) for v in values) else math.fsum(values)
        return total if name == "sum" else total / len(values)

    return compute


def compile(node, scope):
    match node:
        case ("column", *_):
            i = position(node, scope)
            return lambda row: row[i]
        case ("at", i):
            return lambda row: row[i]
        case ("aggregate", name, *_):
            raise starling.discard(f"query: {name}() cannot stand in WHERE, ON or GROUP BY; hint: use HAVING")
    return build(node, lambda part: compile(part, scope))


# build makes a function of a row from an expression, whose parts made compiles.
def build(node, made):
    match node:
        case ("value", value):
            return lambda row: value
        case ("not", a):
            a = made(a)
            return lambda row: None if (v := a(row)) is None else v is not True
        case ("null", a):
            a = made(a)
            return lambda row: a(row) is None
        case ("minus", a):
            a = made(a)
            return lambda row: arithmetic("-", 0, a(row))
        case ("and", a, b):
            a, b = made(a), made(b)
            return lambda row: False if (x := a(row)) is False or (y := b(row)) is False else None if x is None or y is None else x is True and y is True
        case ("or", a, b):
            a, b = made(a), made(b)
            return lambda row: True if (x := a(row)) is True or (y := b(row)) is True else None if x is None or y is None else False
        case ("in", a, list(values)):
            a, values = made(a), [made(value) for value in values]
            return lambda row: None if (x := a(row)) is None else any(compare("=", x, value(row)) for value in values)
        case ("like", a, b):
            a, b = made(a), made(b)
            return lambda row: None if (x := a(row)) is None or (y := b(row)) is None else like(text(x), text(y))
        case ("case", arms, other):
            arms, other = [(made(condition), made(value)) for condition, value in arms], made(other)
            return lambda row: next((value(row) for condition, value in arms if condition(row) is True), None) if any(condition(row) is True for condition, _ in arms) else other(row)
        case ("function", name, args, _):
            args, call = [made(arg) for arg in args], FUNCTIONS[name][2]
            if name == "coalesce":
                return lambda row: next((v for arg in args if (v := arg(row)) is not None), None)
            return lambda row: None if (values := [arg(row) for arg in args])[0] is None else call(*values)
        case ("=" | "<>" | "!=" | "<" | "<=" | ">" | ">=" as sign, a, b):
            a, b = made(a), made(b)
            return lambda row: compare(sign, a(row), b(row))
        case ("||", a, b):
            a, b = made(a), made(b)
            return lambda row: None if (x := a(row)) is None or (y := b(row)) is None else text(x) + text(y)
        case (sign, a, b):
            a, b = made(a), made(b)
            return lambda row: arithmetic(sign, a(row), b(row))
    raise starling.discard("query: the expression is not understood")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# key is what makes two values equal.
def key(value):
    if isinstance(value, (list, dict)):
        return "json", json.dumps(value, sort_keys=True)
    return "number" if is_number(value) else type(value).__name__, value


# rank orders values: NULL, booleans, numbers, text, the rest.
def rank(value):
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    return (2, value) if is_number(value) else (3, value) if isinstance(value, str) else (4, json.dumps(value))


def compare(sign, a, b):
    if a is None or b is None:
        return None
    if is_number(a) != is_number(b) and isinstance(a, (int, float, str)) and isinstance(b, (int, float, str)):
        a, b = text(a), text(b)
    a, b = rank(a), rank(b)
    match sign:
        case "=":
            return a == b
        case "<>" | "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
    return a >= b


def arithmetic(sign, a, b):
    if a is None or b is None:
        return None
    for value in (a, b):
        if not is_number(value):
            raise starling.discard(f"query: {sign} meets {value!r}, which is not a number; hint: use number(x), which is NULL for other text, or || to join text")
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    if b == 0:
        return None
    if sign == "%":
        return math.fmod(a, b) if isinstance(a, float) or isinstance(b, float) else int(math.fmod(a, b))
    return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b


def like(value, pattern):
    return re.fullmatch("".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in re.sub("%+", "%", pattern)), value, re.I | re.S) is not None


def text(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def number(value):
    found = cell(value.strip().replace(",", "")) if isinstance(value, str) else value
    return found if is_number(found) else None


def substr(value, first=1, length=None):
    value = text(value)
    start = max(int(first or 1) - 1, 0) if (first or 1) > 0 else max(len(value) + int(first), 0)
    return value[start:None if length is None else start + max(int(length), 0)]


FUNCTIONS = {  # name: least and most arguments, function
    "lower": (1, 1, lambda x: text(x).lower()),
    "upper": (1, 1, lambda x: text(x).upper()),
    "trim": (1, 1, lambda x: text(x).strip()),
    "length": (1, 1, lambda x: len(x) if isinstance(x, list) else len(text(x))),
    "substr": (2, 3, substr),
    "replace": (3, 3, lambda x, a, b: text(x).replace(text(a), text(b))),
    "round": (1, 2, lambda x, places=0: arithmetic("+", x, 0) if isinstance(x, int) or not is_number(x) else round(x, int(places)) if places else int(round(x))),
    "abs": (1, 1, lambda x: abs(arithmetic("+", x, 0))),
    "coalesce": (1, 20, None),
    "number": (1, 1, number),
    "text": (1, 1, text),
}
