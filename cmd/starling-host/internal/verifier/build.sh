#!/bin/sh
# Makes verifier.wasm.gz, and wasm_exec.js, with the go command. The bytes follow from the
# sources and from the version of Go.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
GOOS=js GOARCH=wasm GOFLAGS= CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o "$out/verifier.wasm" ./program
gzip -9 -n -f "$out/verifier.wasm"
cp "$(go env GOROOT)/lib/wasm/wasm_exec.js" "$out/wasm_exec.js"
