package python_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/zstd"
)

func TestMain(m *testing.M) { treetest.Run(m) }

// program is what a model could write, with a part of what comes of it: the output, or the
// reason of the failure.
type program struct{ name, code, want string }

// hostilePrograms mean harm, or are broken.
var hostilePrograms = []program{
	{"a recursion", "def f(): return f()\nf()", "RecursionError"},
	{"a recursion with a default", "def f(n, m=1): return f(n)\nf(1)", "RecursionError"},
	{"a recursion of a method with a default", "class A:\n  def f(s, n, m=1): return s.f(n)\nA().f(1)", "RecursionError"},
	{"a recursion of generators", "def g(n):\n  for x in g(n): yield x\nfor x in g(1): pass", "RecursionError"},
	{"a recursion without a limit", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()", "RecursionError"},
	{"a recursion through operators", "class A:\n  def __add__(s, o): return s + o\nA() + A()", "RecursionError"},
	{"a recursion through attributes", "class A:\n  def __getattr__(s, n): return getattr(s, n + 'x')\nA().y", "RecursionError"},
	{"a recursion through repr", "class A:\n  def __repr__(s): return repr(s)\nrepr(A())", "RecursionError"},
	{"a recursion through sorted", "def f(n): return sorted([2, 1], key=lambda v: f(n + 1))\nf(0)", "RecursionError"},
	{"a deep list", "a = []\nfor i in range(10**5): a = [a]\nrepr(a)", "RecursionError"},
	{"a deep list that ends", "a = None\nfor i in range(10**5): a = [a]\ndel a\n1", "1"},
	{"deep brackets", "eval('(' * 5000 + ')' * 5000)", "too complex to parse"},
	{"deep operators", "eval('-' * 100000 + '1')", ""},
	{"deep JSON", "import json\njson.loads('[' * 100000)", "RecursionError"},
	{"a program in itself", "s = 'exec(s)'\nexec(s)", "RecursionError"},
	{"a large allocation", "len(bytearray(10**9))", "MemoryError"},
	{"a large shift", "1 << (10**10)", "MemoryError"},
	{"a number with many digits", "10**5000", "1024 digits"},
	{"exit with a code", "import sys\nsys.exit(3)", "SystemExit: 3"},
	{"exit without a code", "import sys\nresult = 1\nsys.exit()", "1"},
	{"the end of the process", "import os\nos._exit(0)", "ends the program"},
	{"an abort", "import os\nos.abort()", "ends the program"},
	{"a crash", "import faulthandler\nfaulthandler._sigsegv()", ""},
	{"a process", "import subprocess\nsubprocess.run(['id'])", ""},
	{"a shell", "import os\nos.system('id')", ""},
	{"a socket", "import socket\nsocket.create_connection(('example.com', 80))", "no sockets in the sandbox"},
	{"a file that is not there", "open('/etc/passwd').read()", "No such file or directory: '/etc/passwd'"},
	{"a question", "__builtins__.input()", "nobody to ask"},
	{"a changed json", "import json\njson.dumps = json.loads = None\n{'a': 1}", `{"a":1}`},
	{"changed functions", "import builtins\nbuiltins.len = builtins.isinstance = builtins.type = None\n1 / 0", "broke the Python runtime"},
	{"cleared modules", "import sys\nsys.modules.clear()\n1", "1"},
	{"a changed runtime", "import _starling_main\n_starling_main.tools.clear()\n_starling_main.execute = None\n1", "1"},
	{"everything cleared", "import gc\nfor o in gc.get_objects():\n  try: o.clear()\n  except BaseException: pass\n1", ""},
	{"forged bytecode", "def f(): pass\nf.__code__ = f.__code__.replace(co_code=b'\\x64\\xff' * 100)\nf()", ""},
	{"a lock twice", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", "deadlock"},
	{"an empty queue", "import queue\nqueue.Queue().get()", "deadlock"},
	{"an event for ever", "import asyncio\nawait asyncio.Event().wait()", "deadlock"},
	{"an error without a text", "class E(Exception):\n  def __str__(s): raise s\nraise E()", "cannot be read"},
	{"an interrupt", "raise KeyboardInterrupt('x')", "KeyboardInterrupt: x"},
	{"a zero byte", "x = 'a\x00b'", "null"},
	{"a coding", "# -*- coding: utf-7 -*-\n1", "1"},
	{"itself in itself", "a = []\na.append(a)\na", "contains itself"},
	{"an object", "object()", "result is a object, which has no JSON"},
	{"no number", "{'a': [1, float('nan')]}", "result['a'][1] is nan"},
	{"keys of all types", "{1: 'a', None: 'b', '1': 'c', 2.5: 'd'}", "two keys that are written '1'"},
	{"SQL without an end", "import sqlite3\nsqlite3.connect(':memory:').execute('with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r').fetchone()", "out of fuel"},
	{"SQL for much memory", "import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('create table t(x)')\n" +
		"c.execute('with recursive r(n) as (select 1 union all select n + 1 from r) insert into t select zeroblob(1000000) from r')", "MemoryError"},
	{"SQL for a large value", "import sqlite3\nsqlite3.connect(':memory:').execute('select hex(zeroblob(400000000))').fetchone()", "MemoryError"},
	{"deep SQL", "import sqlite3\nsqlite3.connect(':memory:').execute('select ' + 'abs(' * 10**4 + '1' + ')' * 10**4)", "Expression tree is too large"},
	{"SQL of many operators", "import sqlite3\nsqlite3.connect(':memory:').execute('select ' + '+'.join('1' * 10**5))", "Expression tree is too large"},
	{"the deepest SQL", "import sqlite3\nc = sqlite3.connect(':memory:')\n[c.execute('select ' + 'abs(' * 990 + '1' + ')' * 990).fetchone(), c.execute('select * from (' * 500 + 'select 1' + ')' * 500).fetchone()]", "[[1],[1]]"},
	{"SQL in SQL", "import sqlite3\nc = sqlite3.connect(':memory:')\nc.create_function('f', 1, lambda n: c.execute('select f(?)', (n + 1,)).fetchone()[0])\nc.execute('select f(1)').fetchone()", "user-defined function raised exception"},
	{"views of views", "import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('create table v0(a)')\nfor i in range(300): c.execute(f'create view v{i + 1} as select a + 1 as a from v{i}')\nc.execute('select * from v300').fetchall()", "[]"},
	{"a trigger that fires itself", "import sqlite3\nc = sqlite3.connect(':memory:')\nc.executescript('pragma recursive_triggers = 1; create table t(a); create trigger r after insert on t begin insert into t values (new.a + 1); end')\nc.execute('insert into t values (1)')", "too many levels of trigger recursion"},
	{"a database outside of /tmp", "import sqlite3\nsqlite3.connect('/etc/x.db').execute('create table t(a)')", "unable to open database file"},
	{"an attached database outside of /tmp", "import sqlite3\nsqlite3.connect(':memory:').execute(\"attach '/etc/passwd' as p\")", "unable to open database: /etc/passwd"},
	{"an extension of SQL", "import sqlite3\nsqlite3.connect(':memory:').execute(\"select load_extension('/tmp/x.so')\")", "no such function: load_extension"},
	{"a broken database", "import sqlite3\nc = sqlite3.connect('/tmp/a.db')\nc.execute('create table t(a)')\nc.commit(); c.close()\nwith open('/tmp/a.db', 'r+b') as f: f.seek(90); f.write(b'\\xff' * 4000)\nsqlite3.connect('/tmp/a.db').execute('select * from t')", "DatabaseError"},
	{"a large output", "'x' * 2000000", "output"},
	{"a tool that is not there", "tools.secret()", "tool not found"},
	{"itself", "tools.run_py(code='1')", "does not call itself"},
	{"a host that is not allowed", "import requests\nrequests.get(input)", "denied"},
	{"a secret", "import requests\nrequests.get(input + '?k={{secret:KEY}}')", "denied"},
	{"a forged call", "import starling\nstarling.request('POST', 'starling:call', body='{}').status", ""},
}

// longPrograms spend all of their fuel or memory.
var longPrograms = []program{
	{"an endless loop", "while True: pass", "out of fuel"},
	{"an endless loop that catches", "while True:\n  try:\n    while True: pass\n  except BaseException: pass", "out of fuel"},
	{"a power", "9**9**9", ""},
	{"a pattern", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", "out of fuel"},
	{"much to print", "while True: print('x' * 1000)", "out of fuel"},
	{"a long sleep", "import time\ntime.sleep(10**8)\n1", "1"},
	{"a list of strings", "x = []\nwhile True: x.append('a' * 100000 + str(len(x)))", "MemoryError"},
	{"a string that doubles", "s = 'a'\nwhile True: s += s", "MemoryError"},
	{"memory that is caught", "x = []\ntry:\n  while True: x.append('a' * 100000)\nexcept MemoryError: x = None\n'caught'", "caught"},
	{"a long program", "exec('x=1\\n' * 300000)\n1", ""},
	{"10,000 calls", "for i in range(10000): tools.dice(rolls=1)", "effects"},
}

// reason returns all that is recorded of why a run failed: its error has the first line.
func reason(run *starling.Run) string {
	if run.Failure == nil {
		return ""
	}
	return run.Failure.Message
}

// runAll runs programs, compares what comes of them, and replays each.
func runAll(t *testing.T, programs []program, limits sandbox.Limits, input any) {
	t.Helper()
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "code.db"), starling.Options{}))
	defer db.Close()
	dice, err := db.Load(t.Context(), filepath.Join("tools-wasm", "dice"), starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runPy, err := db.Load(t.Context(), starling.RunPy, starling.ToolOptions{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	tool := runPy.Calling(dice)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			document, err := json.Marshal(map[string]any{"code": p.code, "input": input})
			if err != nil {
				t.Fatal(err)
			}
			run, err := tool.Call(t.Context(), string(document))
			if run == nil {
				t.Fatal(err)
			}
			if got := run.Output() + reason(run); !strings.Contains(got, p.want) {
				t.Errorf("it ends with %s, want %q in it", got, p.want)
			}
			if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
				t.Errorf("replay: %v, %v", verdict, err)
			}
		})
	}
}

