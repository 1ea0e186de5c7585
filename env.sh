# shellcheck shell=sh disable=SC2086,SC2254  # flags and patterns are meant to be split and matched
# env.sh: finds MPI, BLAS, oneDNN, METIS, hwloc and CUDA, exports the flags that build halognn
# against them, and says what it found.
#
#   . ./env.sh                       from bash or sh, in the repository root (the Makefile and the
#                                    job scripts do this)
#   HALOGNN_MPICC=mpicc.mpich        another MPI compiler (Cray: cc); its mpirun is taken from
#                                    beside it
#   HALOGNN_MODULES="gcc openmpi"    environment modules to load first, on machines that have them
#   HALOGNN_QUIET=1                  say nothing
#
# It changes nothing but the environment. What is missing is listed in HALOGNN_MISSING, as Debian
# package names; what the program runs faster with, in HALOGNN_OPTIONAL.

halognn_say() { [ -n "${HALOGNN_QUIET:-}" ] || printf 'env.sh: %-6s %s\n' "$1" "$2" >&2; }

# not the root of another copy, sourced before
if [ -f ./env.sh ] && [ -d ./kernels ]; then HALOGNN_ROOT=$PWD; fi
HALOGNN_ROOT=${HALOGNN_ROOT:-$PWD}
if [ ! -f "$HALOGNN_ROOT/env.sh" ]; then
  halognn_say error "$HALOGNN_ROOT is not the repository root: cd there, or set HALOGNN_ROOT"
fi
export HALOGNN_ROOT HALOGNN_MISSING='' HALOGNN_OPTIONAL=''

if [ -n "${HALOGNN_MODULES:-}" ] && command -v module >/dev/null 2>&1; then
  for halognn_m in $HALOGNN_MODULES; do
    module load "$halognn_m" || halognn_say error "module load $halognn_m failed"
  done
fi

# halognn_compiles HEADER FLAGS: true if a program including HEADER compiles.
halognn_compiles() {
  printf '#include <%s>\nint main(void){return 0;}\n' "$1" |
    ${CC:-cc} $2 -x c -fsyntax-only - >/dev/null 2>&1
}
# halognn_pick PATTERN WORDS...: the words that match the pattern.
halognn_pick() {
  halognn_p=$1
  shift
  for halognn_w in "$@"; do case $halognn_w in $halognn_p) printf '%s ' "$halognn_w" ;; esac; done
}

# MPI: the wrapper compiler knows its own flags ("-show" is understood by Open MPI, MPICH and Intel
# MPI).
halognn_mpi=mpi halognn_mpicc=${HALOGNN_MPICC:-mpicc}
if command -v "$halognn_mpicc" >/dev/null 2>&1 &&
  halognn_show=$("$halognn_mpicc" -show 2>/dev/null); then
  HALOGNN_MPI_CFLAGS="$(halognn_pick '-[ID]*' $halognn_show)"
  HALOGNN_MPI_LIBS="$(halognn_pick '-[Ll]*' $halognn_show)$(halognn_pick '-Wl,*' $halognn_show)"
  case $halognn_mpicc in
    *mpicc_abi) # any MPI of the standard ABI launches it
      HALOGNN_MPIRUN=${HALOGNN_ABI_MPIRUN:-${halognn_mpicc%mpicc_abi}mpirun} ;;
    *mpicc*) HALOGNN_MPIRUN=${halognn_mpicc%mpicc*}mpirun${halognn_mpicc##*mpicc} ;;
    *) HALOGNN_MPIRUN=${HALOGNN_MPIRUN:-mpirun} ;;
  esac
  halognn_say MPI "$halognn_mpicc: $(halognn_pick '-l*' $halognn_show)launched by $HALOGNN_MPIRUN"
elif [ -n "${HALOGNN_MPICC:-}" ] && printf '#include <mpi.h>\n' |
  "$HALOGNN_MPICC" -x c -fsyntax-only - >/dev/null 2>&1; then
  # Cray's cc shows nothing and needs no flags, if it is what compiles and links
  export CC="$HALOGNN_MPICC"
  HALOGNN_MPI_CFLAGS='' HALOGNN_MPI_LIBS='' HALOGNN_MPIRUN=${HALOGNN_MPIRUN:-srun}
  halognn_say MPI "$CC finds it by itself; launched by $HALOGNN_MPIRUN"
elif pkg-config --exists mpi 2>/dev/null; then
  HALOGNN_MPI_CFLAGS=$(pkg-config --cflags mpi) HALOGNN_MPI_LIBS=$(pkg-config --libs mpi)
  HALOGNN_MPIRUN=mpirun
  halognn_say MPI "pkg-config mpi: $HALOGNN_MPI_LIBS"
else
  HALOGNN_MPI_CFLAGS='' HALOGNN_MPI_LIBS='' HALOGNN_MPIRUN='' halognn_mpi=''
  HALOGNN_MISSING="$HALOGNN_MISSING libopenmpi-dev openmpi-bin"
  halognn_say MPI "not found (no $halognn_mpicc, no pkg-config mpi)"
fi

# BLAS: any library with the CBLAS interface; OpenBLAS is what is tested. Its include path must not
# come first: gonum's binding has a cblas.h of its own, and OpenBLAS's does not fit it.
halognn_blas=blas
if pkg-config --exists openblas 2>/dev/null; then
  HALOGNN_BLAS_LIBS=$(pkg-config --libs openblas)
  halognn_say BLAS "OpenBLAS $(pkg-config --modversion openblas): $HALOGNN_BLAS_LIBS"
