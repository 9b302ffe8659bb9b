# The module `starling`, for editors and type checkers. The host brings the module itself.
from collections.abc import Callable, Mapping
from typing import Any, overload

context: dict[str, Any]  # of the call: run_id, call_id, attempt, variables

class Failure(Exception):
    kind: str
    retry_after_ms: int | None

class HTTPError(OSError):
    kind: str  # denied, network, timeout, too_large or malformed

class ToolError(Exception):
    tool: str
    type: str
    message: str

class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    @property
    def text(self) -> str: ...
    def json(self) -> Any: ...

class _Tools:
    def __getattr__(self, name: str) -> Callable[..., Any]: ...
    def __getitem__(self, name: str) -> Callable[..., Any]: ...

tools: _Tools

def transient(message: object) -> Failure: ...
def cancel(message: object) -> Failure: ...
def discard(message: object) -> Failure: ...
def snooze(seconds: float, message: object) -> Failure: ...
def now() -> int: ...
def random() -> int: ...
def log(*values: object) -> None: ...
def request(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | str | None = None, json: Any = None, effect: str | None = None
) -> Response: ...
@overload
def tool[F: Callable[..., Any]](function: F) -> F: ...
@overload
def tool[F: Callable[..., Any]](
    *, name: str | None = None, effects: list[str] | None = None, idempotent: bool | None = None, limits: dict[str, int] | None = None
) -> Callable[[F], F]: ...
