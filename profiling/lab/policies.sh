#!/usr/bin/env bash
# policies.sh [PARTS[:BATCH[:FANOUTS]]...]: how many rows does each cache policy transfer, and does
# the default transfer fewest? Counts them with `halognn simulate` on the products preset at two
# sizes, which it generates, and on the given parts. Prints two tables for each graph: rows relative
# to no cache, while training, and with the rows of the first fill. docs/results/default-policy.md
# has the results.
#
#   profiling/lab/policies.sh parts/fb100-4:256 parts/computers-4:64:10,5
#
#   SIZES    generated: SCALE:SEED:BATCH, or none           [0.1:5:256 1:1:1024]
#   DEFAULT  the policy to compare with the others          [that of halognn config]
#   ALPHAS   sizes of a rank's cache                        [0.05,0.1,0.2,0.3,0.5]
#   EPOCHS   of the run                                     [10]
#   SETS     other settings, KEY=VALUE ...                  []
#   OUT      where graphs, parts and simulations go         [run/policies]
#
# The check fails if another policy transfers fewer rows than the default, at any size, with the
# first fill. optimum is the bound: a cache that knows all minibatches of the run.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-} in
  -h | --help)
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "profiling/lab/$(basename "$0")"
    exit 0
    ;;
esac
fail() {
  echo "policies.sh: $2" >&2
  exit "$1"
}
for arg in "$@"; do
  [ -f "${arg%%:*}/meta.json" ] || fail 2 "${arg%%:*} holds no parts; halognn partition makes them"
done
HALOGNN_QUIET=1 source ./env.sh
program=${HALOGNN:-bin/halognn} out=${OUT:-run/policies}
alphas=${ALPHAS:-0.05,0.1,0.2,0.3,0.5} epochs=${EPOCHS:-10}
stated=$("$program" config | sed -n '/^cache:/,/^[a-z]/s/^  policy: *\([a-z0-9]*\).*/\1/p')
default=${DEFAULT:-$stated}
mkdir -p "$out"

# simulate PARTS BATCH FANOUTS DIR FLAG...: one simulation
simulate() {
  local parts=$1 batch=$2 fanouts=$3 dir=$4 key
  shift 4
  for key in ${SETS:-}; do set -- "$@" --set "$key"; done
  rm -rf "$dir"
  "$program" simulate --parts "$parts" --set "sample.batch=$batch" --set "sample.fanouts=$fanouts" \
    --set "model.layers=$(tr , '\n' <<<"$fanouts" | wc -l)" --epochs "$epochs" \
    --alphas "$alphas" --out "$dir" "$@" >"$dir.log" || fail 1 "see $dir.log"
}

# tables CSV: both tables and the check, from the lines of all simulations of a graph
tables() {
  awk -F, -v default="$default" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
      name = $1; a = $at["alpha"]
      if (!(a in known)) { known[a] = 1; alpha[++m] = a }
      rows[name, a] = $at["rows"]
      all[name, a] = $at["rows"] + $at["filled_rows"]
      if ($at["window"] != "") window[a] = $at["window"]
    }
    function table(title, count,   i, j, x, line) {
      line = "| " title " |"; for (j = 1; j <= m; j++) line = line " " alpha[j] " |"; print line
      line = "|---|"; for (j = 1; j <= m; j++) line = line "--:|"; print line
      for (i = 1; i <= n; i++) {
        line = "| " (names[i] == default ? "**" names[i] "**" : names[i]) " |"
        for (j = 1; j <= m; j++) {
          x = count == "all" ? all[names[i], alpha[j]] : rows[names[i], alpha[j]]
          line = line sprintf(" %.4f |", x / none)
        }
        print line
      }
    }
    END {
      n = split("none,prefetch,prefetch never evicting,sieve,vip,inclusion,oracle,lookahead," \
        "optimum", names, ",")
      none = rows["none", alpha[1]]
      printf "%d rows without a cache\n\n", none
      table("while training", "rows")
      line = "| window of lookahead |"
      for (j = 1; j <= m; j++) line = line " " window[alpha[j]] " |"
      print line "\n"
      table("with what caches begin with", "all")
      print ""
      for (j = 1; j <= m; j++) {
        a = alpha[j]
        for (i = 1; i < n; i++) if (all[names[i], a] < all[default, a]) {
          printf "check FAILED: at alpha %s, %s transfers fewer rows than %s\n",
            a, names[i], default
          bad = 1
        }
        if (rows[default, a] != rows["optimum", a])
          printf "at alpha %s, %s transfers %d rows while training, the optimum %d\n", a, default,
            rows[default, a], rows["optimum", a]
      }
      if (!bad) printf "check: at every size %s transfers the fewest rows\n", default
    }' "$1"
}

failed=0
# compare NAME PARTS BATCH FANOUTS: all policies on one graph
compare() {
  local dir=$out/$1
  mkdir -p "$dir"
  simulate "$2" "$3" "$4" "$dir/policies" \
    --policies none,sieve,prefetch,vip,inclusion,oracle,lookahead,optimum
  simulate "$2" "$3" "$4" "$dir/never" --policies prefetch --set cache.evict=false
  sed -n 's/^prefetch,/prefetch never evicting,/p' "$dir/never/simulate.csv" |
    cat "$dir/policies/simulate.csv" - >"$dir/all.csv"
  {
    printf '\n%s: batch %d, fanouts %s, %d epochs; ' "$1" "$3" "$4" "$epochs"
    tables "$dir/all.csv"
  } | tee "$dir/table.md"
  ! grep -q 'check FAILED' "$dir/table.md" || failed=1
}

sizes=${SIZES:-0.1:5:256 1:1:1024}
[ "$sizes" != none ] || sizes=
for size in $sizes; do
  IFS=: read -r scale seed batch <<<"$size"
  parts=$out/products-$scale-4 data=$out/products-$scale.data
  if [ ! -f "$parts/meta.json" ]; then
    {
      "$program" generate --kind sbm --preset products --scale "$scale" --seed "$seed" --out "$data"
      "$program" partition --data "$data" --parts 4 --method metis --seed 1 --out "$parts"
    } >&2
    rm -r "$data"
  fi
  compare "products-$scale" "$parts" "$batch" 15,10,5
done
for arg in "$@"; do
  IFS=: read -r parts batch fanouts <<<"$arg"
  compare "$(basename "$parts")" "$parts" "${batch:-1024}" "${fanouts:-15,10,5}"
done
exit $failed
