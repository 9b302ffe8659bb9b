"""Nothing is installed in the sandbox."""

import sys as _sys


def get_config_var(name): return None
def get_config_vars(*names): return [None] * len(names) if names else {}
def get_paths(*args, **kwargs): return {}
def get_path(*args, **kwargs): return None
def get_platform(): return "wasm32-wasi"
def get_python_version(): return f"{_sys.version_info[0]}.{_sys.version_info[1]}"
