#!/usr/bin/env bash
# install_cuda.sh: in CI, or with HALOGNN_CUDA=1, installs nvcc (Debian's nvidia-cuda-toolkit from
# non-free, 1.6 GB), so that tests/cuda.sh can compile the CUDA kernels. It names what it cannot
# install; HALOGNN_CUDA=0 keeps it from trying.
set -uo pipefail
command -v nvcc >/dev/null 2>&1 && exit 0
case ${HALOGNN_CUDA:-${CI:+1}} in '' | 0 | false) exit 0 ;; esac
say() { echo "install_cuda.sh: nvcc is not installed: $1; the tests go on without it" >&2; exit 0; }
command -v apt-get >/dev/null 2>&1 || say "there is no apt-get"
sudo=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || say "neither root nor sudo"
  sudo=sudo
fi
if ! apt-cache policy nvidia-cuda-toolkit 2>/dev/null | grep -q 'Candidate: [0-9]'; then
  # shellcheck disable=SC1091
  . /etc/os-release
  [ "${ID:-}" = debian ] ||
    say "no package nvidia-cuda-toolkit in the sources of this ${ID:-system}"
  printf 'Types: deb\nURIs: http://deb.debian.org/debian\nSuites: %s\nComponents: contrib non-free\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
    "$VERSION_CODENAME" | $sudo tee /etc/apt/sources.list.d/halognn-non-free.sources >/dev/null
fi
$sudo apt-get update -qq || say "apt-get update failed"
timeout "${HALOGNN_CUDA_SECONDS:-1200}" $sudo env DEBIAN_FRONTEND=noninteractive apt-get install \
  -y -qq --no-install-recommends \
  nvidia-cuda-toolkit g++-11 >/dev/null || # g++-11 is the newest compiler that nvcc accepts
  say "apt-get install failed, or took longer than ${HALOGNN_CUDA_SECONDS:-1200} s (HALOGNN_CUDA_SECONDS)"
