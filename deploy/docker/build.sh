#!/bin/sh
# Build the images dittomq and dittomq-audit, tagged with the version: `make images` calls it. Needs a container engine.
# The wheels are fetched here, with hashes, by the pip of .venv. Where no registry gives the base images that the
# Dockerfile names, base-images.sh makes them.
set -eu
cd "$(dirname "$0")/../.."
here=deploy/docker python=.venv/bin/python targets=${TARGETS:-broker audit}
tag=${TAG:-$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)}
base=${BASE:-gcr.io/distroless/python3-debian12} build_base=${BUILD_BASE:-python:3.11-slim-bookworm}
command -v docker >/dev/null || { echo "make images: no docker on PATH; install a container engine" >&2; exit 1; }
docker version >/dev/null 2>&1 || { echo "make images: no container engine answers: docker version" >&2; exit 1; }

# fetch LOCK NAME: the wheels that a lock names, once.
fetch() {
	cmp -s "$1" $here/wheels/"$2"/.lock && return
	rm -rf $here/wheels/"$2"
	$python -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --require-hashes \
		--dest $here/wheels/"$2" -r "$1"
	cp "$1" $here/wheels/"$2"/.lock
}
fetch requirements-build.lock build
for target in $targets; do fetch $here/"$target".lock "$target"; done

has() { docker image inspect "$1" >/dev/null 2>&1; }
if ! { { has "$base" || docker pull --quiet "$base"; } && { has "$build_base" || docker pull --quiet "$build_base"; }; } >/dev/null 2>&1; then
	echo "make images: no registry gives $base and $build_base; made from Debian packages instead" >&2
	base=localhost/dittomq-base:bookworm build_base=localhost/dittomq-build-base:bookworm
	{ has $base && has $build_base; } || sh $here/base-images.sh $base $build_base
fi

for target in $targets; do
	name=dittomq
	[ $target = broker ] || name=dittomq-$target
	docker build --quiet --file $here/Dockerfile --target $target --tag "$name:$tag" --network none \
		--build-arg BASE="$base" --build-arg BUILD_BASE="$build_base" . >/dev/null
	echo "$name:$tag $(docker image inspect --format '{{.Size}}' "$name:$tag" | awk '{printf "%d MB", $1 / 1000000}')"
done
