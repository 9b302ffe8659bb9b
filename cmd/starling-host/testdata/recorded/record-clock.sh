#!/bin/sh
# Records clock.db and exit.db with a starling-host from before exchanges took time on the clocks of
# tools, and from before the error of a program that exits with 1 had its standard output:
#
#     cmd/starling-host/testdata/recorded/record-clock.sh old FOLDER
#
# Needs clang for wasm32, wasi-libc, python3 and bzip2.
set -eu
host=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
mkdir -p "$2"
to=$(realpath "$2")
work=$(mktemp -d)
trap 'kill $server 2>/dev/null || true; rm -r "$work"' EXIT
cd "$work"
clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o lag.wasm "$here/lag.c"
cat >server.py <<'P'
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.25)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
open("port.part", "w").write(str(server.server_port))
os.rename("port.part", "port")
server.serve_forever()
P
python3 server.py &
server=$!
until [ -e port ]; do sleep 0.05; done
url=http://127.0.0.1:$(cat port)/
"$host" run lag.wasm "{\"url\":\"$url\"}" --db clock.db
"$host" run lag.wasm "{\"url\":\"$url\"}" --db clock.db --allow-host "127.0.0.1:$(cat port)" --allow-private
"$host" backup clock.db "$to/clock.db"
clang --target=wasm32-wasi -O2 -s -o lint.wasm "$here/lint.c"
for style in '--arg x' "--stdin x" '{}'; do
	"$host" run lint.wasm $style --db exit.db && exit 1
done
"$host" backup exit.db "$to/exit.db"
bzip2 -9 "$to/clock.db" "$to/exit.db"
