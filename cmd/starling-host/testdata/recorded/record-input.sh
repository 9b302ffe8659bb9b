#!/bin/sh
# Records words.db with a starling-host from before an input was refused with one text, in a run of an
# agent whose model sends a document that ends early, and a list:
#
#     cmd/starling-host/testdata/recorded/record-input.sh old FOLDER
#
# Needs bzip2.
set -eu
host=$(realpath "$1")
root=$(realpath "$(dirname "$0")/../../../..")
mkdir -p "$2"
to=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
cp "$root/bench/guests/echo.wasm" .
cat >script.yaml <<'Y'
- tool_calls: [{name: guest, raw: '{"a":'}]
- tool_calls: [{name: guest, raw: '[1]'}]
- text: done
Y
printf 'provider: {script: script.yaml}\ntools: [echo.wasm]\n' >agent.yaml
"$host" agent run agent.yaml go --db words.db
"$host" backup words.db "$to/words.db"
bzip2 -9 "$to/words.db"
