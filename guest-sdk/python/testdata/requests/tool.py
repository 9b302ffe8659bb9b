import inspect
import traceback
from urllib.parse import urljoin

import library


def run(url: str) -> dict[str, int | list[str]]:
    """Runs the tests of requests against a server that is like httpbin, and returns those that fail."""
    count, failures = 0, []
    for suite in [value for value in vars(library).values() if inspect.isclass(value) and value.__module__ == "library"]:
        for name, function in vars(suite).items():
            if not name.startswith("test"):
                continue
            for values in getattr(function, "parameters", [{}]):
                count += 1
                try:
                    if "httpbin" in inspect.signature(function).parameters:
                        values = {**values, "httpbin": lambda *parts: urljoin(url + "/", "/".join(parts))}
                    function(suite(), **values)
                except Exception:
                    failures.append(f"{name}: {traceback.format_exc()}")
    return {"count": count, "failures": failures}
