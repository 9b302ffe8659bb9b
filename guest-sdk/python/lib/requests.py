"""The part of requests that programs use, over the host's HTTP."""

import base64 as _base64
import json as _json
from http import HTTPStatus as _HTTPStatus
from urllib.parse import urlencode as _urlencode, urljoin as _urljoin

import starling as _starling


class RequestException(OSError):
    def __init__(self, *args, response=None, kind=None):
        super().__init__(*args)
        self.response, self.kind = response, kind


class ConnectionError(RequestException): pass
class Timeout(RequestException): pass
class HTTPError(RequestException): pass
class TooManyRedirects(RequestException): pass


ConnectTimeout = ReadTimeout = Timeout
JSONDecodeError = _json.JSONDecodeError


class exceptions:
    RequestException, ConnectionError, Timeout, ConnectTimeout, ReadTimeout = RequestException, ConnectionError, Timeout, Timeout, Timeout
    HTTPError, TooManyRedirects, JSONDecodeError = HTTPError, TooManyRedirects, JSONDecodeError


class Response:
    def __init__(self, answer, history):
        self.status_code, self.headers, self.content, self.url, self.history = answer.status, answer.headers, answer.body, answer.url, history
        self.encoding = "utf-8"
        for part in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = part.strip().partition("=")
            if name.lower() == "charset":
                self.encoding = value.strip('"')
        try:
            self.reason = _HTTPStatus(self.status_code).phrase
        except ValueError:
            self.reason = ""

    @property
    def ok(self):
        return self.status_code < 400

    @property
    def is_redirect(self):
        return self.status_code in (301, 302, 303, 307, 308) and "location" in self.headers

    @property
    def text(self):
        try:
            return self.content.decode(self.encoding, "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self, **options):
        return _json.loads(self.content, **options)

    def raise_for_status(self):
        if self.status_code >= 400:
            side = "Client" if self.status_code < 500 else "Server"
            raise HTTPError(f"{self.status_code} {side} Error: {self.reason} for url: {self.url}", response=self)

    def iter_content(self, chunk_size=1, decode_unicode=False):
        for at in range(0, len(self.content), chunk_size or len(self.content) or 1):
            yield self.content[at:at + chunk_size]

    def iter_lines(self, decode_unicode=False):
        return iter((self.text if decode_unicode else self.content).splitlines())

    def close(self): pass
    def __bool__(self): return self.ok
    def __repr__(self): return f"<Response [{self.status_code}]>"
    def __enter__(self): return self
    def __exit__(self, *ignored): pass


def request(method, url, params=None, data=None, headers=None, cookies=None, files=None, auth=None, timeout=None,
            allow_redirects=True, proxies=None, hooks=None, stream=None, verify=None, cert=None, json=None):
    if files:
        raise NotImplementedError("requests in the sandbox sends no files: use data")
    fields = dict(headers or {})
    if params:
        text = params if isinstance(params, str) else _urlencode(params, doseq=True)
        url += ("&" if "?" in url else "?") + text if text else ""
    if isinstance(data, (dict, list, tuple)):
        data = _urlencode(data, doseq=True)
        fields.setdefault("Content-Type", "application/x-www-form-urlencoded")
    elif hasattr(data, "read"):
        data = data.read()
    if auth:
        fields["Authorization"] = "Basic " + _base64.b64encode(":".join(auth).encode()).decode()
    if cookies:
        fields["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    history = []
    while True:
        try:
            answer = _starling.request(method, url, headers=fields, body=data, json=json)
        except _starling.HTTPError as error:
            raise (Timeout if error.kind == "timeout" else ConnectionError)(str(error), kind=error.kind) from None
        response = Response(answer, history[:])
        if not allow_redirects or not response.is_redirect:
            return response
        history.append(response)
        if len(history) > 10:
            raise TooManyRedirects("more than 10 redirects", response=response)
        url = _urljoin(url, answer.headers["location"])
        if answer.status == 303 or answer.status in (301, 302) and method.upper() == "POST":
            method, data, json = "GET", None, None
            fields = {name: value for name, value in fields.items() if name.lower() != "content-type"}


def get(url, params=None, **more): return request("GET", url, params=params, **more)
def head(url, **more): return request("HEAD", url, **{"allow_redirects": False, **more})
def options(url, **more): return request("OPTIONS", url, **more)
def post(url, data=None, json=None, **more): return request("POST", url, data=data, json=json, **more)
def put(url, data=None, **more): return request("PUT", url, data=data, **more)
def patch(url, data=None, **more): return request("PATCH", url, data=data, **more)
def delete(url, **more): return request("DELETE", url, **more)


class Session:
    def __init__(self):
        self.headers, self.params, self.cookies, self.auth = {}, {}, {}, None

    def request(self, method, url, headers=None, params=None, cookies=None, auth=None, **more):
        params = params if isinstance(params, str) else {**self.params, **(dict(params) if params else {})}
        return request(method, url, headers={**self.headers, **(headers or {})}, params=params,
                       cookies={**self.cookies, **(cookies or {})}, auth=auth or self.auth, **more)

    def get(self, url, **more): return self.request("GET", url, **more)
    def head(self, url, **more): return self.request("HEAD", url, **{"allow_redirects": False, **more})
    def options(self, url, **more): return self.request("OPTIONS", url, **more)
    def post(self, url, data=None, json=None, **more): return self.request("POST", url, data=data, json=json, **more)
    def put(self, url, data=None, **more): return self.request("PUT", url, data=data, **more)
    def patch(self, url, data=None, **more): return self.request("PATCH", url, data=data, **more)
    def delete(self, url, **more): return self.request("DELETE", url, **more)
    def mount(self, *ignored): pass
    def close(self): pass
    def __enter__(self): return self
    def __exit__(self, *ignored): pass


session = Session
