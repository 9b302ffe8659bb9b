#!/bin/sh
# Builds quickjs.wasm and run_js.qjs in host/internal/interp again, from this folder and the npm
# packages that its lock file pins. The same sources give the same bytes, which a test compares.
set -eu
cd "$(dirname "$0")"
[ -d node_modules ] || npm ci --silent
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
node engine.mjs "$dir"
for file in quickjs.wasm run_js.qjs; do
	zstd -q -19 -f "$dir/$file" -o "../../host/internal/interp/$file.zst"
done
