def hello(name: str) -> dict[str, str]:
    """Greets somebody.

    name: Whom to greet
    """
    return {"greeting": f"Hello, {name}."}
