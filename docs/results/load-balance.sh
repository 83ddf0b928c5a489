#!/usr/bin/env bash
# Two workers on two cores against one worker on one: `ashlar bench` with one worker and with two, in turns,
# ROUNDS times each; prints the medians, and the median and range of their ratios.
#
#   docs/results/load-balance.sh [--rounds N] [--seconds N] [--noise PERCENT] [--figures FILE]
#
# The clients run on the threads of the workers, so two workers have twice the clients. The last column leaves
# out time in which a worker did not run: twice the CPU time of a request with one worker, over that with two.
#
# With --noise a measurement waits until other programs take less than so much of the machine, and is repeated
# if they took more meanwhile. With --figures rounds are added to those that the file has.
set -euo pipefail
ROUNDS=5 SECONDS_EACH=2 NOISE=100 FIGURES= ASHLAR=${ASHLAR:-target/release/ashlar}
while [[ $# -gt 0 ]]; do
  case $1 in
    --rounds) ROUNDS=$2 ;; --seconds) SECONDS_EACH=$2 ;; --noise) NOISE=$2 ;; --figures) FIGURES=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
OWN=$(mktemp -d)
trap 'rm -r "$OWN"' EXIT
FIGURES=${FIGURES:-$OWN/figures}
touch "$FIGURES"

busy_ms() { # of other programs and the kernel on all cores, in BUSY_MS
  times >"$OWN/times"
  BUSY_MS=$(awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8 + $9) * 10 }
    FILENAME != "/proc/stat" && FNR == 2 { split($0, it, /[ms ]+/); print -(it[1] * 60 + it[2] + it[3] * 60 + it[4]) * 1000 }
  ' /proc/stat "$OWN/times" | awk '{ sum += $1 } END { printf "%d", sum }')
}

others_percent() { # others_percent COMMAND...: of the machine, while it ran, in OTHERS
  local at before
  busy_ms
  at=$(date +%s%3N) before=$BUSY_MS
  "$@"
  busy_ms
  OTHERS=$(((BUSY_MS - before) * 100 / (($(date +%s%3N) - at) * $(nproc))))
}

bench() { # bench ARGUMENT...
  LINE=$("$ASHLAR" bench "$@" --json | jq -r '[.workers, .requests_per_second, .cpu_seconds / .requests * 1e9] | join("\t")')
}

measure() { # measure ROUND MEMBERS LOAD STATE WORKERS: a line of figures
  while true; do
    others_percent sleep 1
    if [ "$OTHERS" -le "$NOISE" ]; then
      # shellcheck disable=SC2086 # a load is several words
      others_percent bench ${2/memory/} $3 $4 --span 1G --seconds "$SECONDS_EACH" --workers "$5"
      [ "$OTHERS" -gt "$NOISE" ] || break
    fi
  done
  printf '%s\t%s\t%s\t%s\t%s\n' "$2" "$3" "$4" "$1" "$LINE" >>"$FIGURES"
}

BEFORE=$(cut -f 4 "$FIGURES" | sort -n | tail -1)
for round in $(seq $((${BEFORE:-0} + 1)) $((${BEFORE:-0} + ROUNDS))); do
  for members in memory --null; do
    for load in "--random -b 4K" "--random -b 4K --write" "-b 512K" "-b 512K --write"; do
      for state in "--lost 0" "--lost 2"; do
        # Not always the same one first.
        for workers in $((1 + round % 2)) $((2 - round % 2)); do
          measure "$round" "$members" "$load" "$state" "$workers"
        done
      done
    done
  done
done

jq -Rrn '
  def median: sort | if length % 2 == 1 then .[(length - 1) / 2] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def hundredths: (. * 100 | round) as $n | "\($n / 100 | floor).\($n % 100 | tostring | ("0" + .)[-2:])";
  def kilo: . / 1000 | round;
  ["| members | load | state | one worker, k/s | two, k/s | two over one (range) | by CPU time |", "|---|---|---|---:|---:|---:|---:|"][],
  ([inputs | split("\t") | {key: .[0:3], round: .[3], workers: .[4], rate: .[5] | tonumber, cpu: .[6] | tonumber}]
    | group_by(.key)[] | .[0].key as $key
    | [group_by(.round)[] | (map({key: .workers, value: .}) | from_entries) | select(.["1"] and .["2"])] | select(length > 0)
    | (map(.["2"].rate / .["1"].rate)) as $ratios | (map(2 * .["1"].cpu / .["2"].cpu)) as $by_cpu
    | "| \($key[0] | ltrimstr("--")) | `\($key[1])` | \(if $key[2] == "--lost 0" then "healthy" else "two lost" end) | \(map(.["1"].rate) | median | kilo) | \(map(.["2"].rate) | median | kilo) | \($ratios | median | hundredths) (\($ratios | min | hundredths) to \($ratios | max | hundredths)) | \($by_cpu | median | hundredths) |")
' "$FIGURES"
