"""What the tests of requests use of pytest."""

import contextlib


class mark:
    @staticmethod
    def parametrize(names, values):
        def declare(function):
            function.parameters = [dict(zip(names.replace(" ", "").split(","), row if isinstance(row, (tuple, list)) and "," in names else (row,)))
                                   for row in values]
            return function
        return declare


def fail(message):
    raise AssertionError(message)


@contextlib.contextmanager
def raises(kind):
    class Info:
        value = None
    info = Info()
    try:
        yield info
    except kind as error:
        info.value = error
        return
    fail(f"{kind} was not raised")
