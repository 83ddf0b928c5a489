# What scripts in a guest have in common. Any command that fails ends the script, and so does a wait
# that takes too long.
set -euE
trap 'echo "FAILED at $BASH_SOURCE:$LINENO: $BASH_COMMAND"; tail -30 /mnt/daemon.log 2>/dev/null; dmesg | tail -15' ERR
export ASHLAR_SOCKET=/run/ashlar/control.sock
mkdir -p /run/ashlar /mnt/at

say() { # say WORDS...: a line of the test's own
  echo "== $(cut -d. -f1 /proc/uptime) s: $*"
}

load() { # load MODULE...: from the kernel's package
  modprobe -d "$KERNEL" -a "$@"
}

until_so() { # until_so SECONDS COMMAND...: wait for it
  local left=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    if [ "$left" -le 0 ]; then
      echo "FAILED: waited in vain for: $*"
      return 1
    fi
    sleep 0.1
  done
}

members() { # members COUNT SIZE: sparse files m0, m1, ...
  local number
  for number in $(seq 0 $(($1 - 1))); do
    truncate -s "$2" /mnt/m"$number"
  done
}

refused() { # refused WORDS ARGUMENT...: the program refuses, with these words
  local words=$1
  shift
  if "$ASHLAR" "$@" 2>/mnt/refusal; then
    echo "FAILED: not refused: $*"
    return 1
  fi
  grep -q "$words" /mnt/refusal || { cat /mnt/refusal; return 1; }
}

serve() { # serve ARGUMENT...: the daemon; waits until it answers
  "$ASHLAR" serve --no-pin --workers 2 --pool 96MiB "$@" >>/mnt/daemon.log 2>&1 &
  DAEMON=$!
  until_so 240 "$ASHLAR" status
}

end_daemon() { # in order
  kill -TERM "$DAEMON"
  wait "$DAEMON"
}

