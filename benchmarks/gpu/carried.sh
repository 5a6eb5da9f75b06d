#!/bin/sh
# Run benchmarks/gpu on a bare machine with a GPU, where nothing can be downloaded.
#
#   benchmarks/gpu/carried.sh pack FOLDER    here: put all that is needed into a folder
#   sh FOLDER/gpu/carried.sh [OPTION...]     there, as root: run it, with options of it
#
# There has to be a python3 with torch for CUDA, numpy, scipy, networkx and psutil. The
# programs of iproute2 are Debian's or Ubuntu's, of this machine's architecture.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ "${1-}" = pack ]; then
  mkdir -p "$2" && folder=$(cd "$2" && pwd)
  "${PYTHON:-python3}" -m pip wheel -q --no-deps -w "$folder" "$here/../.."
  (cd "$folder" && apt-get download -q iproute2 libbpf1 libelf1 libmnl0 libxtables12 \
    libbsd0 libmd0 libcap2)
  cp -r "$here" "$here/../byte_audit" "$folder"
  git -C "$here" describe --always --dirty --abbrev=12 >"$folder/gpu/commit"
  exit
fi

carried=${here%/*}
site=$(mktemp -d) tools=$(mktemp -d)
trap 'rm -rf "$site" "$tools"' EXIT
python3 -m pip install -q --no-index --no-deps --target "$site" "$carried"/cloudcoll-*.whl
# What is here already comes first.
for deb in "$carried"/*.deb; do dpkg -x "$deb" "$tools"; done
libraries=$tools/lib/$(uname -m)-linux-gnu:$tools/usr/lib/$(uname -m)-linux-gnu
if ! command -v ip >/dev/null; then
  export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
export PYTHONPATH="$site"
export PATH="$PATH:$tools/bin:$tools/sbin:$tools/usr/bin:$tools/usr/sbin"
python3 "$here" --seconds 480 --output gpu.json "$@"
