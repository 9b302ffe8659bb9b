"""freeze.py OUT ZONES FOLDER...: writes the modules of modules.txt, from the first FOLDER that has them, the
regular expressions of patterns.txt, and the time zones.

OUT/data.bin has the code of the modules and the files of the zones, OUT/frozen.h and OUT/zones.h the tables that main.c includes.
The interpreter that runs this has to be of the version that the modules are for.
"""

import ast
import marshal
import os
import re
import sys

SKIPPED = ("test", "tests", "idle_test", "__pycache__", "__main__.py", "cyaml.py", "rebuild.py", "tzwin.py", "windows_events.py", "windows_utils.py",
           "emscripten", "pyopenssl.py", "socks.py", "cli", "help.py")


def find(name, folders):
    for folder in folders:
        path = os.path.join(folder, *name.split("."))
        if os.path.isfile(path + ".py"):
            return path + ".py", False
        if os.path.isfile(path + "/__init__.py"):
            return path + "/__init__.py", True
    sys.exit(f"freeze.py: there is no module {name}")


def below(name, folder):
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        if entry in SKIPPED or entry == "__init__.py":
            continue
        if entry.endswith(".py"):
            yield f"{name}.{entry[:-3]}", path, False
        elif os.path.isfile(path + "/__init__.py"):
            yield f"{name}.{entry}", path + "/__init__.py", True
            yield from below(f"{name}.{entry}", path)


def modules(listing, folders):
    words = [word for line in open(listing) for word in line.split("#")[0].split()]
    found = {}
    for word in words:
        name = word.removesuffix(".*")
        path, package = find(name, folders)
        found.setdefault(name, (path, package))
        if word.endswith(".*") and package:
            for inner, path, package in below(name, os.path.dirname(path)):
                found.setdefault(inner, (path, package))
    return found


def patterns(listing):
    """The module with the regular expressions of a file, compiled for 32 bits."""
    re._parser.MAXREPEAT = re._constants._NamedIntConstant(2**31 - 1, "MAXREPEAT")
    table = {}
    for line in open(listing):
        if line.startswith("#"):
            continue
        pattern, flags = ast.literal_eval(line)
        parsed = re._parser.parse(pattern, flags)
        groups = parsed.state.groupdict
        names = {number: name for name, number in groups.items()}
        table[pattern, flags] = (flags | parsed.state.flags, b"".join(n.to_bytes(4, "little") for n in re._compiler._code(parsed, flags)), parsed.state.groups - 1,
                                 groups, tuple(names.get(number) for number in range(parsed.state.groups)))
    return f"TABLE = __import__('marshal').loads({marshal.dumps(table)!r})"


def main():
    out, zones, *folders = sys.argv[1:]
    data, rows, here = bytearray(), [], os.path.dirname(os.path.abspath(__file__))
    texts = [(name, open(path, "rb").read(), package) for name, (path, package) in modules(os.path.join(here, "modules.txt"), folders).items()]
    for name, text, package in texts + [("_starling_patterns", patterns(os.path.join(here, "patterns.txt")), False)]:
        code = marshal.dumps(compile(text, f"<frozen {name}>", "exec", dont_inherit=True, optimize=2))
        data.extend(bytes(-len(data) % 4))
        rows.append((len(code), f'{{"{name}", frozen_data + {len(data)}, {len(code)}, {int(package)}}},\n'))
        data.extend(code)
    with open(os.path.join(out, "frozen.h"), "w") as table:
        table.writelines(row for _, row in rows)
    known, count = {}, 0
    with open(os.path.join(out, "zones.h"), "w") as table:
        for folder, folders, files in os.walk(zones):
            folders.sort()
            for name in sorted(files):
                content = open(os.path.join(folder, name), "rb").read()
                if content[:4] != b"TZif":
                    continue
                if content not in known:
                    known[content] = len(data)
                    data.extend(content)
                path = os.path.relpath(os.path.join(folder, name), zones)
                table.write(f'{{"usr/share/zoneinfo/{path}", frozen_data + {known[content]}, {len(content)}}},\n')
                count += 1
    open(os.path.join(out, "data.bin"), "wb").write(data)
    print(f"{len(rows)} modules, {count} time zones, {len(data):,} bytes")


main()
