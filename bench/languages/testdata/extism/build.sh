#!/usr/bin/env bash
# Builds transform as plug-ins with Extism's kits: build.sh KITS OUT. KITS is a folder with clones of
# https://github.com/extism/{go,rust,c,assemblyscript}-pdk; those that are missing are cloned into
# it. OUT gets NAME.wasm for each language. It needs Go, Debian's packages of bench/guests/build.sh,
# cargo, and npm ci --prefix guest-sdk/as.
set -euo pipefail
mkdir -p "$1" "$2"
kits=$(cd "$1" && pwd) out=$(cd "$2" && pwd)
cd "$(dirname "$0")"
sdk=$(cd ../../../../guest-sdk && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for kit in go rust c assemblyscript; do
	[ -d "$kits/$kit-pdk" ] || git clone -q --depth 1 "https://github.com/extism/$kit-pdk" "$kits/$kit-pdk"
done

cp -r go rust "$tmp"
printf 'module transform\ngo 1.24\nrequire github.com/extism/go-pdk v0.0.0\nreplace github.com/extism/go-pdk => %s\n' "$kits/go-pdk" >"$tmp/go/go.mod"
(cd "$tmp/go" && GOOS=wasip1 GOARCH=wasm GOFLAGS=-mod=mod go build -buildmode=c-shared -ldflags='-s -w' -o "$out/go.wasm" .)

mkdir "$tmp/c" "$tmp/c/sdk"
cp c/plugin.c "$sdk/c/examples/transform/tool.c" "$kits/c-pdk/extism-pdk.h" "$tmp/c"
cp "$sdk/c/starling.h" "$tmp/c/sdk"
clang --target=wasm32-wasi -O2 -mexec-model=reactor -Wl,--strip-debug -I "$tmp/c" -o "$out/c.wasm" "$tmp/c/plugin.c"

mkdir "$tmp/as"
cp as/plugin.ts "$tmp/as"
cp -r "$kits/assemblyscript-pdk/lib" "$tmp/as/kit"
cp -r "$sdk/as/assembly" "$tmp/as/sdk"
sed -e '/^export \*/d; /^tool(/,$d; s/^function transform/export &/; s/\.\.\/sdk/.\/sdk/' "$sdk/as/examples/transform/assembly/index.ts" >"$tmp/as/tool.ts"
(cd "$tmp/as" && "$sdk/as/node_modules/.bin/asc" plugin.ts -O3 --use abort=plugin/abort --outFile "$out/as.wasm")

cp "$kits/rust-pdk/src/extism.rs" "$tmp/rust/src"
if (cd "$tmp/rust" && RUSTC=${RUSTC:-/usr/bin/rustc} cargo build -q --release --target wasm32-unknown-unknown); then
	cp "$tmp/rust/target/wasm32-unknown-unknown/release/transform.wasm" "$out/rust.wasm"
else
	echo "build.sh: built without Rust, which needs a cargo of the same release as rustc, and the crates serde and serde_json" >&2
fi
ls -l "$out"
