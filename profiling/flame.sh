#!/usr/bin/env bash
# flame.sh RUN [cpu|heap|block|mutex] [PORT]: shows the profiles of all ranks of a run as one flame
# graph in the browser. On a cluster: ssh -L 8080:localhost:8080 LOGIN, then
# http://localhost:8080/ui/flamegraph. Ctrl-C ends it.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/usage.sh" 1 "$@"
run=$1 kind=${2:-cpu} port=${3:-8080}
"$(dirname "$0")/merge.sh" "$run" "$kind"
echo "http://localhost:$port/ui/flamegraph"
CGO_ENABLED=0 exec go tool pprof -no_browser -http="localhost:$port" "$run/profile/$kind.pprof"
