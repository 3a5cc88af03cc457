#!/bin/sh
# Make both base images from Debian packages, where no registry gives them: base-images.sh BASE BUILD_BASE.
# Needs a container engine, and mmdebstrap as root. Takes two minutes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# image TAG VARIANT PACKAGES [FLAG...]
image() {
	tag=$1 variant=$2 packages=$3
	shift 3
	mmdebstrap --variant="$variant" --quiet --include="$packages" "$@" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		bookworm "$work/image.tar"
	docker import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' "$work/image.tar" "$tag" >/dev/null
}

# Python and what it links to: no shell, no package manager. The packages are unpacked; nothing of theirs is run.
image "$1" extract python3.11-minimal,libpython3.11-stdlib,libstdc++6,zlib1g \
	--setup-hook='for name in bin sbin lib lib64; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done' \
	--setup-hook='ln -s python3.11 "$1/usr/bin/python3" && mkdir -p "$1/etc" "$1/tmp" && chmod 1777 "$1/tmp"'
image "$2" minbase python3.11-venv \
	--customize-hook='ln -sf python3.11 "$1/usr/bin/python3" && rm -f "$1/usr/lib/python3.11/EXTERNALLY-MANAGED"'
