"""A tool in Python: each public function with a docstring is one. Types become the schema that a model sees."""

from typing import Literal


def example_tool(name: str, tone: Literal["plain", "loud"] = "plain") -> dict[str, str]:
    """Greets somebody.

    name: Whom to greet
    tone: How to greet
    """
    if not name.strip():
        raise ValueError("name is empty: say whom to greet")
    greeting = f"Hello, {name}."
    return {"greeting": greeting.upper() if tone == "loud" else greeting}
