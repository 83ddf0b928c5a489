# What the machine that tries the pages does at each boot. pages.sh has a function page_NAME with the
# commands of each page. What a page promises is looked at here, after its commands. Sums of files on
# the volume are in /drill/sums, on the root; what a page's commands told is in /drill/told.
UNITS=(ashlar srv.mount)
CUT=1
export DEBIAN_FRONTEND=noninteractive
. /drill/pages.sh
# Where the reader is.
cd /root

page() { # page NAME: its commands, in order
  say "the page $1"
  : >/drill/told
  "page_${1//-/_}"
}

run() { # run PLACE COMMAND: as the reader types it
  local code=0
  say "$1: $2"
  timeout 1200 bash -o pipefail -c "$2" >/run/told 2>&1 </dev/null || code=$?
  heard "$1" "$2"
  [ $code = 0 ] || failed "$1: exit code $code of: $2: $(tail -n 30 /run/told)"
}

run_endless() { # run_endless PLACE COMMAND: it tells something, and goes on
  local code=0
  say "$1: $2"
  timeout 60 bash -c "$2" >/run/told 2>&1 </dev/null || code=$?
  heard "$1" "$2"
  [ $code = 124 ] && [ -s /run/told ] || failed "$1: it ends with $code, or tells nothing: $2"
}

heard() { # heard PLACE COMMAND: what it told
  tail -n 12 /run/told
  cat /run/told >>/drill/told
}

told() { # told WORDS: by a command of the page
  grep -e "$1" /drill/told
}

write_down() { # write_down NAME: a durable file on the volume, and its sum
  head -c 3M /dev/urandom >"/srv/$1"
  sync "/srv/$1"
  (cd /srv && sha256sum "$1") >>/drill/sums
  sync /drill/sums
}

all_there() { # all_there [PLACE]: everything that was written down
  (cd "${1:-/srv}" && sha256sum --quiet -c /drill/sums)
}

slot_has() { # slot_has SLOT DEVICE: in service
  ashlar status tank0 --members | grep -E "^ *$1 +in sync +$2 "
}

step_1() {
  local letter
  for letter in {b..q}; do
    test "$(cat "/sys/block/vd$letter/serial")" = "$letter"
  done
  mkdir -p target/deb
  ln /drill/ashlar.deb target/deb/ashlar_0_all.deb
  page install
  systemctl is-active ashlar
  systemctl is-enabled ashlar
  page first-array
  the_array_is_in_use
  page tuning
  told '^job_floor=16777216$'
  ashlar set tank0 | grep '^job_floor=67108864$'
  write_down before_the_cut
  write_on /srv &
  until_so 240 test -e /run/under_way_srv
}

pool0_is_made_and_destroyed() {
  ashlar status pool0 --check
  ashlar status pool0 | grep 'slots  8 of 8 in sync'
  ashlar destroy pool0 --confirm pool0
}

the_array_is_in_use() {
  health_is 0
  test "$(findmnt -no SOURCE -M /srv)" = "$(readlink -f /dev/ashlar/tank0)"
  blkid -p /dev/vdb1 | grep -i 'PART_ENTRY_TYPE="47359340-8564-4E87-9201-2D6BEFFA6AA0"'
  # Enough that a rebuild takes a while.
  head -c 160M /dev/zero >/srv/load160
  write_down first
  # As the page on installing says.
  if apt purge -y ashlar; then false; fi
  all_there
}

step_2() {
  # As the first array's page and the one on recovery say: it is back by itself, with all flushed data.
  until_so 600 mountpoint /srv
  all_there
  until_so 240 health_is 0
  # As the page on tuning says of --forget.
  ashlar set tank0 | grep '^job_floor=16777216$'
  umount /srv
  systemctl stop ashlar
  mkdir -p /mnt/big /mnt/copy
  page recover
  the_copies_are_right
  systemctl start ashlar
  until_so 240 test -b /dev/ashlar/tank0
  mount /srv
  page replace-a-drive
  the_drives_are_replaced
  the_daemon_is_told_whom_to_tell
  page monitor
  somebody_was_told
  the_upgrade_is_near
  page upgrade
  a_daemon_that_hangs_is_replaced
  nobody_noticed
}

