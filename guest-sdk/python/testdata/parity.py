"""Programs that use requests, urllib and http.client, for a comparison of Python itself with Python in the sandbox."""

import http.client
import io
import json
import urllib.error
import urllib.parse
import urllib.request

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth, HTTPDigestAuth
from requests.exceptions import ConnectionError, HTTPError, Timeout
from urllib3.util.retry import Retry


def programs(base, other, closed):
    # base and other are two names of one server, and nobody listens at closed
    get, post = requests.get, requests.post

    yield "params", lambda: get(base + "/echo", params={"q": "ä b", "cursor": None, "n": [1, 2], "e": ""}).url
    yield "params as a text", lambda: get(base + "/echo?a=1", params="b=2").url
    yield "params as pairs", lambda: get(base + "/echo", params=[("a", 1), ("a", b"2")]).url
    yield "a URL with letters", lambda: get(base + "/ä/é?x=ü y").url
    yield "a fragment", lambda: [get(base + "/echo#x").url, get(base + "/redirect/302?to=/echo#y").url, get(base + "/redirect/302?to=/echo%23z").url]
    yield "headers", lambda: get(base + "/echo", headers={"X-None": None, "x-small": "1", "User-Agent": "mine", "Accept": None}).status_code
    yield "a small content-type", lambda: post(base + "/echo", data={"a": 1}, headers={"content-type": "text/plain"}).status_code
    yield "a header with a line break", lambda: get(base + "/echo", headers={"X": "a\nb"})
    yield "a header that is a number", lambda: get(base + "/echo", headers={"X": 1})
    yield "json", lambda: post(base + "/echo", json={"a": [1, None, "ä"]}).json()
    yield "an empty json", lambda: [post(base + "/echo", json=value).status_code for value in ({}, [], None, 0)]
    yield "data", lambda: [post(base + "/echo", data=value).status_code for value in ({"a": [1, 2], "b": None}, [("a", "ä")], "text", b"bytes", io.BytesIO(b"file"), {})]
    yield "data from a generator", lambda: post(base + "/echo", data=iter([b"a", b"bc"])).status_code
    yield "files", lambda: post(base + "/echo", files={"f": ("a.txt", b"x", "text/plain"), "g": io.StringIO("y")}, data={"k": "v"}).status_code
    yield "methods", lambda: [requests.request(m, base + "/echo").status_code for m in ("PUT", "patch", "DELETE", "OPTIONS", "HEAD", "QUERY")]
    for code in (301, 302, 303, 307, 308):
        yield f"redirect {code}", lambda: [shown(post(base + f"/redirect/{code}?to=/echo", data="x")), shown(requests.put(base + f"/redirect/{code}?to=/echo", json=1))]
    yield "head is not redirected", lambda: shown(requests.head(base + "/redirect/302?to=/echo"))
    yield "no redirects", lambda: [(r := get(base + "/redirect/302?to=/echo", allow_redirects=False)).is_redirect, r.next.url, shown(r)]
    yield "too many redirects", lambda: get(base + "/redirect/302?to=/loop")
    yield "a redirect to nowhere", lambda: get(base + "/redirect/302?to=ftp://x/")
    yield "a relative redirect", lambda: shown(get(base + "/a/b/redirect/302?to=../c"))
    away = base + f"/redirect/302?to={urllib.parse.quote(other + '/echo')}"
    back = base + f"/redirect/307?to={urllib.parse.quote(other + '/redirect/307?to=' + urllib.parse.quote(base + '/echo'))}"
    for url in (away, back):
        yield "a header goes to no other host", lambda: shown(get(url, headers={"Authorization": "Bearer t", "Cookie": "s=1", "X-Key": "k"}))
        yield "auth goes to no other host", lambda: shown(get(url, auth=("u", "p")))
        yield "cookies go to no other host", lambda: shown(get(url, cookies={"s": "1"}))
        yield "a session's secrets go to no other host", lambda: shown(session(auth=("u", "p"), cookies={"a": "b"}).get(url))
        yield "a post goes to no other host with them", lambda: shown(post(url, json={"a": 1}, headers={"authorization": "t"}))
        yield "an address's user goes to no other host", lambda: shown(get(url.replace("://", "://u:p@", 1)))
    yield "cookies of a session", lambda: [(s := session()).get(base + "/cookies").cookies.get_dict(), s.get(base + "/echo").status_code, s.get(base + "/sub/x").status_code,
                                           s.get(other + "/echo").status_code, sorted(s.cookies.get_dict())]
    yield "cookies of a redirect", lambda: [(s := session()).get(base + "/redirect/302?to=/echo&cookie=r%3D1").status_code, s.cookies.get_dict()]
    yield "cookies of a request", lambda: [(s := session()).get(base + "/echo", cookies={"only": "once"}).status_code, s.get(base + "/echo").status_code]
    yield "two cookies", lambda: [(r := get(base + "/cookies")).headers["set-cookie"], r.raw.headers.getlist("Set-Cookie")]
    yield "a cookie that ends", lambda: [(s := session()).get(base + "/cookies").ok, s.get(base + "/cookies/end").ok, s.get(base + "/echo").ok]
    yield "basic authentication", lambda: [get(base + "/basic", auth=a).status_code for a in (("u", "p"), HTTPBasicAuth("u", "x"), None)]
    yield "digest authentication", lambda: [shown(get(base + "/digest", auth=HTTPDigestAuth("u", "p")))]
    yield "a user in the address", lambda: get(base.replace("://", "://u:p@") + "/basic").status_code
    yield "a timeout", lambda: get(base + "/slow", timeout=0.2)
    yield "two timeouts", lambda: get(base + "/slow", timeout=(3, 0.2))
    yield "a timeout that is long enough", lambda: get(base + "/echo", timeout=60).status_code
    yield "a wrong timeout", lambda: get(base + "/echo", timeout="x")
    yield "a caught timeout", lambda: caught(lambda: get(base + "/slow", timeout=0.2), Timeout)
    yield "nobody listens", lambda: get(closed)
    yield "no name", lambda: caught(lambda: get(closed), ConnectionError)
    yield "no scheme", lambda: get("example.com/x")
    yield "no host", lambda: get("http://")
    yield "another scheme", lambda: get("ftp://example.com/")
    yield "no port", lambda: get("http://example.com:port/")
    yield "raise_for_status", lambda: message(get(base + "/status/404").raise_for_status, base)
    yield "raise_for_status of a server", lambda: message(get(base + "/status/503").raise_for_status, base)
    yield "a response with an error", lambda: [(r := get(base + "/status/418")).ok, bool(r), r.reason, r.status_code == requests.codes.teapot]
    yield "the response of an error", lambda: caught(get(base + "/status/404").raise_for_status, HTTPError)
    yield "no JSON", lambda: get(base + "/text").json()
    yield "elapsed", lambda: get(base + "/echo").elapsed.total_seconds() >= 0
    yield "a response", lambda: [repr(r := get(base + "/echo")), r.headers["CONTENT-type"], r.encoding, r.request.method, r.request.headers["accept"], r.history, r.links]
    yield "encodings", lambda: [[(r := get(base + path)).encoding, r.text] for path in ("/latin", "/utf8", "/plain", "/bom")]
    yield "an encoding that is guessed", lambda: [(r := get(base + "/guess")).encoding, r.text, r.apparent_encoding]
    yield "gzip and deflate", lambda: [get(base + "/gzip").json(), get(base + "/deflate").text]
    yield "a broken gzip", lambda: get(base + "/brokengzip")
    yield "a stream", lambda: [list(get(base + "/lines", stream=True).iter_lines()), list(get(base + "/lines", stream=True).iter_content(5)),
                               list(get(base + "/lines", stream=True).iter_lines(decode_unicode=True)), get(base + "/lines", stream=True).raw.read(4)]
    yield "a stream in with", lambda: within(get(base + "/lines", stream=True))
    yield "no body", lambda: [(r := get(base + f"/status/{code}")).content + r.text.encode() for code in (204, 304)]
    yield "links", lambda: get(base + "/link").links["next"]["url"] == base + "/link?page=2"
    yield "a hook", lambda: hooked(base)
    yield "a prepared request", lambda: prepared(base)
    yield "a session", lambda: shown(session(headers={"X-A": "1", "X-B": "2"}, params={"k": "v"}).get(base + "/echo", headers={"X-B": None}, params={"l": "w"}))
    yield "retries", lambda: retried(base, 5)
    yield "retries that are not enough", lambda: retried(base, 1)
    yield "urllib", lambda: json.load(urllib.request.urlopen(base + "/echo"))
    yield "urllib with data", lambda: urllib.request.urlopen(urllib.request.Request(base + "/echo", data=b"x", headers={"X-A": "1"}, method="PUT")).status
    yield "urllib with a redirect", lambda: urllib.request.urlopen(base + "/redirect/302?to=/echo").geturl().removeprefix(base)
    yield "urllib with an error", lambda: urllib.request.urlopen(base + "/status/404")
    yield "urllib without a server", lambda: caught(lambda: urllib.request.urlopen(closed), urllib.error.URLError)
    yield "urllib with cookies", lambda: [(o := urllib.request.build_opener(urllib.request.HTTPCookieProcessor())).open(base + "/cookies").status, o.open(base + "/echo").status]
    yield "http.client", lambda: by_hand(base)
    yield "urllib3", lambda: [(r := urllib3.PoolManager().request("POST", base + "/echo", fields={"a": "b"})).status, json.loads(r.data)]
    yield "urllib3 with a redirect", lambda: urllib3.PoolManager().request("GET", away, headers={"Authorization": "t"}).status


