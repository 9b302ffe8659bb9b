#!/bin/sh
# Types a few commands of starling-host into a shell, in an empty folder, and draws what the
# terminal shows: docs/img/session.svg. TestPages checks that it still shows that.
set -eu
cd "$(dirname "$0")/../.."
repo=$PWD
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir" ./cmd/starling-host
ln -s "$repo/go.mod" "$repo/go.sum" "$repo/abi" "$repo/guest-sdk" "$repo/tools-wasm" "$dir"
PATH="$dir:$PATH"
cd "$dir"

while IFS= read -r command; do
	echo "$ $command"
	sh -c "$command" 2>&1
	echo
done >session.txt <<'END'
starling-host run tools-wasm/dice '{"rolls":5}'
starling-host show @last
starling-host replay @last
starling-host replay @last --engine interpreter
END

awk -v columns=104 -v step=19 '
BEGIN { y = 58 }
{
	if (length($0) > columns) $0 = substr($0, 1, columns - 4) " ..."
	gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;")
	text = text sprintf("<text class=\"%s\" x=\"20\" y=\"%d\">%s</text>\n", /^\$ / ? "typed" : "out", y, $0)
	y += step
}
END {
	width = columns * 8 + 40; height = y - step + 4
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" xml:space=\"preserve\">\n", width, height, width, height
	print "<title>A tool is run, its events are listed, and the run is replayed byte for byte</title>"
	print "<style>"
	print "text { font: 13.3px ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; white-space: pre; }"
	print ".out { fill: #c9d1d9; }"
	print ".typed { fill: #7ee787; font-weight: bold; }"
	print "</style>"
	printf "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"10\" fill=\"#161b22\" stroke=\"#30363d\"/>\n", width - 1, height - 1
	print "<circle cx=\"22\" cy=\"22\" r=\"6\" fill=\"#ff5f57\"/><circle cx=\"42\" cy=\"22\" r=\"6\" fill=\"#febc2e\"/><circle cx=\"62\" cy=\"22\" r=\"6\" fill=\"#28c840\"/>"
	printf "%s</svg>\n", text
}' session.txt >"$repo/docs/img/session.svg"