elif halognn_compiles cblas.h "${CPPFLAGS:-}"; then
  HALOGNN_BLAS_LIBS=-lopenblas
  halognn_say BLAS "cblas.h, -lopenblas"
else
  HALOGNN_BLAS_LIBS='' halognn_blas=''
  HALOGNN_MISSING="$HALOGNN_MISSING libopenblas-dev"
  halognn_say BLAS "not found (no pkg-config openblas, no cblas.h)"
fi

# oneDNN is loaded at run time, from where the loader looks or HALOGNN_ONEDNN_LIB says; without it
# OpenBLAS multiplies.
halognn_onednn=${HALOGNN_ONEDNN_LIB:-$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
  sed -n 's|.*libdnnl\.so\.[23] .*=> ||p' | head -1)}
if [ -n "$halognn_onednn" ]; then halognn_say oneDNN "$halognn_onednn"
else
  halognn_say oneDNN "not found (OpenBLAS multiplies matrices)"
  case $(uname -m) in x86_64) HALOGNN_OPTIONAL="$HALOGNN_OPTIONAL libdnnl-dev" ;; esac
fi

# METIS
halognn_metis=metis
if halognn_compiles metis.h "${METIS_ROOT:+-I$METIS_ROOT/include}"; then
  HALOGNN_METIS_CFLAGS=${METIS_ROOT:+-I$METIS_ROOT/include}
  HALOGNN_METIS_LIBS="${METIS_ROOT:+-L$METIS_ROOT/lib }-lmetis"
  halognn_width=$(printf '#include <metis.h>\nwidth IDXTYPEWIDTH\n' |
    ${CC:-cc} $HALOGNN_METIS_CFLAGS -E -P - 2>/dev/null | sed -n 's/^width //p')
  halognn_say METIS "$HALOGNN_METIS_LIBS, $halognn_width-bit indices"
else
  HALOGNN_METIS_CFLAGS='' HALOGNN_METIS_LIBS='' halognn_metis=''
  HALOGNN_MISSING="$HALOGNN_MISSING libmetis-dev"
  halognn_say METIS "not found (no metis.h; METIS_ROOT may name where it is)"
fi

# KaMinPar runs in a Python that has its wheel; without one `partition` has METIS and LDG.
if [ -z "${HALOGNN_KAMINPAR_PYTHON:-}" ] && [ -x "$HALOGNN_ROOT/build/kaminpar/bin/python3" ]; then
  export HALOGNN_KAMINPAR_PYTHON="$HALOGNN_ROOT/build/kaminpar/bin/python3"
fi

# hwloc is the launcher's affair (binding); halognn reads the cpuset it is given. CUDA is loaded at
# run time.
if command -v hwloc-info >/dev/null 2>&1; then
  halognn_say hwloc "$(hwloc-info --version 2>/dev/null)"
elif pkg-config --exists hwloc 2>/dev/null; then
  halognn_say hwloc "$(pkg-config --modversion hwloc)"
else halognn_say hwloc "not found (only the launcher's binding needs it)"; fi
if command -v nvcc >/dev/null 2>&1; then
  halognn_say CUDA "$(nvcc --version | sed -n 's/.*release //p')"
else halognn_say CUDA "not found (ranks train on the CPU)"; fi

# The libraries found, as build tags; e2e are the tests that start programs.
HALOGNN_TAGS=$(echo e2e $halognn_mpi $halognn_blas $halognn_metis | tr ' ' ,)
GOFLAGS=$(for halognn_w in ${GOFLAGS:-}; do
  case $halognn_w in -tags=*) ;; *) printf '%s ' "$halognn_w" ;; esac
done)-tags=$HALOGNN_TAGS
export HALOGNN_TAGS GOFLAGS
# Go does not see that the CUDA library was rebuilt: a hash of its sources among the flags makes it
# test again. The flags of floating point only cost speed where they are missing, in a build without
# this file: cgo lets no source ask for them.
halognn_hash=$({ cat "$HALOGNN_ROOT"/kernels/include/* \
  "$HALOGNN_ROOT"/kernels/cuda/*.cu* "$HALOGNN_ROOT"/tests/emulate/* \
  "$HALOGNN_ROOT"/kernels/Makefile 2>/dev/null || true; } | cksum | cut -d' ' -f1)
export HALOGNN_MPIRUN
export CGO_CFLAGS="-O2 -fno-math-errno -fno-trapping-math -DHALOGNN_CUDA_HASH=$halognn_hash \
$HALOGNN_MPI_CFLAGS $HALOGNN_METIS_CFLAGS"
export CGO_LDFLAGS="$HALOGNN_MPI_LIBS $HALOGNN_BLAS_LIBS $HALOGNN_METIS_LIBS"

# OpenBLAS is called from threads that are pinned already; a pool of its own would fight them.
export OPENBLAS_NUM_THREADS=1

# Containers and laptops: root may launch, and there may be more ranks than cores (Open MPI 4, then
# 5).
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# mpirun kills a job that it ends (Ctrl-C, the death of a rank) after twice this time: a step and a
# save have to fit (Open MPI 4, then 5).
export OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-6}" \
  PRTE_MCA_odls_base_sigkill_timeout="${PRTE_MCA_odls_base_sigkill_timeout:-6}"
if [ -z "${SLURM_JOB_ID:-}" ]; then
  export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
    OMPI_MCA_mpi_yield_when_idle=1
fi
