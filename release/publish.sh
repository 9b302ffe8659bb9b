#!/bin/sh
# Publishes dist/, which "make release" has built from a tag: as a release of the repository, as npm
# packages and as an image. Whatever is there already is an error. It needs gh, npm and skopeo, signed in.
set -eu
cd "$(dirname "$0")/../dist"
tag=$(git describe --exact-match --tags)
version=${tag#v}
[ -f "starling-host-$version.tgz" ] || { printf 'error: dist/ is not of %s\nhint: make release\n' "$tag" >&2; exit 1; }
sha256sum --check --quiet SHA256SUMS
gh release create "$tag" --verify-tag --notes "See CHANGELOG.md." ./*
for package in starling-host-*-*-"$version".tgz "starling-host-$version.tgz"; do # the platforms before the one that needs them
	npm publish --access public "$package"
done
skopeo copy --all "oci-archive:starling-host_${version}_image.oci.tar:$version" "docker://ghcr.io/starling-host/starling-host:$version"
