.PHONY: check release outdated bench bench-hosting bench-documents bench-code bench-components bench-languages fuzz llms-full.txt

# What one runs before each commit.
check:
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); [ -z "$$unformatted" ] || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	go vet ./...
	go test -short -vet=off ./...

# Builds all files of a release into dist/, twice, and compares. VERSION=v0.1.0 names it; without, the
# tag of the commit does. Only what is committed gets in.
release:
	go run -C release . -out "$(CURDIR)/dist" $(if $(VERSION),-version $(VERSION))

# Lists dependencies that have a newer version, and the tools whose version is pinned.
outdated:
	@for m in $$(git ls-files go.mod '*/go.mod' | xargs -n1 dirname); do \
	go -C $$m list -m -e -u -f '{{with .Update}}'$$m': {{$$.Path}} {{$$.Version}} -> {{.Version}}{{if $$.Indirect}} (indirect){{end}}{{end}}' all | grep . || true; done
	@for d in $$(git ls-files '*package-lock.json' | xargs -n1 dirname); do (cd $$d && npm outdated) || true; done
	@git grep -hoE '[a-z0-9.]+\.[a-z]+/[A-Za-z0-9/_.-]+@v[0-9.]+' .ci release | sort -u

# Compares original with metered modules, and compiler with interpreter, on
# random programs until a difference is found. FUZZTIME=1m ends it earlier.
fuzz:
	go test -run '^$$' -fuzz '^FuzzDifferential$$' -fuzzminimizetime 20x $(if $(FUZZTIME),-fuzztime $(FUZZTIME)) ./host/internal/rewrite

# Compares the sandbox with other hosts on the same guests, in turns, and writes
# a table and a plot. It needs a C compiler, for Wasmtime.
bench:
	cd bench && go run . -out results

# Measures appends and queued calls on SQLite and Postgres against the raw engines,
# the plain ways to use them and River, in turns, and writes a table. It takes about
# ten minutes and needs a PostgreSQL server to start.
bench-hosting:
	cd bench && go run ./hosting -out results/hosting.md

# Measures runs, calls and replays with a large document against encoding/json, and writes a
# table.
bench-documents:
	cd bench && go run ./documents -out results/documents.md

# Has a scripted model do a task in a program and by one call a turn, with servers from
# npm, measures a call of run_js beside other ways, and writes a table. It needs Node.
bench-code:
	cd bench/codemode && go run . -out ../results/codemode.md

# Measures loads and calls of components and a plug-in beside Node and Extism, and writes a
# table. Without npm and Node it measures what needs neither.
bench-components:
	-npm install --silent --prefix bench/components
	cd bench && go run ./components -out results/components.md

# Measures one tool in every language, beside Extism, Python and Node, and writes the tables of
# docs/languages.md. It needs the compilers of all languages, and clones Extism's kits into KITS.
KITS ?= $(or $(TMPDIR),/tmp)/extism-kits
bench-languages:
	npm ci --silent --prefix guest-sdk/as
	bench/languages/testdata/extism/build.sh $(KITS) $(KITS)/plugins
	cd bench && go run ./languages -extism $(abspath $(KITS))/plugins -w ../docs/languages.md

# Writes all pages into one file, for assistants that are given one. It is not
# committed: it would be a second copy of what every change of a page changes.
llms-full.txt:
	{ printf 'From README.md:\n\n'; cat README.md; \
	git ls-files '*.md' ':!README.md' ':!bench' | while read -r page; do printf '\n\nFrom %s:\n\n' "$$page"; cat "$$page"; done; } >$@
