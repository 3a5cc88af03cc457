#!/bin/sh
# Within the Dockerfile, `install.sh LOCK`: what a lock names into /opt/dittomq/packages, checked against its hashes.
# Left out is what no running node reads: tests, sources of compiled code, the slower twin of a backend, lexers.
set -eu
tools/bin/pip wheel --quiet --no-index --find-links wheels --require-hashes --no-deps --no-build-isolation --wheel-dir built -r "$1"
packages=/opt/dittomq/packages
tools/bin/pip install --quiet --no-index --no-deps --no-compile --target $packages built/*.whl
rm -r built
cd $packages
rm -rf bin numpy/f2py numpy/distutils numpy/_core/include numpy/_core/lib zstandard/_cffi.*.so pygments/lexers
find numpy -depth -type d -name tests -exec rm -r {} +
find . -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete
python3 -m compileall -q .
# The client of the Kubernetes API is 20 MB of source, generated: its bytecode is enough.
if [ -d kubernetes_asyncio ]; then
	find kubernetes_asyncio -name __pycache__ -prune -exec rm -r {} +
	python3 -m compileall -q -b kubernetes_asyncio
	find kubernetes_asyncio -name '*.py' -delete
fi
