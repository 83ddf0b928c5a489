# What the machine that reboots does at each boot. What must be on the file systems is written down in
# /drill/sums, on the root.
DRIVES=/dev/disk/by-id/virtio-
UNITS=(ashlar srv-tank.mount srv-safe.mount)
CUT=2

status_is() { # status_is WORDS: what systemctl shows of the daemon
  test "$(systemctl show -P StatusText ashlar)" = "$1"
}

are_mounted() { mountpoint /srv/tank && mountpoint /srv/safe; }

mounts() { findmnt -no ID,SOURCE -M /srv/tank && findmnt -no ID,SOURCE -M /srv/safe; }

by_themselves() { # they were mounted without us, and everything is there
  until_so 600 are_mounted
  say "mounted"
  test "$(findmnt -no SOURCE /srv/tank)" = "$(readlink -f /dev/ashlar/tank)"
  test "$(findmnt -no SOURCE /srv/safe)" = "$(readlink -f /dev/ashlar/safe)"
  all_there
}

all_there() {
  sha256sum --quiet -c /drill/sums
}

write_down() { # write_down NAME: a durable file on each file system, and its sum
  local place
  for place in /srv/tank /srv/safe; do
    head -c 3M /dev/urandom >"$place/$1"
    sync "$place/$1"
    sha256sum "$place/$1" >>/drill/sums
  done
  sync /drill/sums
}

told() { # told WORDS: the daemon of this boot said so in the journal
  journalctl -b -u ashlar -o cat | grep -e "$1"
}

happened() { # happened EVENT: to both arrays, since the daemon has started
  ashlar events --json >/run/events
  grep "\"$1\"" /run/events | grep -c '"tank"'
  grep "\"$1\"" /run/events | grep -c '"safe"'
}

without_trouble() { # what systemd says of this boot, and the kernel of the drives
  systemctl list-units --failed --plain --no-legend
  # On a busy machine a unit of Debian may not end in its time; the daemon and the file systems have theirs.
  test -z "$(systemctl list-units --failed --plain --no-legend 'ashlar*' 'srv-*')"
  journalctl -b -o cat >/run/journal
  if grep -E "ordering cycle|I/O error|XFS.*(error|corrupt|shut)|EXT4-fs.*error" /run/journal; then false; fi
}

step_1() {
  say "install"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq /drill/ashlar.deb
  systemctl is-active ashlar
  systemctl is-enabled ashlar
  # On a busy machine drives may appear half a minute after the first.
  sed -i 's/^#grace_s = 30 /grace_s = 60 /' /etc/ashlar/ashlar.toml
  grep '^grace_s = 60' /etc/ashlar/ashlar.toml
  # And all of them may be silent for a while, which is the host's fault and none of a drive.
  sed -i '/^\[tuning\]/a silent_flash_ms = 60000\nsilent_rotational_ms = 60000' /etc/ashlar/ashlar.toml
  systemctl restart ashlar
  say "create"
  ashlar create tank --level 6 ${DRIVES}tank{0,1,2,3}
  ashlar create safe --level 5 ${DRIVES}safe{0,1,2}
  look_taken tank
  ashlar attach tank 2>/run/told
  grep 'for /etc/fstab: /dev/ashlar/tank$' /run/told
  ashlar attach safe --via loop
  until_so 240 test -b /dev/ashlar/tank -a -b /dev/ashlar/safe
  say "mkfs, fstab, mount"
  mkfs.xfs -q /dev/ashlar/tank
  mkfs.ext4 -q /dev/ashlar/safe
  mkdir /srv/tank /srv/safe
  # Both ways to wait for the daemon.
  echo '/dev/ashlar/tank /srv/tank xfs defaults,nofail,x-systemd.after=ashlar.service 0 0' >>/etc/fstab
  echo '/dev/ashlar/safe /srv/safe ext4 defaults,x-systemd.requires=ashlar.service 0 0' >>/etc/fstab
  systemctl daemon-reload
  mount /srv/tank
  mount /srv/safe
  write_down first
  health_is 0
}

