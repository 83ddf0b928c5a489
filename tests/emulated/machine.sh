# What a machine with Debian runs at each boot: the step that the kernel's command line names, out of
# guest.sh beside this file. A step that fails says why, and the machine is switched off.
set -euE
PATH=/usr/sbin:/usr/bin
STEP=$(sed -n 's/.*drill=\([0-9]*\).*/\1/p' /proc/cmdline)
export LC_ALL=C.UTF-8 SYSTEMD_COLORS=0 STEP
# Units that may tell why a step fails, and steps that end with their power cut; guest.sh sets both.
UNITS=(ashlar)
CUT=

failed() { # failed WORDS...: all that may tell why, what tells most at the end; the machine is switched off
  trap - ERR
  set +e
  systemctl --no-pager --lines=0 status "${UNITS[@]}"
  systemctl --no-pager list-jobs
  timeout 20 ashlar status --members
  timeout 20 ashlar assemble --scan --dry-run
  ls -l /dev/ashlar /dev/disk/by-id
  findmnt
  timeout 20 ashlar events | tail -15
  # Of many errors in a row the first one tells.
  dmesg | tail -60 | head -25
  journalctl --no-pager -b -o short-monotonic "${UNITS[@]/#/--unit=}" | tail -25
  echo "STEP $STEP FAILED: $*"
  sync
  poweroff -ff
}
trap 'failed "${BASH_SOURCE[0]}:$LINENO: $BASH_COMMAND"' ERR

say() { # say WORDS...
  echo "== step $STEP, $(cut -d. -f1 /proc/uptime) s: $*"
}

until_so() { # until_so SECONDS COMMAND...: wait for it
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt "$end" ] || failed "waited in vain for: $*"
    sleep 0.2
  done
}

health_is() { # health_is CODE: what monitoring would see
  local code=0
  ashlar status --check || code=$?
  test "$code" = "$1"
}

write_on() { # write_on PLACE: durable writes until /run/enough; says if one fails
  until [ -e /run/enough ]; do
    dd if=/dev/urandom of="$1/load" bs=64k count=8 conv=fsync status=none || touch /run/lost
    touch "/run/under_way_${1##*/}"
  done
}

is_successor_of() { # is_successor_of PID: by the program that is installed
  local pid
  pid=$(systemctl show -P MainPID ashlar)
  systemctl is-active ashlar && test "$pid" != "$1" && test "$(readlink "/proc/$pid/exe")" = /usr/bin/ashlar
}

. /drill/guest.sh
say "$(uname -r)"
"step_$STEP"
echo "STEP $STEP OK after $(cut -d. -f1 /proc/uptime) s"
[ "$STEP" = "$CUT" ] || systemctl poweroff --no-block
wait
