# shellcheck shell=bash
# `./ashlar-demo --pool`, which reads this file: a declustered pool loses three of fourteen drives while it is written to,
# gets new ones, and grows by six. Nothing is lost.
#
# What must stay true: as in ashlar-demo, the first thing that is not as it should be ends the demo with exit code 1.

need fio:fio jq:jq nbdcopy:libnbd-bin
say "building ashlar (release)"
cargo build --release --locked -p ashlar-cli
BEGAN=$(date +%s%N)

files() { # files PREFIX FIRST LAST: sparse, and their paths
  local number
  for number in $(seq "$2" "$3"); do
    truncate -s "$DRIVE_BYTES" "$DIR/$1$number"
    echo "$DIR/$1$number"
  done
}
jobs_end() { # jobs_end WHAT: wait for all jobs of the pool; a row of the table
  local began id
  began=$(now)
  for id in $(ashlar job list --json | jq -r '.. | .id? // empty'); do ashlar job wait "demo/$id" >/dev/null || die "$1: $id"; done
  row "$1$(load)" "$(seconds $(($(now) - began)))" "$2"
}
begin_load() { # begin_load OFFSET SIZE: fio, 36 MiB a second
  fio --name=load --ioengine=nbd --uri="$URI" --offset="$1" --size="$2" --verify_state_save=0 --rw=randwrite \
    --bsrange=4k-256k --iodepth=16 --rate=,36M --verify=crc32c --verify_backlog=512 --verify_fatal=1 --randseed=7 --eta=never \
    >"$DIR/fio.log" 2>&1 &
  CLIENT=$!
  FIO_BEGAN=$(now)
}
end_load() { # end_load WHAT: wait for it; a row of the table
  say "waiting for fio"
  wait "$CLIENT" || { CLIENT=; cat "$DIR/fio.log" >&2; die "fio saw an error or wrong data"; }
  CLIENT=
  row "$1" "$(seconds $(($(now) - FIO_BEGAN)))" \
    "0 errors, $(grep -o 'WRITE: bw=[^ ]*' "$DIR/fio.log" | head -1 | sed 's/WRITE: bw=/wrote /')"
}
load() { # whether fio still runs
  [ -z "$CLIENT" ] || ! kill -0 "$CLIENT" 2>/dev/null || echo ", under load"
}

say "fourteen drives of $DRIVE_BYTES: sparse files in $DIR"
start_daemon
timed "create 8+2 over 14 drives, 2 distributed spares" "usable at once, no initial sync" \
  ashlar create demo --level 6 --declustered --stripe-width 10 --distributed-spares 2 $(files drive 0 13)
say "$(cat "$DIR/step.log")"
URI="nbd+unix:///demo?socket=$DIR/nbd.sock"
BEFORE=$(look '.arrays[0].volume_bytes')

head -c 256M /dev/urandom >"$DIR/aside"
timed "copy 256 MiB over NBD" "and flush" nbdcopy --flush "$DIR/aside" "$URI"
say "fio writes behind it at random, in pieces of 4 to 256 KiB, and reads every piece back to compare"
begin_load 512M 720M
sleep 5

say "drives 3 and 7 are put out. All others share the rebuild into the space of the spares"
ashlar fail demo 3 >/dev/null
ashlar fail demo 7 >/dev/null
sleep 0.3
ashlar status | sed 's/^/             /'
jobs_end "rebuild of two drives onto spares" "two more may be lost"
[ "$(look '.arrays[0].losses_tolerated // empty')" != "0" ] || die "the pool tolerates nothing"

end_load "fio, two drives lost meanwhile"
begin_load 1536M 1440M
sleep 2
say "drive 9 is put out as well: no spare is left, and the data is there all the same"
ashlar fail demo 9 >/dev/null
ashlar status | sed -n 's/^/             /; 1,3p'
say "three new drives"
for slot in 3 7 9; do
  timed "new drive for slot $slot$(load)" "in sync; its cells are back" \
    ashlar replace demo "$slot" "$(files new "$slot" "$slot")" --wait
done

say "six more drives: ashlar grow demo DRIVE..."
# shellcheck disable=SC2046 # Six paths.
ashlar grow demo --dry-run $(files more 0 5) | sed 's/^/             /'
# shellcheck disable=SC2046
timed "grow from 14 to 20 drives$(load)" "clients waited that long, without an error" ashlar grow demo $(files more 0 5)
jobs_end "cells move to the new drives" "and nothing else moves"

end_load "fio, a third drive lost and six added meanwhile"
ashlar status | sed 's/^/             /'
[ "$(look '.arrays[0].volume_bytes')" -gt "$BEFORE" ] || die "the volume did not grow"
[ "$(look '.arrays[0].counters.errors')" = "0" ] || die "requests of clients ended in an error"

say "everything off, a new daemon, and every byte again"
ashlar stop demo >/dev/null
kill "$DAEMON"
wait "$DAEMON" || die "the daemon did not end well"
start_daemon
timed "assemble" "20 drives, found by what is on them" \
  ashlar assemble "$DIR"/drive[0124568] "$DIR"/drive1[0-3] "$DIR"/new[379] "$DIR"/more[0-5]
timed "read the 256 MiB back" "all right" bash -c "nbdcopy '$URI' - | cmp -n $((256 << 20)) - '$DIR/aside'"
timed "scrub" "0 mismatches" ashlar scrub demo --wait
[ "$(look '.arrays[0].last_scrub.mismatches')" = "0" ] || die "$(cat "$DIR/step.log")"
ashlar stop demo >/dev/null
print_table
say "three of fourteen drives were lost and six added; no client saw an error, and every byte is there"