def session(**values):
    made = requests.Session()
    for name, value in values.items():
        getattr(made, name).update(value) if hasattr(getattr(made, name), "update") else setattr(made, name, value)
    return made


def shown(response):
    return [response.status_code, [r.status_code for r in response.history], response.request.method, sorted(name.lower() for name in response.request.headers)]


def caught(function, kind):
    try:
        function()
    except kind as error:
        return ["caught", getattr(getattr(error, "response", None), "status_code", None)]


def message(function, base):
    try:
        function()
    except Exception as error:
        return str(error).replace(base, "")


def within(response):
    with response as r:
        return r.headers["content-type"]


def hooked(base):
    seen = []
    requests.get(base + "/redirect/302?to=/echo", hooks={"response": lambda r, *args, **options: seen.append(r.status_code)})
    return seen


def prepared(base):
    s = requests.Session()
    request = s.prepare_request(requests.Request("POST", base + "/echo", data={"a": "b"}, headers={"X-A": "1"}))
    request.headers["X-B"] = "2"
    return [s.send(request).status_code, request.body, request.path_url]


def retried(base, total):
    s = requests.Session()
    s.mount("http://", HTTPAdapter(max_retries=Retry(total=total, backoff_factor=0, status_forcelist=[503])))
    s.get(base + "/flaky/reset")
    return s.get(base + "/flaky").status_code


def by_hand(base):
    parts = urllib.parse.urlsplit(base)
    c = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    c.request("GET", "/echo?a=1", headers={"X-A": "1"})
    first = c.getresponse()
    first.read()
    c.request("POST", "/echo", body="text")
    return [first.status, first.reason, first.getheader("content-type"), c.getresponse().status]


def run(base: str, other: str, closed: str) -> list[list]:
    """Runs the programs, and returns what comes of each."""
    results = []
    for name, program in programs(base, other, closed):
        requests.get(base + "/mark", headers={"X-Name": name})
        try:
            result = program()
        except Exception as error:
            result = f"{type(error).__module__}.{type(error).__name__}"
        results.append([name, json.loads(json.dumps(result, default=lambda value: value.decode("latin-1")).replace(base, "BASE").replace(other, "OTHER"))])
    return results
