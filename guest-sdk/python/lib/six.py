"""What dateutil needs of six."""

import _thread
import sys as _sys
import types as _types

PY2, PY3 = False, True
integer_types, string_types, text_type, binary_type = (int,), (str,), str, bytes
advance_iterator = next


def add_metaclass(metaclass):
    def remake(cls):
        names = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        return metaclass(cls.__name__, cls.__bases__, names)
    return remake


def with_metaclass(metaclass, *bases):
    return metaclass("base", bases or (object,), {})


def raise_from(error, cause):
    raise error from cause


moves = _types.ModuleType("six.moves")
moves._thread, moves.range, moves.winreg = _thread, range, None
_sys.modules["six.moves"] = moves
__path__ = []