step_2() {
  by_themselves
  without_trouble
  health_is 0
  until_so 240 status_is "2 arrays: 2 clean"
  # The shutdown was in order: file systems before the daemon, and the daemon before the drives.
  dmesg | grep 'XFS (ublkb0): Ending clean mount'
  if happened log.replayed; then false; fi
  write_down before_the_cut
  write_on /srv/tank &
  write_on /srv/safe &
  until_so 240 test -e /run/under_way_tank -a -e /run/under_way_safe
}

step_3() {
  by_themselves
  without_trouble
  # It was not.
  dmesg | grep 'XFS (ublkb0): Starting recovery'
  happened log.replayed
  until_so 240 health_is 0
  write_down after_the_cut
}

step_4() {
  by_themselves
  without_trouble
  told "array 'tank' lacks slot 1; it starts degraded in"
  told "array 'safe' lacks slot 2; it starts degraded in"
  happened array.started_degraded
  health_is 2
  write_down with_a_drive_missing
}

step_5() {
  by_themselves
  without_trouble
  until_so 240 health_is 0
  happened member.returned
  no_mismatch
  say "the daemon is killed"
  kept_by_systemd
  survived killed
  kept_by_systemd
  say "the package is upgraded"
  survived upgraded
  told "array 'tank' is handed over (Clean)"
  test "$(systemctl show -P NRestarts ashlar)" = 2
  all_there
  happened attachment.resumed
  health_is 0
  without_trouble
  say "pull tank2"
  until_so 240 test ! -e "${DRIVES}tank2"
  write_down without_tank2
  health_is 2
  say "plug tank2"
  until_so 240 health_is 0
  told "virtio-tank2-part1 is back in 'tank'"
  no_mismatch
  echo 3 >/proc/sys/vm/drop_caches
  all_there
  umount /srv/tank /srv/safe
  xfs_repair -n /dev/ashlar/tank
  e2fsck -fn /dev/ashlar/safe
}

look_taken() { # look_taken ARRAY: its drives, to programs that know nothing of Ashlar
  local drive
  for drive in ${DRIVES}${1}[0-9]; do
    blkid -p "$drive" | grep 'PTTYPE="gpt"'
    wipefs "$drive" | grep gpt
    if mkfs.xfs "$drive"; then false; fi
    ashlar status "$1" --members | grep "$drive-part1 "
  done
}

no_mismatch() {
  local array
  for array in tank safe; do
    ashlar scrub --wait "$array" | grep "scrub of $array: 0 mismatches"
  done
}

kept_by_systemd() { # descriptors of attached files are; no process of ours keeps any
  test "$(systemctl show -P NFileDescriptorStore ashlar)" -gt 0
  if grep -lz '^keeper$' /proc/[0-9]*/cmdline; then false; fi
}

survived() { # survived COMMAND...: the end of the daemon under load; its users have only waited
  local pid before
  pid=$(systemctl show -P MainPID ashlar)
  before=$(mounts)
  rm -f /run/enough
  write_on /srv/tank &
  write_on /srv/safe &
  "$@"
  write_down "after_$1"
  until_so 240 is_successor_of "$pid"
  touch /run/enough
  wait
  test ! -e /run/lost
  test "$(mounts)" = "$before"
  echo 3 >/proc/sys/vm/drop_caches
}

killed() { systemctl kill --kill-whom=main --signal=SIGKILL ashlar; }

upgraded() { # as ashlar.service(8) says
  dpkg -i /drill/ashlar.deb 2>/run/told
  grep 'the old daemon still runs' /run/told
  readlink "/proc/$(systemctl show -P MainPID ashlar)/exe" | grep deleted
  systemctl kill --kill-whom=main --signal=SIGUSR2 ashlar
}
