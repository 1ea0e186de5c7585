#!/usr/bin/env bash
# sums.sh PARTS[:BATCH[:FANOUTS]]...: counts with halognn simulate what exchange.sums=on sends: rows
# and sums relative to the rows without a cache, for the look-ahead cache, with its planned window
# and with all minibatches known, and for other policies. Prints a table for each PARTS and, for
# several, one that compares them and has bytes relative to the first. Fails if the first misses a
# GOAL.
#
#   halognn generate --kind sbm --preset products --scale 0.1 --seed 5 --out data
#   halognn partition --data data --parts 4 --method metis --seed 1 --out parts
#   GOALS="0.59 0.48 0.44 0.385 0.29 0.47 0.43 0.37 0.28" profiling/lab/sums.sh parts
#   COVER=yes LADIES=512,512 profiling/lab/sums.sh parts:256:15,10,5 fb100-4:256:25,10
#
#   FANOUTS  [15,10,5]   BATCH [256]   EPOCHS [3]   ALPHAS [0.05,0.1,0.2,0.5]   OUT [run/sums]
#   POLICIES besides none and lookahead; may be empty                 [vip,oracle]
#   KNOWN    yes: also with all minibatches known                     [yes]
#   MODEL    sage, gcn or gin                                         [sage]
#   GOALS    upper bounds: no cache; the planned window, by alpha; all known, by alpha   [none]
#   COVER    yes: also compares the choice between rows and sums with the fewest possible bytes, for a
#            minibatch of each of four ranks, without a cache         [no]
#   LADIES   with COVER: also for minibatches of kind ladies with so many vertices a layer     [none]
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
out=${OUT:-run/sums}
alphas=${ALPHAS:-0.05,0.1,0.2,0.5}
IFS=, read -ra sizes <<<"$alphas"
others=$(tr , ' ' <<<"${POLICIES-vip,oracle}")
for of in "$@"; do need_parts "${of%%:*}"; done

# count DIR POLICIES [ARG...]: simulates policies on $parts into DIR.
count() {
  local dir=$1 policies=$2
  shift 2
  rm -rf "$dir"
  mkdir -p "$(dirname "$dir")"
  "$program" simulate --parts "$parts" --set "sample.fanouts=$fanouts" \
    --set "model.layers=$(tr , '\n' <<<"$fanouts" | wc -l)" --set "sample.batch=$batch" \
    --epochs "${EPOCHS:-3}" --alphas "$alphas" --policies "$policies" \
    --set "model.kind=${MODEL:-sage}" --set exchange.sums=on --out "$dir" "$@" >"$dir.log"
}

# column DIR POLICY NAME: the values of a column of a policy, by alpha.
column() {
  awk -F, -v policy="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
    NR > 1 && $1 == policy { printf "%s ", $at }' "$1/simulate.csv"
}

# head_of COLUMN...: the head of a table.
head_of() {
  local column
  for column in "$@"; do printf '| %s ' "$column"; done
  printf '|\n|---|'
  shift
  for column in "$@"; do printf -- '--:|'; done
  echo
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

# compared FIRST DIR: for no cache, and the planned window by alpha: what is sent relative to the
# rows without a cache, bytes with ids in MB an epoch, and these relative to FIRST's.
compared() {
  awk -F, -v epochs="${EPOCHS:-3}" '
    FNR == 1 { file++; for (i = 1; i <= NF; i++) at[$i] = i }
    $1 == "none" && !none[file]++ || $1 == "lookahead" { # none is the same at any alpha
      bytes = $at["vector_bytes"] + $at["id_bytes"]
      if (file == 1) first[++n] = bytes
      else printf " %.3f; %.1f; %.3f |", $at["ratio_to_none"], bytes / 1e6 / epochs, bytes / first[++m]
    }
    END { print "" }' "$1/simulate.csv" "$2/simulate.csv"
}

# covered: how far the choices are from the fewest bytes.
covered() {
  local kind
  for kind in "-fanouts=$fanouts" ${LADIES:+"-layer-vertices=$LADIES"}; do
    go test ./src/rows/exchange -count=1 -timeout 1h -run 'TestCoverOfMinibatches$' -v \
      -parts "$(realpath "$parts")" -batch "$batch" "$kind" |
      sed -n 's/^ *cover_test.go:[0-9]*: /cover: /p'
  done
}

first='' compare=''
for of in "$@"; do
  IFS=: read -r parts batch fanouts <<<"$of"
  batch=${batch:-${BATCH:-256}} fanouts=${fanouts:-${FANOUTS:-15,10,5}}
  dir=$out/$(basename "$parts")
  echo "$parts, batch $batch, fanouts $fanouts"
  echo
  count "$dir/planned" "none,${others:+${others// /,},}lookahead"
  [ "${KNOWN:-yes}" != yes ] || count "$dir/known" lookahead --set cache.window=1000000
  {
    echo "Rows and sums / rows without a cache (of them sums; bytes of ids / of vectors):"
    echo
    head_of alpha "${sizes[@]}"
    for policy in none $others; do line "$policy" "$dir/planned" "$policy"; done
    line "lookahead, planned window" "$dir/planned" lookahead
    [ "${KNOWN:-yes}" != yes ] || line "lookahead, all minibatches known" "$dir/known" lookahead
  } | tee "$dir/sums.md"
  echo
  [ "${COVER:-no}" != yes ] || covered | tee "$dir/cover.txt"
  first=${first:-$dir/planned}
  compare+="| $(basename "$parts") |$(compared "$first" "$dir/planned")"$'\n'
done
if [ $# -gt 1 ]; then
  echo "Rows and sums / rows without a cache; MB an epoch, ids included; these / of the first:"
  echo
  head_of parts "no cache" "${sizes[@]}"
  printf '%s' "$compare"
fi | tee "$out/compared.md"
[ -n "${GOALS:-}" ] || exit 0
echo
dir=${first%/planned}
found=$(column "$dir/planned" none ratio_to_none | cut -d' ' -f1)
found="$found $(column "$dir/planned" lookahead ratio_to_none) \
$(column "$dir/known" lookahead ratio_to_none)"
awk -v found="$found" -v goals="$GOALS" 'BEGIN {
  n = split(goals, g, " "); if (split(found, f, " ") != n) { print "GOALS has another length"; exit 2 }
  for (i = 1; i <= n; i++) if (f[i] > g[i]) { printf "check: %.4f is above %s\n", f[i], g[i]; bad = 1 }
  if (bad) exit 1
  print "check: no more travels than the goals say" }'