the_copies_are_right() {
  cmp /mnt/big/tank0.img tank0.img
  rm tank0.img
  mount -o ro,loop /mnt/big/tank0.img /mnt/copy
  all_there /mnt/copy
  umount /mnt/copy
  rm /mnt/big/tank0.img
}

the_rebuild() { # the line of the one under way
  ashlar job list tank0 | grep ' rebuild ' | grep -v 'done$'
}

a_long_rebuild() { # onto the spare that the page has added: that drive is slow
  ashlar rebuild wait tank0
  slot_has 2 /dev/vdd1
  ashlar fail tank0 1
  until_so 240 the_rebuild
}

the_rebuild_goes_on() {
  local before
  before=$(the_rebuild)
  echo "$before" | grep ' %  paused$'
  health_is 2
  sleep 2
  test "$(the_rebuild)" = "$before"
  ashlar rebuild resume tank0
  say "drive i is fast"
  ashlar rebuild wait tank0
}

the_drives_are_replaced() {
  told 'scrub of tank0: 0 mismatches'
  told '^tank0/[0-9]* *scrub .*done$'
  told 'member\.failed\|taken out of service'
  slot_has 1 /dev/vdi1
  slot_has 2 /dev/vdd1
  slot_has 3 /dev/vdh1
  until_so 240 health_is 0
  echo 3 >/proc/sys/vm/drop_caches
  all_there
  # As its part on drives that retire says.
  ashlar wipe /dev/vde
  test ! -e /dev/vde1 && test -z "$(wipefs /dev/vde)"
  ashlar spare add /dev/vdc
  ashlar rename pool1 attic
  ashlar destroy attic --confirm attic
  test -z "$(wipefs /dev/vdj)"
  health_is 0
}

the_daemon_is_told_whom_to_tell() { # with the packaged configuration's own examples
  sed -i -e 's/^#mail = /mail = /' -e 's/^#metrics = /metrics = /' /etc/ashlar/ashlar.toml
  printf '#!/bin/sh\ncat >>/drill/mailbox\n' >/usr/sbin/sendmail
  chmod 755 /usr/sbin/sendmail
  umount /srv
  systemctl restart ashlar
  until_so 240 test -b /dev/ashlar/tank0
  mount /srv
}

somebody_was_told() {
  told 'a member was taken out of service'
  told 'ASHLAR_EVENT=member.failed'
  told 'tank0.*member\.failed\|member\.failed.*tank0'
  ashlar notify test
  until_so 240 grep -i 'ashlar' /drill/mailbox
  the_page_of_the_daemon | grep 'tank0'
}

the_page_of_the_daemon() {
  exec 3<>/dev/tcp/127.0.0.1/9309
  printf 'GET / HTTP/1.1\r\nHost: 127.0.0.1:9309\r\nConnection: close\r\n\r\n' >&3
  timeout 240 cat <&3
  exec 3>&-
}

the_upgrade_is_near() { # a package that is newer and has the same program, a quick watchdog, and a load
  rm -rf target
  dpkg-deb -R /drill/ashlar.deb newer
  sed -i 's/^Version: .*/&+newer/' newer/DEBIAN/control
  dpkg-deb -Zzstd -z1 -b newer ashlar_1_all.deb
  mkdir /etc/systemd/system/ashlar.service.d
  printf '[Service]\nWatchdogSec=15\n' >/etc/systemd/system/ashlar.service.d/watchdog.conf
  BEFORE=$(systemctl show -P MainPID ashlar)
  MOUNT=$(findmnt -no ID,SOURCE -M /srv)
  rm -f /run/enough
  write_on /srv &
}

the_successor_serves() {
  until_so 240 is_successor_of "$BEFORE"
}

a_daemon_that_hangs_is_replaced() { # as the page on installing says, by the quicker watchdog
  BEFORE=$(systemctl show -P MainPID ashlar)
  kill -STOP "$BEFORE"
  until_so 240 is_successor_of "$BEFORE"
}

nobody_noticed() { # neither the upgrade nor the daemon that hung
  touch /run/enough
  wait
  test ! -e /run/lost
  test "$(findmnt -no ID,SOURCE -M /srv)" = "$MOUNT"
  dpkg-query -W -f '${Version}\n' ashlar | grep '+newer$'
  echo 3 >/proc/sys/vm/drop_caches
  all_there
  health_is 0
}
