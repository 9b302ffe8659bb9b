"""TITLE: each line of operations.py is an operation of the API, and a tool. The host inserts the secrets."""

import json
from typing import Any
from urllib.parse import urlsplit

from client import send
from operations import OPERATIONS

SERVER = "https://api.example.com"
HEADERS = {"Accept": "application/json, */*;q=0.5"}  # of every request


def _tool(line):
    operation = json.loads(line)
    server = operation.get("server", SERVER)

    def call(**arguments_: Any):
        """The operation that a line describes."""
        return send(server, HEADERS, operation, arguments_)

    call.__starling__ = {  # as @starling.tool declares it, with a schema that no Python type has
        "name": operation["name"], "description": operation.pop("description"), "effects": [urlsplit(server).netloc],
        "idempotent": operation["method"] in ("GET", "HEAD", "PUT", "DELETE"), "input_schema": operation.pop("input"),
    }
    return call


for number, line in enumerate(OPERATIONS.strip().split("\n")):
    globals()[f"operation_{number}"] = _tool(line)
