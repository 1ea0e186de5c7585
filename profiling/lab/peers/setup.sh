#!/usr/bin/env bash
# setup.sh [DIR]: makes a venv with DGL and PyTorch Geometric in DIR (build/peers) for compare.py;
# it takes about 4 GB. As root on Debian it also installs tcmalloc, which makes PyTorch up to twice
# as fast. SPARSE=1 also builds torch-sparse, with which PyG samples (a quarter of an hour).
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../../usage.sh" 0 "$@"
cd "$(dirname "$0")/../../.."
dir=${1:-build/peers}
python3 -m venv "$dir"
"$dir/bin/pip" install torch==2.1.2 dgl==2.1.0 'numpy<2' scipy torchdata==0.7.1 pandas pyyaml \
  pydantic psutil torch-geometric==2.5.3
if [ -z "$(find /usr/lib* -name libtcmalloc_minimal.so.4 -print -quit)" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y -q libtcmalloc-minimal4
  else
    echo "not installed: libtcmalloc_minimal.so.4 (Debian: libtcmalloc-minimal4)" >&2
  fi
fi
if [ -n "${SPARSE:-}" ]; then
  "$dir/bin/pip" install 'setuptools<70' wheel ninja
  "$dir/bin/pip" install --no-build-isolation torch-scatter==2.1.2 torch-sparse==0.6.18
fi
