#!/usr/bin/env bash
# sums.sh PARTS [OUT]: what travels with exchange.sums on, counted by halognn simulate: rows and sums
# relative to the rows without a cache, for the look-ahead cache with its planned window and with all
# minibatches known, and for others. Prints tables; fails if a GOAL is missed.
#
#   halognn generate --kind sbm --preset products --scale 0.1 --seed 5 --out data
#   halognn partition --data data --parts 4 --method metis --seed 1 --out parts
#   GOALS="0.59 0.48 0.44 0.385 0.29 0.47 0.43 0.37 0.28" profiling/sums.sh parts
#
#   FANOUTS  [15,10,5]   BATCH [256]   EPOCHS [3]   ALPHAS [0.05,0.1,0.2,0.5]
#   POLICIES besides none and lookahead                               [vip,oracle]
#   MODEL    sage, gcn or gin                                         [sage]
#   GOALS    the most of: no cache; the planned window, by alpha; all known, by alpha   [none]
set -euo pipefail
cd "$(dirname "$0")/.."
source profiling/runs.sh
parts=$1 out=${2:-run/sums}
need_parts "$parts"
alphas=${ALPHAS:-0.05,0.1,0.2,0.5}
mkdir -p "$out"

# count DIR POLICIES [ARG...]: simulates policies into DIR.
count() {
  local dir=$1 policies=$2
  shift 2
  rm -rf "$dir"
  "$program" simulate --parts "$parts" --fanouts "${FANOUTS:-15,10,5}" --batch "${BATCH:-256}" \
    --epochs "${EPOCHS:-3}" --alphas "$alphas" --policies "$policies" --model "${MODEL:-sage}" \
    --sums on --out "$dir" "$@" >"$dir.log"
}

# column DIR POLICY NAME: the values of a column of a policy, by alpha.
column() {
  awk -F, -v policy="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
    NR > 1 && $1 == policy { printf "%s ", $at }' "$1/simulate.csv"
}

# line NAME DIR POLICY: a line of the table.
line() {
  awk -v name="$1" -v ratios="$(column "$2" "$3" ratio_to_none)" \
    -v ids="$(column "$2" "$3" id_bytes)" -v bytes="$(column "$2" "$3" vector_bytes)" \
    -v sums="$(column "$2" "$3" sum_vectors)" -v rows="$(column "$2" "$3" rows)" 'BEGIN {
      n = split(ratios, r, " "); split(ids, d, " "); split(bytes, b, " "); split(sums, s, " ")
      split(rows, v, " "); printf "| %s |", name
      for (i = 1; i <= n; i++)
        printf " %.3f (%.0f %%, %.1f %%) |", r[i], 100 * s[i] / v[i], 100 * d[i] / b[i]
      print "" }'
}

count "$out/planned" "none,${POLICIES:-vip,oracle},lookahead"
count "$out/known" lookahead --window 1000000
{
  echo "Rows and sums / rows without a cache (of them sums; bytes of ids / of vectors):"
  echo
  awk -v a="$alphas" 'BEGIN { n = split(a, x, ","); printf "| alpha |"
    for (i = 1; i <= n; i++) printf " %s |", x[i]
    printf "\n|---|"; for (i = 1; i <= n; i++) printf "--:|"; print "" }'
  for policy in none $(tr , ' ' <<<"${POLICIES:-vip,oracle}"); do
    line "$policy" "$out/planned" "$policy"
  done
  line "lookahead, planned window" "$out/planned" lookahead
  line "lookahead, all minibatches known" "$out/known" lookahead
} | tee "$out/sums.md"
[ -n "${GOALS:-}" ] || exit 0
echo
found=$(column "$out/planned" none ratio_to_none | cut -d' ' -f1)
found="$found $(column "$out/planned" lookahead ratio_to_none) \
$(column "$out/known" lookahead ratio_to_none)"
awk -v found="$found" -v goals="$GOALS" 'BEGIN {
  n = split(goals, g, " "); if (split(found, f, " ") != n) { print "GOALS has another length"; exit 2 }
  for (i = 1; i <= n; i++) if (f[i] > g[i]) { printf "check: %.4f is above %s\n", f[i], g[i]; bad = 1 }
  if (bad) exit 1
  print "check: no more travels than the goals say" }'
