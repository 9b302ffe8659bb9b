#!/usr/bin/env bash
# Builds the guests that are kept as binaries. It needs Debian's packages clang,
# lld, wasi-libc, libclang-rt-dev-wasm32, rustc and libstd-rust-dev-wasm32. The
# Go guests are built by the benchmark.
set -euo pipefail
cd "$(dirname "$0")"

c() { # c OUTPUT SOURCE FLAGS...
	clang --target=wasm32-wasi -O2 -mexec-model=reactor -Wl,--strip-all -o "$1.wasm" "c/$2.c" "${@:3}"
}

rust() { # rust OUTPUT FLAGS...
	"${RUSTC:-/usr/bin/rustc}" --edition 2021 --crate-type cdylib --target wasm32-unknown-unknown \
		-C opt-level=3 -C lto=fat -C panic=abort -C strip=symbols -o "$1.wasm" rust/json.rs "${@:2}"
}

c tiny tiny -nostdlib -Wl,--no-entry
c tiny-extism tiny -nostdlib -Wl,--no-entry -DEXTISM
c echo echo -fno-builtin -nostdlib -Wl,--no-entry
c echo-large echo -fno-builtin -nostdlib -Wl,--no-entry -DCAPACITY=2097152
c cjson json
c cjson-extism json -DEXTISM
rust rustjson
rust rustjson-extism --cfg extism
ls -l ./*.wasm
