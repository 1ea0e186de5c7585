#!/usr/bin/env bash
# distdgl.sh PYTHON PARTS RATE SAMPLERS ARG...: runs DistDGL on four hosts of this machine
# (hosts.sh), each with a server, a trainer and SAMPLERS sampling processes. distdgl_train.py gets
# ARG.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../../usage.sh" 4 "$@"
python=$1 parts=$2 rate=$3 samplers=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/host.sh" <<'S'
set -euo pipefail
IFS=, read -r -a addresses <<<"$ADDRESSES"
printf '%s 30050\n' "${addresses[@]}" >"$WORK/ip-$HOST.txt"
export DGL_DIST_MODE=distributed DGL_NUM_SAMPLER=$SAMPLERS DGL_NUM_SERVER=1 DGL_KEEP_ALIVE=0
export DGL_NUM_CLIENT=$((HOSTS * (1 + SAMPLERS))) DGL_CONF_PATH=$PARTS/g.json DGLBACKEND=pytorch
export DGL_IP_CONFIG=$WORK/ip-$HOST.txt DGL_GRAPH_FORMAT=csc OMP_NUM_THREADS=1
export GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
args=("$HERE/distdgl_train.py" data --addresses "$WORK/ip-$HOST.txt" --parts "$PARTS/g.json"
  --workers "$SAMPLERS" --threads 1 "$@")
DGL_ROLE=server DGL_SERVER_ID=$HOST "$PYTHON" "${args[@]}" >"$WORK/server-$HOST.log" 2>&1 &
[ "$HOST" = 0 ] || exec >/dev/null # an epoch's line is printed when the epoch ends
DGL_ROLE=client MASTER_ADDR=${addresses[0]} MASTER_PORT=23456 WORLD_SIZE=$HOSTS RANK=$HOST \
  timeout 1800 "$PYTHON" "${args[@]}" 2>"$WORK/trainer-$HOST.log" ||
  { tail -5 "$WORK/trainer-$HOST.log" >&2; exit 1; }
S
export PYTHON=$python PARTS=$parts SAMPLERS=$samplers WORK=$work HERE=$here
"$here/../hosts.sh" -n 4 -c "$(nproc)" -r "$rate" -e -- bash "$work/host.sh" "$@"
