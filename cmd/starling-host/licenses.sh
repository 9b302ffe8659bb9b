#!/usr/bin/env bash
# Writes licenses.txt.gz: the licences of everything that is inside of the program, on any system. go-licenses finds
# those of modules; where it knows no licence by its words, the module's file LICENSE is taken. The licences of what
# is embedded stand beside it. The test TestLicensesOfEverything says when this has to run again: go generate.
set -euo pipefail
cd "$(dirname "$0")"
GO_LICENSES=github.com/google/go-licenses@v1.6.0
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install "$GO_LICENSES"
printf '{{range .}}{{.Name}}|{{.LicenseName}}|{{.LicensePath}}\n{{end}}' >"$bin/template"
title() { printf '\n%s\n%s\n\n' "$1" "${1//?/=}"; }
for os in linux darwin windows freebsd; do
	GOOS=$os CGO_ENABLED=0 "$bin/go-licenses" report . --ignore github.com/starling-host/starling --template "$bin/template" 2>/dev/null
done | grep '|' | LC_ALL=C sort -u >"$bin/list"
{
	printf 'The licences of what is inside of starling-host, beside its own, which is Apache-2.0.\n'
	title "Go $(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
	while IFS='|' read -r name kind path; do
		read -r module version dir < <(go list -find -f '{{.Module.Path}} {{.Module.Version}} {{.Module.Dir}}' "$name" 2>/dev/null || go list -m -f '{{.Path}} {{.Version}} {{.Dir}}' "$name")
		path=${path:-$dir/LICENSE}
		[ "$kind" != Unknown ] || kind="see below"
		title "$name $version ($kind)"
		cat "$path"
		for more in "$dir"/LICENSE* "$dir"/COPYING* "$dir"/NOTICE* "$dir"/PATENTS*; do # of what a module contains
			if [ -f "$more" ] && [ "$more" != "$path" ]; then
				printf '\n%s\n\n' "${more##*/}"
				cat "$more"
			fi
		done
	done <"$bin/list"
	for file in ../../host/internal/interp/LICENSE.* internal/verifier/LICENSE.*; do
		title "${file##*.}, embedded"
		cat "$file"
	done
} | gzip -9n >licenses.txt.gz.new
mv licenses.txt.gz.new licenses.txt.gz
