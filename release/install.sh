#!/bin/sh
# Installs starling-host @VERSION@: downloads the archive for this machine, checks it against the
# checksums below, and puts the program, its manual and its completions below PREFIX.
#
#   PREFIX=/usr/local sh install.sh       the default is ~/.local
#   RELEASE_URL=... sh install.sh         takes the archive from a mirror
#   sh install.sh --remove                removes what it has installed
set -eu

PREFIX=${PREFIX:-$HOME/.local}
RELEASE_URL=${RELEASE_URL:-@REPOSITORY@/releases/download/@TAG@}
SUMS='@SHA256SUMS@'

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

case ${1-} in
	'' | --remove) ;;
	*) fail "unknown argument $1" "sh install.sh, or sh install.sh --remove; PREFIX and RELEASE_URL are variables" ;;
esac
if [ "${1-}" = --remove ]; then
	rm -f "$PREFIX/bin/starling-host" "$PREFIX"/share/man/man1/starling-host.1 "$PREFIX"/share/man/man1/starling-host-*.1 \
		"$PREFIX/share/bash-completion/completions/starling-host" "$PREFIX/share/zsh/site-functions/_starling-host" \
		"$PREFIX/share/fish/vendor_completions.d/starling-host.fish"
	echo "removed starling-host from $PREFIX; databases are left where they are"
	exit
fi

system=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) arch=$(uname -m) ;;
esac
name=starling-host_@VERSION@_${system}_$arch
sum=$(printf '%s\n' "$SUMS" | sed -n "s/  $name\.tar\.gz\$//p")
[ -n "$sum" ] || fail "there is no archive for $system on $arch" "go install github.com/starling-host/starling/cmd/starling-host@@TAG@"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
url=$RELEASE_URL/$name.tar.gz
if command -v curl >/dev/null; then
	curl -fsSL -o "$work/archive" "$url" || fail "cannot download $url" "curl -fL $url"
else
	wget -qO "$work/archive" "$url" || fail "cannot download $url" "wget $url"
fi
if command -v sha256sum >/dev/null; then got=$(sha256sum "$work/archive"); else got=$(shasum -a 256 "$work/archive"); fi
[ "${got%% *}" = "$sum" ] || fail "$url has the SHA-256 ${got%% *}, and the release has $sum" "download it again, or from another place with RELEASE_URL"

tar -xzf "$work/archive" -C "$work"
from=$work/$name
mkdir -p "$PREFIX/bin" "$PREFIX/share/man/man1" "$PREFIX/share/bash-completion/completions" "$PREFIX/share/zsh/site-functions" "$PREFIX/share/fish/vendor_completions.d"
cp "$from/starling-host" "$PREFIX/bin/.starling-host.new"
mv "$PREFIX/bin/.starling-host.new" "$PREFIX/bin/starling-host" # so that a program that runs goes on with the old one
cp "$from"/man/man1/*.1 "$PREFIX/share/man/man1/"
cp "$from/completions/bash/starling-host" "$PREFIX/share/bash-completion/completions/"
cp "$from/completions/zsh/_starling-host" "$PREFIX/share/zsh/site-functions/"
cp "$from/completions/fish/starling-host.fish" "$PREFIX/share/fish/vendor_completions.d/"
echo "installed $("$PREFIX/bin/starling-host" --version) as $PREFIX/bin/starling-host"
case :$PATH: in *":$PREFIX/bin:"*) ;; *) echo "add $PREFIX/bin to your PATH" ;; esac
