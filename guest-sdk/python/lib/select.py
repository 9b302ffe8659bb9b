"""There is nothing to wait for in the sandbox but time."""

import time as _time

error = OSError


def select(readers, writers, others, timeout=None):
    if readers or writers or others:
        raise OSError("there are no descriptors to wait for in the sandbox")
    if timeout:
        _time.sleep(timeout)
    return [], [], []
