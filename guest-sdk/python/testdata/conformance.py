# The tools of the conformance kit for SDKs: see spec/tck/README.md.
from typing import Any

import starling


def echo(**input: Any) -> dict:
    """Returns its input and its context."""
    call = starling.context
    return {"input": input, "run_id": call["run_id"], "call_id": call["call_id"], "attempt": call["attempt"], "variables": call.get("variables")}


def fail(kind: str, message: str) -> None:
    """Fails as it is told."""
    if kind == "tool":
        raise ValueError(message)
    if kind == "snooze":
        raise starling.snooze(1.5, message)
    raise getattr(starling, kind)(message)


def effects() -> dict:
    """Reads the clock and draws a random number."""
    return {"now_ms": starling.now() // 1_000_000, "random": str(starling.random())}


def fetch(url: str, method: str = "GET", body: str | None = None, effect: str | None = None) -> dict:
    """Makes one request."""
    try:
        response = starling.request(method, url, body=body, effect=effect)
        return {"status": response.status, "body": response.text}
    except starling.HTTPError as error:
        return {"failed": error.kind}