// TestRunPyHostilePrograms: each of them ends by its limits or with a sentence, none reaches what
// it may not, and each run replays.
func TestRunPyHostilePrograms(t *testing.T) {
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer server.Close()
	runAll(t, hostilePrograms, sandbox.Limits{Fuel: 2_000_000_000}, server.URL)
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests have reached a server that is not allowed", n)
	}
}

// TestRunPyLongPrograms has those that take their time.
func TestRunPyLongPrograms(t *testing.T) {
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: programs that spend all of their fuel")
	}
	runAll(t, longPrograms, sandbox.Limits{Fuel: 8_000_000_000, Effects: 60}, nil)
}

// TestRunPyForms runs the programs that models write, whatever their form: nothing that a
// program returns or prints is lost.
func TestRunPyForms(t *testing.T) {
	runAll(t, []program{
		{"an expression", `1 + 1`, `2`},
		{"the last expression", "a = input['n']\na", `9007199254740993`},
		{"a return", "for i in range(9):\n    if i == 3:\n        return {'i': i}", `{"i":3}`},
		{"a variable", "result = [1, 2]", `[1,2]`},
		{"a variable behind a call", "result = 5\nlen('abc') and None", `5`},
		{"await", "import asyncio\nasync def f(n):\n    await asyncio.sleep(60)\n    return n\nawait asyncio.gather(f(1), f(2))", `[1,2]`},
		{"await and return", "import asyncio\nawait asyncio.sleep(1)\nreturn 'x'", `"x"`},
		{"asyncio.run", "import asyncio\nasync def main():\n    return 7\nasyncio.run(main())", `7`},
		{"a coroutine", "async def main():\n    return 8\nmain()", `8`},
		{"globals in functions", "n = 0\ndef up():\n    global n\n    n += 1\nfor _ in range(3): up()\nreturn n", `3`},
		{"a comprehension", "n = 3\n[[i * n for i in range(j)] for j in range(3)]", `[[],[0],[0,3]]`},
		{"a class", "x = 2\nclass A:\n    y = x + 1\n    def get(self): return self.y + x\nA().get()", `5`},
		{"main", "def main():\n    print('hi')\nif __name__ == '__main__':\n    main()", `{"console":"hi\n","result":null}`},
		{"a fence", "\n```python\nreturn 5\n```\n", `5`},
		{"indented", "    a = 6\n    a", `6`},
		{"printed", "print('a', {'b': 1})\nimport sys\nprint('c', file=sys.stderr)", `{"console":"a {'b': 1}\nc\n","result":null}`},
		{"printed beside a result", "print(1)\n9", `{"console":"1\n","result":9}`},
		{"much printed", "for i in range(3000): print('1234567')\n1", `{"console":"` + strings.Repeat(`1234567\n`, 2048) + `","result":1}`},
		{"nothing", "a = 1", `{"note":"the program returned nothing: end it with an expression or with return VALUE","result":null}`},
		{"half of a pair", `["Hi \ud83d"]`, "[\"Hi \ufffd\"]"},
		{"digits", "2**64 - 1, -2**63, 1.5, 1e300, 3.0", `[18446744073709551615,-9223372036854775808,1.5,1e+300,3.0]`},
		{"types of the library", "import datetime, decimal, uuid, collections, dataclasses, enum, pathlib\n" +
			"@dataclasses.dataclass\nclass P:\n    at: datetime.date\n    n: decimal.Decimal\nclass C(enum.Enum):\n    RED = 'red'\n" +
			"[P(datetime.date(2024, 2, 29), decimal.Decimal('1.10')), C.RED, {3, 1, 2}, (1, 2), collections.Counter('aab'), b'bytes', pathlib.Path('/tmp/a'), range(3), {datetime.date(2024, 1, 1): 1}]",
			`[{"at":"2024-02-29","n":"1.10"},"red",[1,2,3],[1,2],{"a":2,"b":1},"bytes","/tmp/a",[0,1,2],{"2024-01-01":1}]`},
		{"a tool", "sum(tools.dice(rolls=3)['rolls']) > 2 and tools['dice']({'rolls': 2})['rolls'].__len__()", `2`},
		{"a tool that fails", "try:\n    tools.dice(rolls=-1)\nexcept ToolError as e:\n    return [e.tool, e.type, 'rolls' in e.message]", `["dice","tool",true]`},
		{"a tool with await", "await tools.dice(rolls=1)", `"rolls":[`},
		{"a tool with await in an expression", "x = 1 + (await tools.dice(rolls=3))['total'] * 0\nasync def f():\n    if x: await tools['dice'](rolls=1)\n    return [len((await\n      tools.dice(rolls=2))['rolls']), 'await tools.dice()']\n[x, await f()]", `[1,[2,"await tools.dice()"]]`},
		{"a tool with await that is a mistake", "s = 'ä'; await tools.dice(rolls=1); 1 / 0", "at line 1, column 37"},
		{"tools in gather", "import asyncio\n[len(a['rolls']) for a in await asyncio.gather(*[tools.dice(rolls=n) for n in (1, 2)], tools.dice(rolls=3))]", `[1,2,3]`},
		{"tools in tasks", "import asyncio\nasync with asyncio.TaskGroup() as g: a = g.create_task(tools.dice(rolls=1))\nb = asyncio.create_task(tools.dice(rolls=2))\n[len(t['rolls']) for t in (a.result(), await b)]", `[1,2]`},
		{"tools that are waited for", "import asyncio\na = await asyncio.wait_for(tools.dice(rolls=1), 5)\nb = [await f for f in asyncio.as_completed([tools.dice(rolls=2)])]\nc = await asyncio.ensure_future(tools.dice(rolls=3))\n" +
			"d = await asyncio.to_thread(tools.dice, rolls=4)\n[len(t['rolls']) for t in (a, *b, c, d)]", `[1,2,3,4]`},
		{"a tool in asyncio.run", "import asyncio\nlen(asyncio.run(tools.dice(rolls=2))['rolls'])", `2`},
		{"a question", "name = input('who? ')", "(`input` is the value that is given beside the code"},
		{"a question in a function", "def ask():\n    return [int(input())]\nask()", "(`input` is the value that is given beside the code"},
		{"a mistake like a question", "x = {}\nx('input(')", "TypeError: 'dict' object is not callable\n"},
		{"a list of the tools", "list(tools)", "the tools cannot be listed: call one by its name"},
		{"a search for a tool", "'dice' in tools", "the tools cannot be listed"},
		{"a response as the result", "import requests\n{'a': requests.Response()}", "return response.json() or response.text"},
		{"a file that is not there", "open('data.csv')", "(there are no files but those that the program itself writes, below /tmp; run --dir gives some)"},
		{"TLS", "import ssl", "use requests, urllib.request or http.client"},
		{"another module of the library", "import ctypes", "no sockets, processes, terminals or C libraries for this module"},
		{"files", "import os, tempfile, pathlib, csv\nwith open('/tmp/a.csv', 'w', newline='') as f:\n    csv.writer(f).writerows([[1, 'x'], [2, 'y']])\n" +
			"pathlib.Path('/tmp/d/e').mkdir(parents=True)\npathlib.Path('/tmp/d/e/f.txt').write_text('ö')\n" +
			"with tempfile.TemporaryDirectory() as d:\n    open(os.path.join(d, 'z'), 'wb').write(b'123')\n    n = os.path.getsize(os.path.join(d, 'z'))\n" +
			"os.rename('/tmp/a.csv', '/tmp/b.csv')\nwith open('/tmp/b.csv', 'a') as f: f.write('3,z\\n')\n" +
			"[list(csv.reader(open('/tmp/b.csv'))), sorted(os.listdir('/tmp')), [p.name for p in pathlib.Path('/tmp').rglob('*.txt')], n, os.path.exists(d), open('/tmp/d/e/f.txt').read()]",
			`[[["1","x"],["2","y"],["3","z"]],["b.csv","d"],["f.txt"],3,false,"ö"]`},
		{"an archive", "import zipfile, shutil, os\nos.makedirs('/tmp/in')\nopen('/tmp/in/a.txt', 'w').write('hello' * 100)\nshutil.make_archive('/tmp/out', 'zip', '/tmp/in')\n" +
			"with zipfile.ZipFile('/tmp/out.zip') as z: names, text = z.namelist(), z.read('a.txt')\nshutil.rmtree('/tmp/in')\n[names, len(text), os.listdir('/tmp')]", `[["a.txt"],500,["out.zip"]]`},
		{"time zones", "from zoneinfo import ZoneInfo\nfrom datetime import datetime\nimport dateutil.parser, dateutil.tz\nfrom dateutil.relativedelta import relativedelta\n" +
			"d = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('Europe/Berlin'))\n[d.isoformat(), d.astimezone(dateutil.tz.gettz('America/New_York')).isoformat(), (dateutil.parser.parse('Jan 31 2024') + relativedelta(months=1)).date()]",
			`["2024-07-01T12:00:00+02:00","2024-07-01T06:00:00-04:00","2024-02-29"]`},
		{"yaml", "import yaml\n[yaml.safe_load('a: [1, 2.5, true, null]\\nb: 2024-01-02'), yaml.safe_dump({'x': [1, 'y']})]", `[{"a":[1,2.5,true,null],"b":"2024-01-02"},"x:\n- 1\n- y\n"]`},
		{"SQL", "import sqlite3\nc = sqlite3.connect(':memory:')\nc.row_factory = sqlite3.Row\nc.execute('create table t(name text, n integer, at text)')\n" +
			"c.executemany('insert into t values (?, ?, ?)', [('a', 1, '2026-01-31'), ('b', 2, '2026-02-01'), ('ä', 4, None)])\n" +
			"[tuple(r) for r in c.execute(\"select name, sum(n) over (order by n) s, date(at, '+1 day') d, json_object('n', n) j, round(sqrt(n), 2) q from t where name like '%' order by n desc\")]",
			`[["ä",7,null,"{\"n\":4}",2.0],["b",3,"2026-02-02","{\"n\":2}",1.41],["a",1,"2026-02-01","{\"n\":1}",1.0]]`},
		{"a database in a file", "import sqlite3, os\na = sqlite3.connect('/tmp/a.db')\na.execute('create table t(n)')\na.commit()\nb = sqlite3.connect('/tmp/a.db', timeout=0)\n" +
			"a.execute('insert into t values (1)')\ntry:\n    b.execute('insert into t values (2)')\nexcept sqlite3.OperationalError as e:\n    said = str(e)\na.rollback()\nb.execute('insert into t values (3)')\nb.commit()\n" +
			"b.execute('vacuum')\nb.backup(c := sqlite3.connect(':memory:'))\n[said, a.execute('select * from t').fetchall(), c.execute('select n from t').fetchall(), sorted(os.listdir('/tmp'))]",
			`["database is locked",[[3]],[[3]],["a.db"]]`},
		{"time and random numbers of SQL", "import sqlite3, time\nc = sqlite3.connect(':memory:')\nt = int(time.time())\na, b, n = c.execute(\"select random(), random(), strftime('%s', 'now')\").fetchone()\n" +
			"[a != b, abs(int(n) - t) < 100, len(c.execute('select hex(randomblob(8))').fetchone()[0])]", `[true,true,16]`},
		{"random bytes of a file", "with open('/dev/urandom', 'rb') as f: a, b = f.read(16), f.read(16)\n[len(a), a != b]", `[16,true]`},
		{"threads", "from concurrent.futures import ThreadPoolExecutor\nimport threading\nseen = []\nt = threading.Thread(target=seen.append, args=(1,))\nt.start(); t.join()\n" +
			"with ThreadPoolExecutor(4) as pool: squares = list(pool.map(lambda n: n * n, range(4)))\n[seen, squares, t.is_alive()]", `[[1],[0,1,4,9],false]`},
		{"random numbers", "import random, uuid, secrets\nfrom random import choice, randint\nrandom.seed(1)\na = [random.random(), randint(1, 100), choice('abc')]\nrandom.seed(1)\n" +
			"[a == [random.random(), randint(1, 100), choice('abc')], len(secrets.token_hex(4)), uuid.uuid4().version]", `[true,8,4]`},
		{"hashes", "import hashlib\n[hashlib.sha256(b'a').hexdigest()[:8], hashlib.pbkdf2_hmac('sha256', b'p', b's', 2).hex()[:8], hashlib.md5(b'').hexdigest()[:8]]", `["ca978112","`},
		{"a memo", "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nf(400)",
			`176023680645013966468226945392411250770384383304492191886725992896575345044216019675`},
		{"a mistake", "a = 1\ndef f(x):\n    return a + x['b']\nf({})", "KeyError: 'b'\n  at line 3, column 16 in f\n  at line 4, column 1\n3 |     return a + x['b']\n                   ^^^^^^"},
		{"a mistake behind what was printed", "print('seen')\n1 / 0", "ZeroDivisionError: division by zero\n  at line 2, column 1\n2 | 1 / 0\n    ^^^^^\nconsole:\nseen\n"},
		{"a mistake behind a fence", "```python\na = 1\nb\n```", "NameError: name 'b' is not defined\n  at line 3, column 1\n3 | b\n    ^"},
		{"a mistake in the syntax", "x = (1,\ny = 2", "SyntaxError: '(' was never closed\n  at line 1, column 5\n1 | x = (1,\n        ^"},
		{"a mistake behind letters", "s = 'ä'; t = s.foo", "at line 1, column 14"},
		{"a cause", "try:\n    int('x')\nexcept ValueError as e:\n    raise RuntimeError('bad') from e", "caused by ValueError: invalid literal"},
		{"a group", "import asyncio\nasync def f(): raise ValueError('inner')\nasync with asyncio.TaskGroup() as g: g.create_task(f())", "ValueError: inner\n  at line 2"},
		{"a package", "import numpy", "No module named 'numpy' (the standard library, requests, yaml and dateutil are here)"},
	}, sandbox.Limits{}, map[string]any{"n": int64(9007199254740993)})
}

// TestPythonIsBuiltFromItsSource builds the module that is part of the program again.
func TestPythonIsBuiltFromItsSource(t *testing.T) {
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: builds CPython twice, for minutes")
	}
	kept, err := os.ReadFile(filepath.Join("host", "internal", "interp", "python.wasm.zst"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err = zstd.Decompress(kept, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "guest-sdk/python/build.sh", dir, filepath.Join(dir, "python.wasm")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	built, err := os.ReadFile(filepath.Join(dir, "python.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if sandbox.Sum(built) != sandbox.Sum(kept) {
		t.Errorf("host/internal/interp/python.wasm.zst has the digest %v, and build.sh makes %v", sandbox.Sum(kept), sandbox.Sum(built))
	}
}
