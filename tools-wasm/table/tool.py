"""Queries over tables, in the SQL of SQLite."""

import csv
import io
import json
import re
import sqlite3
import statistics
from typing import Annotated, Any, Literal, TypedDict

import starling

MOST_CHARS, MOST_ROWS, MOST_QUERY = 2_000_000, 50_000, 10_000


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
    """Runs one SELECT of SQLite over tables: CSV or TSV text, JSON text, or arrays of objects. Use it to filter, count, sum, group, sort and join data.

    All of a query in SQLite works: joins, subqueries, WITH [RECURSIVE], UNION, GROUP BY, HAVING, window functions, date(), strftime(), json_extract().
    There are also median(x), number(x), which reads 1,234.5 and is NULL for other text, and x REGEXP 'pattern'. LIKE ignores case.
    Integers divide to integers: write a * 1.0 / b. Dates are text such as 2026-01-31. true and false are 1 and 0, arrays and objects are JSON text.
    A column with other letters stands in double quotes: "Unit price". Text stands in single quotes.

    query: For example SELECT city, count(*) AS n, sum(price) FROM orders WHERE price > 5 GROUP BY city ORDER BY n DESC
    tables: The tables by name, such as {"orders": "id,city,price\\n1,Rome,9.5\\n"}. Empty cells are NULL; cells that look like numbers are numbers, but 007 stays text
    format: How to read text; auto looks at it
    limit: The most rows to return; total counts all
    """
    if len(query) > MOST_QUERY:
        raise starling.discard(f"query: {len(query)} characters; the limit is {MOST_QUERY}")
    db = sqlite3.connect(":memory:", isolation_level=None)
    known = [fill(db, name, *read_table(f"tables.{name}", content, format)) for name, content in tables.items()]
    extend(db, query)
    try:
        cursor = db.execute(query)
        if cursor.description is None:
            raise sqlite3.OperationalError("not authorized")
        rows = cursor.fetchmany(limit)
        total = len(rows) + sum(1 for _ in cursor)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise starling.discard(f"query: {explained(str(error).rstrip('.'), known)}") from None
    return {"columns": [column[0] for column in cursor.description], "rows": [list(map(shown, row)) for row in rows], "total": total, "more": total > limit}


# fill makes a table, whose columns of one type compare with texts as this type, and returns how a message shows it.
def fill(db, name, names, rows):
    names = names or ["column1"]
    columns = [list(map(stored, values)) if {list, dict} & set(map(type, values)) else values for values in zip(*rows)]
    types = []
    for kinds in [set(map(type, values)) - {type(None)} for values in columns] or [set()] * len(names):
        types.append("INTEGER" if kinds <= {int, bool} else "REAL" if kinds <= {int, bool, float} else "TEXT" if kinds == {str} else "")
        if str in kinds and len(kinds) > 1:
            Sum.mixed = True
    try:
        db.execute(f"CREATE TABLE {quoted(name)} ({', '.join(f'{quoted(column)} {kind}' for column, kind in zip(names, types))})")
        db.executemany(f"INSERT INTO {quoted(name)} VALUES ({', '.join('?' * len(names))})", zip(*columns))
    except (sqlite3.Error, OverflowError) as error:
        raise starling.discard(f"tables.{name}: {error}") from None
    return f"{name}({', '.join(names)})"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def stored(value):
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def shown(value):
    return value.hex() if isinstance(value, bytes) else value


class Sum:
    """An aggregate that refuses text, which SQLite takes as 0."""

    mixed, refused = False, None  # whether a column has numbers and text; the text that was met

    def __init__(self):
        self.values = []

    def step(self, value):
        if isinstance(value, (str, bytes)):
            Sum.refused = value
            raise TypeError
        if value is not None:
            self.values.append(value)

    def inverse(self, value):
        if value is not None:
            self.values.remove(value)

    def value(self):
        return self.compute(self.values) if self.values else None

    def finalize(self):
        return self.value()

    compute = staticmethod(sum)


class Average(Sum):
    compute = staticmethod(statistics.fmean)


class Median(Sum):
    compute = staticmethod(statistics.median)


READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


# extend adds functions, and then lets the query do nothing but read.
def extend(db, query):
    db.create_window_function("median", 1, Median)
    if Sum.mixed:
        db.create_window_function("sum", 1, Sum)
        db.create_window_function("avg", 1, Average)
    db.create_function("number", 1, number, deterministic=True)
    db.create_function("regexp", 2, lambda pattern, value: None if value is None else re.search(pattern, str(value)) is not None, deterministic=True)
    db.create_function("lower", 1, lambda value: value.lower() if isinstance(value, str) else value, deterministic=True)
    db.create_function("upper", 1, lambda value: value.upper() if isinstance(value, str) else value, deterministic=True)
    if not query.isascii():  # SQLite knows the case of ASCII
        db.create_function("like", 2, like, deterministic=True)
    db.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, False)
    db.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)


def like(pattern, value):
    if value is None or pattern is None:
        return None
    return re.fullmatch("".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in re.sub("%+", "%", str(pattern))), str(value), re.I | re.S) is not None


def explained(error, known):
    if Sum.refused is not None:
        return f"sum, avg or median meets {Sum.refused!r}, which is not a number; hint: leave such rows out with WHERE, or write number(x), which is NULL for other text"
    if "user-defined" in error:
        return "REGEXP meets a pattern that is not one of Python's module re; hint: write x REGEXP '^[a-z]+$'"
    if "no such table" in error or "no such column" in error or "ambiguous" in error:
        return f"{error}; hint: there are {', '.join(known)[:1000] or 'no tables'}, and text stands in single quotes"
    if "not authorized" in error or "prohibited" in error or "one statement" in error:
        return f"{error}; hint: give one query that reads: SELECT ... or WITH ... SELECT ..."
    return f"{error}; hint: write SELECT a, count(*) AS n FROM t WHERE b > 1 GROUP BY a ORDER BY n DESC LIMIT 10"


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
    return list(unique(names)), [[row.get(name) for name in names] for row in content]


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
    return list(unique(names)), rows


NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?")
FIRST = frozenset("-0123456789")


def cell(text):
    if text[:1] in FIRST and NUMBER.fullmatch(text):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    return text if text.strip() else None


def number(value):
    found = cell(value.strip().replace(",", "")) if isinstance(value, str) else value
    return found if is_number(found) else None


# unique makes names of columns that differ in more than case, as SQL wants them.
def unique(names):
    seen = set()
    for name in names:
        made, n = name, 1
        while made.lower() in seen:
            n += 1
            made = f"{name}_{n}"
        seen.add(made.lower())
        yield made


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# key is what makes two values equal.
def key(value):
    if isinstance(value, (list, dict)):
        return "json", json.dumps(value, sort_keys=True)
    return "number" if is_number(value) else type(value).__name__, value
