#!/usr/bin/env bash
# install.sh run|test|test-all: installs those libraries that halognn, `make test` or `make
# test-all` needs and that are missing, and nothing else. It uses apt-get, as root or by sudo;
# without them it says exactly what to install, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
need=${1:?usage: install.sh run|test|test-all}

missing=()
command -v go >/dev/null 2>&1 || { echo "install.sh: no go on the PATH; install Go 1.26 or later (https://go.dev/dl), or add its bin directory to PATH" >&2; exit 1; }
command -v "${CC:-cc}" >/dev/null 2>&1 || {
  echo "install.sh: no ${CC:-cc} on the PATH; install gcc, or set CC to the C compiler" >&2
  exit 1
}
HALOGNN_QUIET=1 source ./env.sh
# shellcheck disable=SC2206
missing+=($HALOGNN_MISSING)
# pkg-config is needed only to find libraries that are not found otherwise
if [ ${#missing[@]} -gt 0 ] && ! command -v pkg-config >/dev/null 2>&1; then
  missing=(pkg-config "${missing[@]}")
fi
# Debian has the launcher in a package of its own
if [ -n "$HALOGNN_MPIRUN" ] && ! command -v "$HALOGNN_MPIRUN" >/dev/null 2>&1 &&
  command -v apt-get >/dev/null 2>&1; then
  case $HALOGNN_MPIRUN in *mpich*) missing+=(mpich) ;; *) missing+=(openmpi-bin) ;; esac
fi
# for test-all: the second MPI, Slurm, the linter, SimGrid and SciPy; tests without them say what
# they left out
if [ "$need" = test-all ]; then
  command -v mpicc.mpich >/dev/null 2>&1 || missing+=(mpich libmpich-dev)
  PATH=$PATH:/usr/sbin command -v slurmctld >/dev/null 2>&1 || missing+=(slurm-wlm)
  command -v shellcheck >/dev/null 2>&1 || missing+=(shellcheck)
  command -v smpirun >/dev/null 2>&1 || missing+=(libsimgrid-dev)
  # for tests/abi.sh
  "${PYTHON:-python3}" -c 'import ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)
fi
if [ "$need" != run ]; then
  # for the Python package's tests
  "${PYTHON:-python3}" -c 'import numpy, scipy, h5py' >/dev/null 2>&1 ||
    /usr/bin/python3 -c 'import numpy, scipy, h5py' >/dev/null 2>&1 ||
    missing+=(python3-numpy python3-scipy python3-h5py)
fi
[ "$need" != test-all ] || tests/install_cuda.sh
# shellcheck disable=SC2206
optional=($HALOGNN_OPTIONAL)
[ ${#missing[@]} -gt 0 ] || [ ${#optional[@]} -gt 0 ] || exit 0
can_install() {
  command -v apt-get >/dev/null 2>&1 &&
    { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null 2>&1; }
}
if [ ${#missing[@]} -eq 0 ] && ! can_install; then
  echo "install.sh: not there, and the program runs slower without: ${optional[*]}" >&2
  exit 0
fi

echo "install.sh: missing: ${missing[*]} ${optional[*]}" >&2
leave_out() { echo "install.sh: $1; the tests that need them will be left out" >&2; exit 0; }
if ! command -v apt-get >/dev/null 2>&1; then
  [ "$need" = run ] || leave_out "no apt-get here"
  cat >&2 <<'TEXT'
install.sh: there is no apt-get here. Install, with their development files, and run again:
  an MPI (Open MPI 4 or 5, MPICH 4, or a vendor's MPICH)  whose mpicc is on the PATH, or set HALOGNN_MPICC
  OpenBLAS                                                 found by pkg-config, or cblas.h on the include path
  METIS 5                                                  metis.h on the include path, or set METIS_ROOT
On a cluster: `module load` them (HALOGNN_MODULES="openmpi openblas metis" makes env.sh do it).
TEXT
  exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || [ "$need" = run ] || leave_out "neither root nor sudo"
  command -v sudo >/dev/null 2>&1 || {
    echo "install.sh: run as root, or have an administrator run: apt-get install ${missing[*]}" >&2
    exit 1
  }
  sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
install() {
  $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq \
    --no-install-recommends "$@" >/dev/null
}
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
for package in "${optional[@]}"; do
  install "$package" || echo "install.sh: no $package: the program runs slower without" >&2
done
