#!/bin/sh
# Builds run_js.wasm again, from guest-sdk/js/runjs and the npm packages that the lock file
# of guest-sdk/js pins. The same sources give the same bytes, which a test compares.
set -eu
cd "$(dirname "$0")"
sdk=../../../guest-sdk/js
[ -d $sdk/node_modules ] || npm ci --silent --prefix $sdk
node $sdk/build.mjs --root $sdk $sdk/runjs/run_js.js "${1:-run_js.wasm}"
