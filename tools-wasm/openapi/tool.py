"""Each operation of the OpenAPI 3 file in spec.py is a tool. The host inserts the secrets, so the tools never see them."""

import inspect
import json
import keyword
import re
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import starling
from spec import TEXT

SERVER = ""  # the address of the API, if it is not the first server of the file
ONLY = ()  # the operationIds and tags that become tools; all, if it is empty. A module has at most 64 tools

METHODS = ("get", "put", "post", "delete", "patch")
PLAIN = ("type", "enum", "const", "format", "description", "default", "required", "minimum", "maximum", "exclusiveMinimum",
         "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems")
DEPTH = 4  # of references within references. What lies deeper may be any value
FORM = "application/x-www-form-urlencoded"
SPEC = json.loads(TEXT)


def _look(node):
    """What a reference stands for."""
    while isinstance(node, dict) and "$ref" in node:
        reference, node = node["$ref"], SPEC
        if not reference.startswith("#/"):
            raise ValueError(f"the reference {reference} leads out of the file: bundle the file first")
        for part in reference[2:].split("/"):
            node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


def _schema(node, above=()):
    """The JSON Schema of a schema of OpenAPI 3.0 or 3.1, without references. One that contains itself ends in any value."""
    if isinstance(node, bool):
        return node
    if "$ref" in node:
        if node["$ref"] in above or len(above) == DEPTH:
            return {}
        above, node = (*above, node["$ref"]), _look(node)
        return _schema(node, above)
    made = {key: node[key] for key in PLAIN if key in node}
    if "properties" in node:
        made["properties"] = {name: _schema(inner, above) for name, inner in node["properties"].items()}
    for key in "items", "additionalProperties":
        if key in node:
            made[key] = _schema(node[key], above)
    for key in "anyOf", "oneOf", "allOf":
        if key in node:
            made[key] = [_schema(inner, above) for inner in node[key]]
    if node.get("nullable") and "type" in made:  # 3.0
        made["type"] = [made["type"], "null"]
        if "enum" in made and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
    for bound, exact in ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"):  # booleans in 3.0
        if isinstance(made.get(exact), bool) and made.pop(exact):
            made[exact] = made.pop(bound)
    return made


def _secrets(operation):
    """The headers and the query of an operation with placeholders. A secret has the name of its scheme, in capitals."""
    headers, query = {}, []
    schemes = SPEC.get("components", {}).get("securitySchemes", {})
    for name in next(iter(operation.get("security", SPEC.get("security", ()))), ()):
        scheme, value = _look(schemes[name]), "{{secret:%s}}" % re.sub(r"\W", "_", name).upper()
        if scheme["type"] == "apiKey" and scheme["in"] == "query":
            query.append((scheme["name"], value))
        elif scheme["type"] == "apiKey":
            headers[scheme["name"] if scheme["in"] == "header" else "Cookie"] = value if scheme["in"] == "header" else f"{scheme['name']}={value}"
        else:
            headers["Authorization"] = ("Basic " if scheme.get("scheme", "").lower() == "basic" else "Bearer ") + value
    return headers, query


def _text(value):
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _pairs(key, value, parameter):
    """A parameter in the query, in the styles form and deepObject."""
    if isinstance(value, dict):
        deep = parameter.get("style") == "deepObject"
        return [(f"{key}[{name}]" if deep else name, _text(inner)) for name, inner in value.items()]
    if isinstance(value, list) and parameter.get("explode", True):
        return [(key, _text(inner)) for inner in value]
    return [(key, _text(value))]


def _declare(path, method, item, operation, server):
    name = operation.get("operationId") or f"{method}{path}"
    name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()).strip("_")[:64]
    fields, hints, places = [], {}, {}

    def add(key, parameter, schema):
        word = re.sub(r"\W", "_", key)
        if keyword.iskeyword(word) or not word.isidentifier():
            word = f"p_{word}"
        while word in places:
            word += "_"
        if parameter.get("description"):
            schema = {**schema, "description": parameter["description"].replace("\r", "")}
        places[word], hints[word] = (key, parameter), Annotated[Any, schema]
        fields.append(inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=inspect.Parameter.empty if parameter.get("required") else None))

    given = [_look(parameter) for parameter in [*item.get("parameters", ()), *operation.get("parameters", ())]]
    for parameter in {(parameter["name"], parameter["in"]): parameter for parameter in given}.values():
        if parameter["in"] != "cookie" and parameter["name"].lower() not in ("accept", "content-type", "authorization"):
            add(parameter["name"], parameter, _schema(parameter.get("schema", {})))
    body = _look(operation.get("requestBody", {}))
    kind = next((kind for kind in body.get("content", ()) if kind == FORM or re.fullmatch(r"application/([\w.-]+\+)?json(;.*)?", kind)), None)
    if body and not kind:
        return  # neither JSON nor a form
    if body:
        add("body", {**body, "in": "body"}, _schema(body["content"][kind].get("schema", {})))

    def call(**values):
        route, data = path, None
        headers, query = _secrets(operation)
        headers["Accept"] = "application/json, */*;q=0.5"
        for word, value in values.items():
            key, parameter = places[word]
            if parameter["in"] == "path":
                if _text(value) in ("", ".", ".."):
                    raise starling.discard(f"{word} is {_text(value)!r}, which cannot stand in a path")
                route = route.replace("{%s}" % key, quote(_text(value), safe=","))
            elif parameter["in"] == "query":
                query += _pairs(key, value, parameter)
            elif parameter["in"] == "header":
                headers[key] = _text(value)
            else:
                headers["Content-Type"] = kind
                data = urlencode([pair for field in value for pair in _pairs(field, value[field], {})]) if kind == FORM else json.dumps(value)
        return _result(name, starling.request(method, server + route + ("?" + urlencode(query) if query else ""), headers=headers, body=data))

    text = "\n\n".join(part.strip() for part in (operation.get("summary"), operation.get("description")) if part)
    call.__name__, call.__doc__ = name, text.replace("\r", "")[:1000] or f"{method.upper()} {path}"
    call.__signature__, call.__annotations__ = inspect.Signature(fields), hints
    globals()[name] = starling.tool(effects=[urlsplit(server).netloc], idempotent=method in ("get", "put", "delete"))(call)


def _result(name, response):
    status = response.status
    if status < 300:
        return response.json() if response.body and "json" in response.headers.get("content-type", "") else response.text or None
    text = f"{name}: the API answers {status}: {response.text[:500]}"
    if status == 429:
        after = response.headers.get("retry-after", "")
        wait = max(1, int(after)) if after.isdigit() else 30
        raise starling.snooze(wait, f"{text}; try again in {wait} seconds")
    raise (starling.transient if status >= 500 else starling.cancel if status in (401, 403) else starling.discard)(text)


def _server():
    first = next(iter(SPEC.get("servers", ())), {"url": ""})
    url = SERVER or re.sub(r"\{(\w+)\}", lambda variable: str(first["variables"][variable[1]]["default"]), first["url"])
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"the API has the address {url!r}: write the whole address to SERVER in tool.py")
    return url.rstrip("/")


for _path, _item in SPEC["paths"].items():
    _item = _look(_item)
    for _method in METHODS:
        _operation = _item.get(_method)
        if _operation and (not ONLY or _operation.get("operationId") in ONLY or set(ONLY) & set(_operation.get("tags", ()))):
            _declare(_path, _method, _item, _operation, _server())
