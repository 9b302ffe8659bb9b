#!/bin/sh
# Records the databases and archives of this folder with a starling-host of some version:
#
#     go build -o old ./cmd/starling-host      # at the commit of that version
#     cmd/starling-host/testdata/recorded/record.sh old FOLDER [postgres://...]
#
# The last argument is the address of an empty PostgreSQL database, which the script dumps.
#
# ../script/recorded.txtar and ../postgres/recorded.txtar read, validate and replay the
# recordings with the current program. A folder that is here never changes: record a later
# version into another one. 2026-11/seed.db was written by the Starling runtime.
#
# Needs clang for wasm32, go, python3, curl and bzip2.
set -eu
host=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
mkdir -p "$2"
to=$(realpath "$2")
work=$(mktemp -d)
trap 'kill $server 2>/dev/null || true; rm -r "$work"' EXIT
cd "$work"

clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o shop.wasm "$here/shop.c"
GOOS=wasip1 GOARCH=wasm go build -C "$here/../tools/draw" -trimpath -buildmode=c-shared -ldflags=-w -o "$work/go.wasm" .

# The server answers every request except the first one for a path with "hang".
cat >server.py <<'P'
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "hang" in self.path and not os.path.exists("asked"):
            open("asked", "w").close()
            time.sleep(3600)
        body = b"one book"
        self.send_response(404 if "missing" in self.path else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open("port.part", "w").write(str(server.server_port))
os.rename("port.part", "port")
server.serve_forever()
P
python3 server.py &
server=$!
until [ -e port ]; do sleep 0.05; done
shop=127.0.0.1:$(cat port)

# 1. plain.db: calls of tools, with every way to end and every effect.
run() { "$host" run "$@" --db plain.db 2>>said || true; }
run shop.wasm --tool clock
run shop.wasm --tool draw
run shop.wasm --tool sum
run shop.wasm --tool fail
run shop.wasm --tool trap
run shop.wasm --tool spin --fuel 1M
run shop.wasm --tool spin --timeout 50ms
run shop.wasm --tool look "{\"url\":\"http://$shop/a\"}"
run shop.wasm --tool look "{\"url\":\"http://$shop/missing\"}" --allow-host "$shop" --allow-private
run shop.wasm --tool order "{\"url\":\"http://$shop/a\"}" --allow-host "$shop" --allow-private
run shop.wasm --tool order "{\"url\":\"http://$shop/a\"}" --allow-host "$shop" --allow-private --isolation process
for guest in echo cjson rustjson; do # a small tool, and two in C and Rust that compute and then fail
	run "$here/../../../../bench/guests/$guest.wasm" '{"orders":[{"price":12.5,"count":3,"name":"caf\u00e9"},{"price":1e-7,"count":-2}],"deep":[[[[1.1]]]]}'
done
for tool in look order; do # killed in the middle of an effect: open runs, one of them after an intent
	rm -f asked
	"$host" run shop.wasm --tool $tool "{\"url\":\"http://$shop/hang\"}" --allow-host "$shop" --allow-private --db plain.db 2>>said &
	until [ -e asked ]; do sleep 0.05; done
	kill -KILL $!
	wait $! || true
done
"$host" backup plain.db "$to/plain.db"
"$host" run go.wasm --db go.db 2>>said
"$host" backup go.db "$to/go.db"
"$host" archive plain.db "$to/plain.ndjson" --include-open

# 2. agents.db: parallel tools, reasoning, three ways to end, and a run that another process
# resumed.
cat >agent.yaml <<Y
provider: {script: turns.yaml}
system: You keep a shop.
tools: [{wasm: shop.wasm, allow_hosts: ["$shop"], allow_private: true}, {builtin: read_file, dir: notes}]
max_turns: 4
Y
mkdir notes && echo "A book is five crowns." >notes/prices.txt
cat >turns.yaml <<Y
- reasoning: First the price, then the order.
  text: Let me see.
  tool_calls:
    - {name: read_file, args: {path: prices.txt}}
    - {name: clock, args: {}}
    - {name: draw, args: {n: 1.0, b: 2, a: "<&>"}}
    - {name: look, args: {url: "http://$shop/a"}}
    - {name: order, args: {url: "http://$shop/b"}}
    - {name: order, args: {url: "http://$shop/c"}}
    - {name: fail, args: {}}
    - {name: nobody, args: {}}
- text: It is done.
Y
cat >hang.yaml <<Y
- tool_calls: [{name: draw, args: {}}, {name: order, args: {url: "http://$shop/hang"}}, {name: clock, args: {}}]
- text: It is done, at last.
Y
printf -- '- tool_calls: [{name: draw, args: {}}]\n%.0s' 1 2 3 4 5 >endless.yaml
echo '- error: {class: auth, message: you may not}' >broken.yaml
agent() { "$host" agent run agent.yaml 'A book, please.' --db agents.db "$@" 2>>said || true; }
agent
agent --provider script:endless.yaml
agent --provider script:broken.yaml
rm -f asked
"$host" agent run agent.yaml 'A book, please.' --db agents.db --provider script:hang.yaml 2>>said &
until [ -e asked ]; do sleep 0.05; done
kill -KILL $!
wait $! || true
sed 's/turns.yaml/hang.yaml/' agent.yaml >resumes.yaml
"$host" agent resume agents.db @last --agent resumes.yaml 2>>said
"$host" backup agents.db "$to/agents.db"

# 3. tenants.db, with the master key tenants.key: two tenants, one of them erased.
printf 'listen: unix:host.sock\ndatabase: tenants.db\nkey_file: tenants.key\npolicy: policy.yaml\ninspector: {off: true}\n' >host.yaml
cat >policy.yaml <<Y
version: "1.0"
permissions:
  network:
    allow: [{host: 127.0.0.1, schemes: [http], ports: [${shop##*:}], methods: [GET, POST], private: true}]
Y
"$host" tenant keygen tenants.key
for tenant in acme gone; do
	"$host" tenant create $tenant --db tenants.db --key-file tenants.key >$tenant.key 2>>said
	"$host" tenant policy $tenant policy.yaml --db tenants.db >>said 2>&1
done
"$host" serve --config host.yaml >>said 2>&1 &
serving=$!
until [ -S host.sock ]; do sleep 0.05; done
for tenant in acme gone; do
	ask() { curl -sS --fail-with-body --unix-socket host.sock -H "Authorization: Bearer $(cat $tenant.key)" "$@" >>said; echo >>said; }
	ask -H 'Content-Type: application/wasm' --data-binary @shop.wasm 'http://host/api/v1/modules?name=shop'
	for call in clock draw sum fail look order; do
		ask -H 'Content-Type: application/json' -d "{\"input\":{\"url\":\"http://$shop/$tenant\"}}" "http://host/api/v1/tools/$call/call" || true
	done
done
kill $serving
wait $serving || true
"$host" tenant erase gone --yes --db tenants.db >>said 2>&1
"$host" archive tenants.db "$to/sealed.ndjson"
"$host" archive tenants.db "$to/clear.ndjson" --key-file tenants.key --namespace acme
"$host" backup tenants.db "$to/tenants.db"
cp tenants.key "$to"

# 4. postgres.sql: the dump of a PostgreSQL database.
if [ $# -gt 2 ]; then
	"$host" migrate "$3" >>said
	"$host" run shop.wasm --tool draw --db "$3" 2>>said
	"$host" run shop.wasm --tool order "{\"url\":\"http://$shop/a\"}" --allow-host "$shop" --allow-private --db "$3" 2>>said
	"$host" agent run agent.yaml 'A book, please.' --db "$3" 2>>said
	pg_dump --inserts --no-owner --no-privileges "$3" | grep -v '^\\' >"$to/postgres.sql"
fi

cat said
rm -f "$to"/*.lock "$to"/*.turn
for file in "$to"/*.db "$to"/*.ndjson "$to"/*.sql; do
	[ ! -e "$file" ] || bzip2 -9 -f "$file"
done
ls -l "$to"
