"""There are no sockets in the sandbox. Other modules import this one, and find the names that they need."""

error = OSError
timeout = TimeoutError
class gaierror(OSError): pass
class herror(OSError): pass

_GLOBAL_DEFAULT_TIMEOUT = object()
has_ipv6 = False
AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6 = 0, 1, 2, 10
SOCK_STREAM, SOCK_DGRAM = 1, 2
IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6 = 6, 17, 41
SOL_SOCKET, SO_REUSEADDR, SO_KEEPALIVE, SO_BROADCAST, SO_TYPE, SO_ERROR = 1, 2, 9, 6, 3, 4
TCP_NODELAY, SOMAXCONN, SHUT_RD, SHUT_WR, SHUT_RDWR = 1, 128, 0, 1, 2
AI_PASSIVE, AI_ADDRCONFIG, NI_NUMERICHOST, NI_NUMERICSERV, IPV6_V6ONLY, EAI_NONAME = 1, 32, 1, 2, 26, -2


def _refuse(*args, **kwargs):
    raise OSError("there are no sockets in the sandbox: use requests, urllib.request or starling.request")


class socket:
    __init__ = _refuse


SocketType = socket
create_connection = create_server = socketpair = fromfd = getaddrinfo = gethostbyname = gethostbyaddr = getnameinfo = getfqdn = _refuse


_default_timeout = None


def gethostname(): return "localhost"
def getdefaulttimeout(): return _default_timeout


def setdefaulttimeout(value):
    global _default_timeout
    _default_timeout = value
