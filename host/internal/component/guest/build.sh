#!/bin/sh
# Builds guest.wasm again, with Debian's clang and lld. The same sources give the same bytes,
# which a test compares.
set -eu
cd "$(dirname "$0")"
object=$(mktemp)
trap 'rm -f "$object"' EXIT
clang --target=wasm32-unknown-emscripten -Os -fPIC -fvisibility=hidden -ffreestanding -nostdlib -fno-strict-aliasing \
	-mbulk-memory -msign-ext -mnontrapping-fptoint -Wall -Werror -Wno-unused-function -c -o "$object" guest.c
wasm-ld --experimental-pic -shared --no-entry --allow-undefined --strip-debug -o "${1:-guest.wasm}" "$object"