busy_ns() { # what the daemon's threads have had of a processor, in nanoseconds
  cat /proc/"$DAEMON"/task/*/schedstat | awk '{ nanos += $1 } END { printf "%.0f", nanos }'
}

idles() { # idles PERCENT: the daemon takes less than so much of a core in ten seconds
  local before percent
  sleep 5
  before=$(busy_ns)
  sleep 10
  percent=$(awk -v nanos=$(($(busy_ns) - before)) 'BEGIN { printf "%.1f", nanos / 1e8 }')
  say "$percent % of a core"
  awk -v percent="$percent" -v most="$1" 'BEGIN { exit !(percent < most) }'
}

kill_daemon() { # at once
  kill -KILL "$DAEMON"
  wait "$DAEMON" 2>/dev/null || true
}

# Steps with a file system on the device of a volume that is a RAID 6 of six members, strips of 16 KiB.

told() { # told DEVICE NAME:VALUE...: what the kernel is told of it, and this besides
  local block pair
  block=/sys/block/$(basename "$1")
  shift
  for pair in logical_block_size:4096 physical_block_size:4096 minimum_io_size:16384 \
    optimal_io_size:65536 discard_granularity:65536 "write_cache:write back" "$@"; do
    if test "$(cat "$block/queue/${pair%%:*}")" != "${pair##*:}"; then
      echo "FAILED: $pair: $(cat "$block/queue/${pair%%:*}")"
      return 1
    fi
  done
  test "$(cat "$block/queue/discard_max_bytes")" -gt 0
  test "$(cat "$block/queue/write_zeroes_max_bytes")" -gt 0
  test "$(ls "$block/mq" | wc -l)" = 2
}

fill_xfs() { # fill_xfs DEVICE: it stays mounted
  say "mkfs.xfs finds stripe unit and width"
  mkfs.xfs -f "$1" >/mnt/mkfs
  grep -q "sunit=4 *swidth=16 blks" /mnt/mkfs
  mount "$1" /mnt/at
  cp -r /usr/share/doc/bash /mnt/at/
  (cd /mnt/at && find . -type f -print0 | sort -z | xargs -0 sha256sum) >/mnt/sums
  sync
}

trim_xfs() { # trim_xfs DEVICE: as fill_xfs left it
  say "fstrim, and what is left is right"
  fstrim /mnt/at
  umount /mnt/at
  mount "$1" /mnt/at
  (cd /mnt/at && sha256sum --quiet -c /mnt/sums)
  umount /mnt/at
}

zero_and_discard() { # zero_and_discard DEVICE
  say "zeroed blocks are zeros, a discarded device has none of its old content in whole stripes"
  blkdiscard -f --zeroout --length 1M "$1"
  cmp --bytes=1048576 "$1" /dev/zero
  blkdiscard -f "$1"
  cmp --bytes=8388608 "$1" /dev/zero
}

write_durably() { # write_durably DEVICE: with ext4, which is mounted
  dd if=/dev/urandom of=/mnt/at/file bs=64k count=16 oflag=direct,dsync status=none
  cp /mnt/at/file /mnt/copy
  umount /mnt/at
  e2fsck -fn "$1"
  mount "$1" /mnt/at
  cmp /mnt/at/file /mnt/copy
  umount /mnt/at
}

scrub_btrfs() { # scrub_btrfs DEVICE: it holds a btrfs then
  say "btrfs, whose scrub verifies all"
  mkfs.btrfs -q -f "$1"
  mount "$1" /mnt/at
  cp -r /usr/share/doc/bash /mnt/at/
  sync
  echo 3 >/proc/sys/vm/drop_caches
  btrfs scrub start -B /mnt/at | tee /mnt/scrubbed
  grep -q "no errors found" /mnt/scrubbed
  umount /mnt/at
}

exercise() { # exercise DEVICE: by FSX, if it is there
  test -n "$FSX" || return 0
  say "fsx finds what it wrote"
  printf '%s\n' 'blockmode = true' 'nosizechecks = true' 'flen = 1048576' '[opsize]' 'max = 65536' \
    '[weights]' 'read = 10' 'write = 10' 'fsync = 1' 'posix_fadvise = 10' 'invalidate = 0' 'close_open = 0' \
    'truncate = 0' >/mnt/fsx.toml
  "$FSX" -N 400 -S 7 -f /mnt/fsx.toml -P /mnt "$1"
}

begin_load() { # begin_load ARGUMENT...: verified writes
  fio --name=load --direct=1 --rw=randwrite --ioengine=io_uring --verify=crc32c --eta=never \
    --output=/mnt/fio "$@" &
  LOAD=$!
}

end_load() { # that ends by itself
  wait "$LOAD" || { cat /mnt/fio; return 1; }
}

# Steps with a daemon that is killed under a file system.

begin_file_system() { # begin_file_system DEVICE: mounted, with a file and a load that end_file_system looks at
  mkfs.xfs -q -f "$1"
  mount "$1" /mnt/at
  head -c 8M /dev/urandom >/mnt/at/before
  sync /mnt/at/before
  BEFORE=$(sha256sum </mnt/at/before)
  # Until it is told to end.
  begin_load --directory=/mnt/at --bs=4k --iodepth=32 --size=24M --verify_backlog=256 --time_based \
    --runtime=36000
}

kill_again_and_again() { # kill_again_and_again COMMAND: KILLS times; COMMAND NUMBER starts the successor
  local number sync
  for number in $(seq 1 "$KILLS"); do
    # Not always at the same place.
    sleep "$((number % 3)).$((number * 7 % 10))"
    kill_daemon
    # What is synced while nobody serves waits for the successor.
    { head -c 256K /dev/urandom >/mnt/at/during$((number % 8)) && sync /mnt/at/during$((number % 8)); } &
    sync=$!
    "$1" "$number"
    # Before it is synced nobody knows its sum.
    wait $sync
    sha256sum /mnt/at/during$((number % 8)) >/mnt/synced
    kill -0 "$LOAD"
    say "killed, and served again: $number"
  done
}

tell_load_to_end() { # tell_load_to_end PATTERN: it got no error, nor does the kernel know one that matches the PATTERN
  kill -INT "$LOAD"
  wait "$LOAD" || test $? = 128
  grep -q "err= 0" /mnt/fio || { cat /mnt/fio; return 1; }
  say "no error at the device"
  if dmesg | grep -E "$1|XFS.*(error|corrupt|shut)"; then return 1; fi
}

end_file_system() { # end_file_system DEVICE: everything is there
  echo 3 >/proc/sys/vm/drop_caches
  test "$(sha256sum </mnt/at/before)" = "$BEFORE"
  sha256sum --quiet -c /mnt/synced*
  umount /mnt/at
  xfs_repair -n "$1" >/mnt/repair 2>&1 || { cat /mnt/repair; return 1; }
}

scrub_finds_nothing() {
  "$ASHLAR" scrub --wait tank >/mnt/scrub 2>&1
  tail -c 60 /mnt/scrub
  grep -q "0 mismatches" /mnt/scrub
}
