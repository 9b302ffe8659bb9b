"""Fits the library to a place with one thread, no sockets and a host that records: each function changes one module."""

import sys


def fit():
    for change in (_streams, _exits, _random, _threads, _asyncio, _hashlib, _zones):
        change()


def _streams():
    """A program's bad characters are shown and not an error. sys.stdout is made again by the tool run_py."""
    for name in ("stdout", "stderr"):
        getattr(sys, name).reconfigure(line_buffering=True, errors="backslashreplace")
    sys.dont_write_bytecode = True
    import _colorize
    import warnings
    _colorize.COLORIZE = False
    warnings.simplefilter("ignore", SyntaxWarning)
    warnings.simplefilter("ignore", DeprecationWarning)


def _exits():
    """To end the interpreter is to end the program."""
    import builtins
    import os

    def leave(code=None):
        raise SystemExit(code)

    def no_input(prompt=""):
        raise EOFError("there is nobody to ask: take what the program needs from its input")

    def end(name):
        def refuse(*args):
            raise SystemExit(f"os.{name} ends the program")
        return refuse

    builtins.exit = builtins.quit = leave
    builtins.input = no_input
    for name in ("abort", "_exit", "kill"):
        setattr(os, name, end(name))
    limit, most = sys.setrecursionlimit, 20000
    sys.setrecursionlimit = lambda n: limit(min(n, most))
    os.environ["HOME"] = "/tmp"


def _random():
    """Random numbers are seeded at the first use in a call. The functions of the module belong to one generator, and all of
    them draw by its methods random and getrandbits, so these two wait for the first use."""
    import random
    one = random._inst
    seed, setstate, getstate = one.seed, one.setstate, one.getstate

    def ready():
        if "random" in vars(one):
            del one.random, one.getrandbits
            random.random, random.getrandbits = one.random, one.getrandbits
            return True
        return False

    def late(name):
        def draw(*args):
            if ready():
                seed()
            return getattr(one, name)(*args)
        return draw

    def by_program(a=None, version=2):
        ready()
        seed(a, version)

    def to_state(state):
        ready()
        setstate(state)

    def state():
        if ready():
            seed()
        return getstate()

    one.random, one.getrandbits = random.random, random.getrandbits = late("random"), late("getrandbits")
    random.seed, random.setstate, random.getstate = by_program, to_state, state


def _threads():
    """A thread runs when it starts, and an executor's work when it is submitted."""
    import _thread
    import concurrent.futures as futures
    import concurrent.futures.thread
    import queue
    import threading
    import time

    class Lock:
        """A lock. To wait for it for ever is an error, because nobody else can release it."""

        __slots__ = ("_held",)

        def __init__(self):
            self._held = False

        def acquire(self, blocking=True, timeout=-1):
            if not self._held:
                self._held = True
                return True
            if blocking and timeout < 0:
                raise RuntimeError("deadlock: there is one thread, and it waits for itself")
            if blocking:
                time.sleep(timeout)
            return False

        def release(self):
            if not self._held:
                raise RuntimeError("release unlocked lock")
            self._held = False

        def locked(self):
            return self._held

        def __enter__(self):
            return self.acquire()

        def __exit__(self, *ignored):
            self.release()

        def _at_fork_reinit(self):
            self._held = False

    def start(self):
        if self._started.is_set():
            raise RuntimeError("threads can only be started once")
        self._started.set()
        try:
            self.run()
        except Exception:
            sys.excepthook(*sys.exc_info())

    def start_new_thread(function, args, kwargs={}):
        function(*args, **kwargs)
        return 1

    class Executor(futures.Executor):
        def __init__(self, max_workers=None, thread_name_prefix="", initializer=None, initargs=(), **ignored):
            if initializer:
                initializer(*initargs)

        def submit(self, function, /, *args, **kwargs):
            future = futures.Future()
            try:
                future.set_result(function(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            return future

    threading.Lock = threading._allocate_lock = _thread.allocate_lock = Lock
    _thread.start_new_thread = start_new_thread
    queue.SimpleQueue = queue._PySimpleQueue
    threading.Thread.start = start
    threading.Thread.join = lambda self, timeout=None: None
    threading.Thread.is_alive = lambda self: False
    futures.ThreadPoolExecutor = futures.thread.ThreadPoolExecutor = futures.ProcessPoolExecutor = Executor


def _asyncio():
    """A loop that only waits for time, which is virtual and takes none. The output of a tool is there when the call
    returns, so whatever waits for calls also takes outputs."""
    import asyncio
    import time
    from asyncio import base_events, events

    class Waiting:
        def select(self, timeout=None):
            if timeout is None:
                raise RuntimeError("deadlock: every task waits, and nothing will wake one")
            if timeout > 0:
                time.sleep(timeout)
            return []

        def close(self):
            pass

    async def output(value):
        return value

    def awaitable(value):
        return output(value) if isinstance(value, (dict, list, str, int, float, type(None))) else value

    class Loop(base_events.BaseEventLoop):
        def __init__(self):
            super().__init__()
            self._selector = Waiting()
            self.slow_callback_duration = float("inf")

        def create_task(self, coroutine, **options):
            return super().create_task(awaitable(coroutine), **options)

        def _process_events(self, events):
            pass

        def _write_to_self(self):
            pass

        def run_in_executor(self, executor, function, *args):
            future = self.create_future()
            try:
                future.set_result(function(*args))
            except Exception as error:
                future.set_exception(error)
            return future

        async def shutdown_default_executor(self, timeout=None):
            pass

        def call_soon_threadsafe(self, callback, *args, context=None):
            return self.call_soon(callback, *args, context=context)

    class Policy(events.BaseDefaultEventLoopPolicy):
        _loop_factory = Loop

    asyncio.set_event_loop_policy(Policy())
    gather, as_completed = asyncio.gather, asyncio.as_completed
    asyncio.gather = lambda *values, **options: gather(*map(awaitable, values), **options)
    asyncio.as_completed = lambda values, **options: as_completed(list(map(awaitable, values)), **options)
    for name in ("wait_for", "shield", "ensure_future", "run"):
        def call(value, *more, plain=getattr(asyncio, name), **options):
            return plain(awaitable(value), *more, **options)
        setattr(asyncio, name, call)


def _hashlib():
    """pbkdf2_hmac, which CPython leaves to OpenSSL."""
    import hashlib
    import hmac

    def pbkdf2_hmac(hash_name, password, salt, iterations, dklen=None):
        keyed = hmac.new(password, digestmod=hash_name)
        size = keyed.digest_size
        dklen, result = dklen or size, b""
        for block in range(1, -(-dklen // size) + 1):
            step = keyed.copy()
            step.update(bytes(salt) + block.to_bytes(4, "big"))
            last = step.digest()
            total = int.from_bytes(last, "big")
            for _ in range(iterations - 1):
                step = keyed.copy()
                step.update(last)
                last = step.digest()
                total ^= int.from_bytes(last, "big")
            result += total.to_bytes(size, "big")
        return result[:dklen]

    hashlib.pbkdf2_hmac = pbkdf2_hmac


def _zones():
    """files.c has the time zones where Unix has them."""
    import zoneinfo
    zoneinfo.reset_tzpath(["/usr/share/zoneinfo"])
