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
