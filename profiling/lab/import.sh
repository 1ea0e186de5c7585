#!/usr/bin/env bash
# import.sh FORMAT IN DATASET [FLAG...]: imports a public graph into a DATASET, by the program or,
# for formats that the Python package reads, by PYTHON (python3), which then needs NumPy and SciPy.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export HALOGNN=${HALOGNN:-$root/bin/halognn}
case $1 in
  gemsec | mat | planetoid | saint)
    PYTHONPATH=$root/python exec "${PYTHON:-python3}" -m halognn "$@" ;;
esac
exec "$HALOGNN" import --format "$1" --in "$2" --out "$3" "${@:4}"
