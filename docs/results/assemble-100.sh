#!/usr/bin/env bash
# How long an array of 100 members takes to assemble, and how much memory its process has then: ten groups of
# eight data and two parity strips, on sparse files as large as the file system lets them be.
#
#   docs/results/assemble-100.sh [--rounds N] [--strip SIZE] [--size BYTES] FOLDER
#
# ext4 ends a file one block short of 16 TiB; the script takes that where 16 TiB are refused, and says so. The
# files take as much real space as their head areas: 100 times a bit for each stripe, twice.
set -euo pipefail
ROUNDS=5 STRIP=1M BYTES=$((16 << 40)) ASHLAR=${ASHLAR:-target/release/ashlar}
while [[ ${1:-} == --* ]]; do
  case $1 in
    --rounds) ROUNDS=$2 ;; --strip) STRIP=$2 ;; --size) BYTES=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ $# -eq 1 ] || { echo "name a folder; nothing was written" >&2; exit 2; }
FOLDER=$(mktemp -d "$1/assemble-100.XXXXXX")
export ASHLAR_SOCKET=$FOLDER/control.sock
PID=
trap '[ -z "$PID" ] || { kill "$PID" 2>/dev/null && wait "$PID"; }; rm -rf "$FOLDER"' EXIT

truncate -s "$BYTES" "$FOLDER/probe" 2>/dev/null || {
  BYTES=$(((16 << 40) - 4096))
  echo "the file system refuses files of 16 TiB: taking $BYTES bytes, one block less" >&2
}
rm -f "$FOLDER/probe"
MEMBERS=()
for member in {00..99}; do
  truncate -s "$BYTES" "$FOLDER/member$member"
  MEMBERS+=("$FOLDER/member$member")
done

serve() { # a new process each time: its memory is that of one start
  "$ASHLAR" serve --no-pin &
  PID=$!
  until "$ASHLAR" status >/dev/null 2>&1; do sleep 0.05; done
}

quit() {
  kill "$PID"
  wait "$PID" || true
  PID=
}

serve
"$ASHLAR" create tank --level 60 --raid-devices 100 --group-size 10 --strip-size "$STRIP" "${MEMBERS[@]}" >&2
quit
for ((round = 0; round < ROUNDS; round++)); do
  serve
  began=$(date +%s.%N)
  "$ASHLAR" assemble "${MEMBERS[@]}" >&2
  ended=$(date +%s.%N)
  awk -v began="$began" -v ended="$ended" '/^VmHWM/ { printf "%.2f s, at most %.0f MiB resident\n", ended - began, $2 / 1024 }' \
    "/proc/$PID/status"
  quit
done
du -sh "$FOLDER" | awk '{ print $1 " of the file system are in use" }' >&2
