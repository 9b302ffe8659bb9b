"""The HTTP of the library. What http.client takes for a socket is one exchange of the host. urllib.request, urllib3 and
requests are built on http.client, and are here as their authors wrote them.

The module is imported before urllib.request, which looks for HTTPSConnection.
"""

import http.client
import io
import math
import socket

import starling

VERIFIED = "the host checks certificates itself, with the authorities of its system"


class Wire:
    """Collects the bytes of a request. The exchange is made when the response is read."""

    def __init__(self, connection, scheme):
        if connection._tunnel_host or getattr(connection, "proxy", None):
            refuse_proxy()
        host = connection.host if connection.host.isascii() else connection.host.encode("idna").decode()
        host = f"[{host}]" if ":" in host else host
        port = "" if connection.port == connection.default_port else f":{connection.port}"
        self.origin, self.sent, self.timeout = f"{scheme}://{host}{port}".encode(), bytearray(), connection.timeout

    def settimeout(self, timeout):
        self.timeout = timeout

    def sendall(self, data):
        self.sent += data

    def makefile(self, *ignored):
        message, self.sent = bytes(self.sent), bytearray()
        method, target, rest = message.split(b" ", 2)
        version, fields = rest.split(b"\r\n", 1)
        if not target.startswith(b"/"):
            refuse_proxy()
        timeout = self.timeout if self.timeout is None or isinstance(self.timeout, (int, float)) else socket.getdefaulttimeout()
        if timeout is not None:
            fields = b"Starling-Timeout: %d\r\n%b" % (min(max(math.ceil(timeout * 1000), 1), 2**32 - 1), fields)
        try:
            return io.BytesIO(starling._exchange(b"%b %b%b HTTP/1.1\r\n%b" % (method, self.origin, target, fields)))
        except starling.HTTPError as error:
            failure = Failure()
            failure.error = error
            return failure

    def close(self):
        pass


class Failure(io.BytesIO):
    """What is read of a response that there is not."""

    def readline(self, *ignored):
        if self.error.kind == "timeout":
            raise TimeoutError(str(self.error)) from self.error
        raise self.error


def refuse_proxy():
    raise NotImplementedError("the sandbox has no proxies: the host connects to servers directly")


def connect(self):
    self.sock = Wire(self, "http")


class HTTPSConnection(http.client.HTTPConnection):
    default_port = http.client.HTTPS_PORT

    def __init__(self, host, port=None, *, context=None, **options):
        super().__init__(host, port, **options)

    def connect(self):
        self.sock = Wire(self, "https")


http.client.HTTPConnection.connect = connect
http.client.HTTPSConnection = HTTPSConnection
http.client._create_https_context = lambda version: None

import urllib.error
import urllib.request

import certifi
import urllib3
from urllib3 import connection, connectionpool

plain_do_open = urllib.request.AbstractHTTPHandler.do_open


def do_open(self, *args, **options):
    """urllib.request has an error of its own for a server that cannot be reached."""
    try:
        return plain_do_open(self, *args, **options)
    except starling.HTTPError as error:
        raise urllib.error.URLError(error) from error


class Secure(connection.HTTPConnection):
    """urllib3 has no connection for HTTPS in a Python without ssl."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host, port=None, *, cert_reqs=None, ca_certs=None, ssl_version=None, ssl_minimum_version=None, ssl_maximum_version=None,
                 key_password=None, cert_file=None, key_file=None, ca_cert_dir=None, ca_cert_data=None, ssl_context=None,
                 assert_hostname=None, assert_fingerprint=None, server_hostname=None, **options):
        if cert_file or key_file:
            raise NotImplementedError("the sandbox sends no client certificates")
        if ca_certs not in (None, certifi.where()) or ca_cert_dir or ca_cert_data or ssl_context or assert_hostname or assert_fingerprint or server_hostname:
            raise NotImplementedError(f"a program cannot choose what a certificate is checked for: {VERIFIED}")
        super().__init__(host, port, **options)

    def _new_conn(self):
        self.is_verified = True
        return Wire(self, "https")


urllib.request.AbstractHTTPHandler.do_open = do_open
connection.HTTPConnection._new_conn = lambda self: Wire(self, "http")
connection.HTTPConnection.is_connected = property(lambda self: self.sock is not None)
connection.HTTPSConnection = connection.VerifiedHTTPSConnection = connectionpool.HTTPSConnection = Secure
connectionpool.HTTPSConnectionPool.ConnectionCls = Secure
