"""What a tool may use of its host: requests, other tools, the kind of a failure, the clock and random bits.

time, datetime, random, secrets and uuid work as usual: the host records what they draw, and a replay draws the same.
"""

import json as _json
import sys as _sys
import zlib as _zlib

import _starling

_KINDS = {-1: "denied", -2: "network", -3: "timeout", -4: "too_large", -5: "malformed"}

context = {}  # of the call: run_id, call_id, attempt, variables


class Failure(Exception):
    """A failure that says whether another attempt can help: see transient, cancel, discard and snooze."""

    def __init__(self, kind, message, retry_after_ms=None):
        super().__init__(str(message))
        self.kind, self.retry_after_ms = kind, retry_after_ms


def transient(message):
    """The failure of something that may work when it is tried again."""
    return Failure("transient", message)


def cancel(message):
    """The failure of a call that cannot go on, whose input is not at fault."""
    return Failure("cancel", message)


def discard(message):
    """The failure of an input that can never succeed."""
    return Failure("discard", message)


def snooze(seconds, message):
    """Ends a call that is to be tried again after a time."""
    return Failure("snooze", message, max(1, int(seconds * 1000)))


class HTTPError(OSError):
    """An exchange without a response. Its kind is denied, network, timeout, too_large or malformed."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def _kind(error):
    """The kind of the exchange without a response that an error of a library stands for, or None."""
    while isinstance(error, OSError) or type(error).__module__.startswith("urllib3."):
        if isinstance(error, HTTPError):
            return error.kind
        error = error.__cause__ or error.__context__ or next((part for part in error.args if isinstance(part, Exception)), None)


class ToolError(Exception):
    """The failure of a tool that was called: its tool, type and message."""

    def __init__(self, tool, type, message):
        super().__init__(f"{tool}: {message}")
        self.tool, self.type, self.message = tool, type, message


def now():
    """The time of day in nanoseconds since 1970, as one recorded effect."""
    return _starling.now()


def random():
    """64 random bits, as one recorded effect."""
    return _starling.random()


def log(*values):
    """Writes a line to the call's log."""
    print(*values, file=_sys.stderr)


class Headers(dict):
    """Headers by their names in any case."""

    def __init__(self, pairs=()):
        super().__init__()
        for name, value in pairs:
            name = name.lower()
            super().__setitem__(name, f"{self[name]}, {value}" if name in self else value)

    def __getitem__(self, name):
        return super().__getitem__(name.lower())

    def __contains__(self, name):
        return super().__contains__(name.lower())

    def get(self, name, default=None):
        return super().get(name.lower(), default)


class Response:
    """The response to a request: status, headers, body."""

    def __init__(self, status, headers, body, url):
        self.status, self.headers, self.body, self.url = status, headers, body, url

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return _json.loads(self.body)


_starting = True  # until the code at the top of a tool's file has run


def _exchange(message, http=_starling.http):
    """Makes an exchange, or a call of another tool, and returns the bytes of the response."""
    if _starting:
        raise RuntimeError("code at the top of the file runs once, before all calls, and makes no requests and no calls of tools: "
                           "make them in the function of the tool")
    code, answer = http(message)
    if code < 0:
        raise HTTPError(_KINDS.get(code, "failure"), answer.decode("utf-8", "replace"))
    return answer


def _ascii(url):
    """The URL with other letters written as the protocol wants them."""
    if url.isascii() and " " not in url:
        return url
    from urllib.parse import quote, urlsplit, urlunsplit
    parts = urlsplit(url)
    host = ".".join(label if label.isascii() else label.encode("idna").decode() for label in parts.netloc.split("."))
    return urlunsplit((parts.scheme, host, *(quote(part, "%/:=&?~+!$,;'@()*[]{}") for part in parts[2:])))


def request(method, url, *, headers=None, body=None, json=None, effect=None):
    """Makes one HTTP request. effect is its name in the record. Redirects are responses like any other."""
    fields = dict(headers or {})
    names = {name.lower() for name in fields}
    if json is not None:
        body = _json.dumps(json)
        if "content-type" not in names:
            fields["Content-Type"] = "application/json"
    if isinstance(body, str):
        body = body.encode()
    if effect:
        fields["Starling-Effect"] = effect
    if body is not None and "content-length" not in names:
        fields["Content-Length"] = len(body)
    for name, value in fields.items():
        if "\n" in f"{name}{value}" or "\r" in f"{name}{value}":
            raise ValueError(f"the header {name!r} has a line break in it")
    head = f"{method.upper()} {_ascii(url)} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
    head, _, answer = _exchange(head.encode() + (body or b"")).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    found = Headers(line.split(": ", 1) for line in lines)
    if answer and found.get("content-encoding", "").lower() in ("gzip", "x-gzip", "deflate"):
        answer = _zlib.decompress(answer, 47)
    return Response(int(first.split(" ", 2)[1]), found, answer, url)


class _Tools:
    """The other tools: tools.NAME(key=value), tools.NAME({...}) or tools["NAME"](...)."""

    __slots__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name, encode=_json.dumps, decode=_json.loads, exchange=_exchange):
        def call(*args, **kwargs):
            if args and (len(args) > 1 or kwargs):
                raise TypeError(f"tools.{name} takes keyword arguments, or one dict")
            body = encode({"tool": name, "input": args[0] if args else kwargs}).encode()
            try:
                answer = decode(exchange(b"POST starling:call HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)).partition(b"\r\n\r\n")[2])
            except HTTPError as error:
                raise ToolError(name, "denied", str(error)) from None
            if "error" in answer:
                raise ToolError(name, answer["error"].get("type"), answer["error"].get("message"))
            return answer["output"]

        call.__name__ = name
        return call

    def __iter__(self, name=None):
        raise TypeError("the tools cannot be listed: call one by its name, as in tools.NAME(key=value)")

    __contains__ = __len__ = __iter__

    def __repr__(self):
        return "tools"


tools = _Tools()


def tool(function=None, *, name=None, effects=None, idempotent=None, limits=None):
    """Declares more of a tool than its signature says, or makes a tool of a function without a docstring's help.

    effects: the hosts that it wants to reach; this grants nothing
    idempotent: True if repeating a call does no harm
    limits: fuel, memory_bytes and timeout_ms that it asks for
    """
    def declare(function):
        function.__starling__ = {"name": name, "effects": effects, "idempotent": idempotent, "limits": limits}
        return function

    return declare(function) if function else declare
