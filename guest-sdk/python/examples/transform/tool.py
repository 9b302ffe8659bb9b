import re
from collections import Counter
from typing import TypedDict


class Result(TypedDict):
    words: int
    upper: str
    counts: dict[str, int]


def transform(text: str) -> Result:
    """Counts the words of a text, and writes its ASCII letters in capitals.

    text: Any text
    """
    words = re.findall("[A-Za-z0-9]+", text)
    counts = Counter(word.lower() for word in words)
    upper = re.sub("[a-z]+", lambda found: found[0].upper(), text)
    return {"words": len(words), "upper": upper, "counts": dict(sorted(counts.items()))}
