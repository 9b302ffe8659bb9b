# An echo server that reads a request in every way that Python knows: the charset and the
# coding that a header, a part, a document, a parameter or a field names, and any of its own.
# It prints its port, and answers with all of the readings as JSON.
import base64, codecs, email, email.header, email.utils, encodings.aliases, gzip, html, http.server, json, quopri, re, sys, unicodedata, urllib.parse, zlib


def named(text):
    found = re.findall(r"""(?:charset(?:\*\d*)?|encoding)['"\\]*\s*[=:]\s*['"\\]*([\w.:-]+)""", text, re.I)
    found += re.findall(r"_charset_\W+([\w-]+)", text) + re.findall(r"\*=([\w-]+)'", text) + re.findall(r"=\?([\w-]+)\?", text)
    return [name for name in found if known(name)]


def known(name):
    try:
        return codecs.lookup(name)._is_text_encoding
    except LookupError:
        return False


def unpacked(body, head):
    yield body
    for open_ in (gzip.decompress, zlib.decompress, lambda b: zlib.decompress(b, -15)):
        try:
            yield open_(body)
        except Exception:
            pass
    part = email.message_from_bytes(head + b"\r\n\r\n" + body)
    for p in part.walk():
        payload = p.get_payload(decode=True)
        if payload:
            yield payload
        for name, value in p.items():
            for text, charset in email.header.decode_header(value):
                yield text if isinstance(text, bytes) else text.encode("latin1", "replace")
            for params in (p.get_params(header=name) or []):
                if isinstance(params[1], tuple):
                    yield email.utils.collapse_rfc2231_value(params[1]).encode("utf8", "replace")


def readings(target, headers, body):
    head = "\r\n".join("%s: %s" % h for h in headers.items())
    query = urllib.parse.urlsplit(target).query
    everything = head + "\n" + urllib.parse.unquote(query) + "\n" + body.decode("latin1") + urllib.parse.unquote(body.decode("latin1"))
    charsets = {"utf-8", "latin1", *named(everything)}
    try:
        charsets.add(json.detect_encoding(body))
    except Exception:
        pass
    texts = {head, query, target}
    for raw in list(unpacked(body, head.encode("latin1"))):
        for charset in charsets:
            try:
                texts.add(raw.decode(charset, "replace"))
            except Exception:
                pass
    for fields in (query, body.decode("latin1")):
        for charset in charsets:
            try:
                for k, v in urllib.parse.parse_qsl(fields, encoding=charset, errors="replace"):
                    texts.update((k, v))
            except Exception:
                pass
    for text in list(texts):
        steps = [html.unescape, urllib.parse.unquote, urllib.parse.unquote_plus, lambda t: unicodedata.normalize("NFC", t),
                 lambda t: quopri.decodestring(t.encode("latin1")).decode("latin1"), lambda t: json.dumps(json.loads(t), ensure_ascii=False),
                 lambda t: re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), t), lambda t: re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), t)]
        for step in steps:
            try:
                texts.add(step(text))
            except Exception:
                pass
    return sorted(t.encode("utf8", "replace").decode("utf8") for t in texts)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        answer = json.dumps(readings(self.path, self.headers, body), ensure_ascii=len(body) % 2 == 0).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
names = sorted(n for n in set(encodings.aliases.aliases.values()) | set(encodings.aliases.aliases) if known(n))
print(server.server_port, *names, flush=True)
server.serve_forever()
