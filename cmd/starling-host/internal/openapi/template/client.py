"""A client for the operations of an API: it writes requests, and reads responses."""

import base64
import hashlib
import json
import re
from urllib.parse import quote

import starling

JSON = re.compile(r"[a-z]+/([^;]*\+)?json *(;|$)")
UNSAFE = re.compile(r'["\\\x00-\x1f]')  # in the name of a file
FILE = {"text", "base64", "filename", "type"}
BETWEEN = {"comma": ",", "space": "%20", "pipe": "%7C"}


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def encoded(value):
    return quote(text(value), safe="")


def pairs(name, value, style):
    """A parameter of the query, a cookie or a field of a form, as names with encoded values."""
    if style == "deep" and isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [pair for key, inner in items for pair in pairs(f"{name}[{key}]", inner, style)]
    if isinstance(value, dict) and style == "json":
        return [(name, encoded(value))]
    if isinstance(value, dict) and style == "":
        return [(key, encoded(inner)) for key, inner in value.items()]
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list) and style in BETWEEN:
        return [(name, BETWEEN[style].join(map(encoded, value)))]
    if isinstance(value, list) and style != "json":
        return [(name, encoded(inner)) for inner in value]
    return [(name, encoded(value))]


def joined(found):
    return "&".join(f"{quote(name, safe='[]$')}={value}" for name, value in found)


def simple(value, style, write):
    """A parameter of the path, or a header."""
    if style == "json":
        return write(json.dumps(value))
    if isinstance(value, dict):
        return ",".join(f"{write(key)}{'=' if style == 'pairs' else ','}{write(inner)}" for key, inner in value.items())
    return ",".join(map(write, value)) if isinstance(value, list) else write(value)


def content(file):
    """The bytes of a file in the input: {"text": ...} or {"base64": ...}."""
    return base64.b64decode(file["base64"]) if "base64" in file else file.get("text", "").encode()


def multipart(fields):
    """The type and the bytes of a form with files, which are objects like {"text": ...} or {"base64": ...}."""
    parts = []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            head, data = f'Content-Disposition: form-data; name="{name}"', text(one).encode()
            if isinstance(one, dict) and ("text" in one or "base64" in one) and set(one) <= FILE:
                filename = UNSAFE.sub("_", one.get("filename", name))
                head, data = f'{head}; filename="{filename}"\r\nContent-Type: {one.get("type", "application/octet-stream")}', content(one)
            elif isinstance(one, (dict, list)):
                head += "\r\nContent-Type: application/json"
            parts.append(head.encode() + b"\r\n\r\n" + data + b"\r\n")
    boundary = hashlib.sha256(b"".join(parts)).hexdigest()[:32]
    mark = b"--" + boundary.encode()
    return f"multipart/form-data; boundary={boundary}", b"".join(mark + b"\r\n" + part for part in parts) + mark + b"--\r\n"


def fields(value, style):
    """The fields of a form. An object in it is JSON, unless the API wants name[key]=value."""
    return joined([pair for name, inner in value.items() for each in (inner if isinstance(inner, list) and style != "deep" else [inner])
                   for pair in pairs(name, each, style or "json")])


def send(server, headers, operation, arguments):
    """Makes the request of an operation."""
    path, query, headers, cookies, data = operation["path"], [], dict(headers), [], None
    for place, name, value in operation.get("secrets", ()):
        if place == "query":
            query.append((name, encoded(value)))
        elif place == "cookie":
            cookies.append(f"{name}={value}")
        else:
            headers[name] = value
    for parameter in operation.get("parameters", ()):
        key, style = parameter["key"], parameter.get("style", "")
        name, value = parameter.get("name", key), arguments.get(key)
        if value is None:
            continue
        if parameter["in"] == "path":
            if text(value) in ("", ".", ".."):
                raise starling.discard(f"{key} is {text(value)!r}, which cannot stand in a path")
            path = path.replace("{%s}" % name, simple(value, style, encoded))
        elif parameter["in"] == "query":
            query += pairs(name, value, style)
        elif parameter["in"] == "cookie":
            cookies += [f"{key}={inner}" for key, inner in pairs(name, value, style)]
        else:
            headers[name] = simple(value, style, text)
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    body = operation.get("body")
    if body and body["key"] in arguments:
        value, headers["Content-Type"] = arguments[body["key"]], body["type"]
        if body["kind"] == "json":
            data = json.dumps(value)
        elif body["kind"] == "form":
            data = fields(value, body.get("style", ""))
        elif body["kind"] == "multipart":
            headers["Content-Type"], data = multipart(value)
        else:
            data = value if body["kind"] == "text" else content(value)
    url = server + path + ("?" + joined(query) if query else "")
    return result(starling.request(operation["method"], url, headers=headers, body=data))


def result(response):
    """The value that a tool returns for a response, or its failure."""
    status, kind = response.status, response.headers.get("content-type", "").lower()
    if status >= 400:
        message = f"status {status}: {response.text[:500]}"
        if status == 429:
            after = response.headers.get("retry-after", "")
            raise starling.snooze(int(after) if after.isdigit() else 30, message)
        raise (starling.transient if status >= 500 else starling.cancel if status in (401, 403) else starling.discard)(message)
    if status >= 300:
        return {"status": status, "location": response.headers.get("location")}
    if not response.body:
        return None
    if JSON.match(kind):
        return response.json()
    try:
        return response.body.decode()
    except UnicodeDecodeError:
        return {"status": status, "type": kind, "base64": base64.b64encode(response.body).decode()}
