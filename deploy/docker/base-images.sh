#!/bin/sh
# Make both base images from Debian packages, where no registry gives them: base-images.sh BASE BUILD_BASE.
# Needs a container engine, and mmdebstrap as root. Takes half a minute.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# image TAG PACKAGES: the packages are unpacked; nothing of theirs is run.
image() {
	mmdebstrap --variant=extract --quiet --include="$2" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--setup-hook='for name in bin sbin lib lib64; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done' \
		--setup-hook='ln -s python3.11 "$1/usr/bin/python3" && mkdir -p "$1/etc" "$1/tmp" && chmod 1777 "$1/tmp"' \
		bookworm "$work/image.tar"
	docker import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' "$work/image.tar" "$1" >/dev/null
}

# Python and what it links to: no shell, no package manager.
image "$1" python3.11-minimal,libpython3.11-stdlib,libstdc++6,zlib1g
# The same with a shell, and what makes environments and bytecode.
image "$2" python3.11,python3.11-venv,dash,bash,coreutils,findutils,sed,grep,libstdc++6
