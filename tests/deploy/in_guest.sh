#!/bin/bash
# Inside a guest whose first process is systemd. Ends at what goes wrong.
#   in_guest.sh package FOLDER    installs FOLDER's Debian package; the unit begins, is killed, hung, stopped; the package
#                                 is removed from under a running agent, then purged
#   in_guest.sh vagrant FOLDER    makes of it what the Vagrantfile's script makes, from FOLDER's wheels; then uninstalls it
set -eEuo pipefail
way=$1 folder=$2
cgroup=/sys/fs/cgroup/koord-test-left

tell() { echo "== $*"; }
failed() { # LINE COMMAND
  tell "failed in line $1: $2"
  systemctl status koordlet --no-pager 2>&1 | tail -20
  journalctl --unit=koordlet --no-pager 2>&1 | tail -60
}
trap 'failed "$LINENO" "$BASH_COMMAND"' ERR
main_pid() { systemctl show koordlet --property=MainPID --value; }
answers() { /usr/bin/python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:9316/readyz", timeout=30)' 2>/dev/null; }
# An action that an agent on this host has left behind, with its journal where the unit has it.
leave_an_action() {
  "$python" -P - <<'PYTHON'
import os
from api.intents import Knob, Setting
from koordlet.config import EnforcerSettings
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.files import HostTree

enforcer = open_enforcer(EnforcerSettings(enabled=True, strategies=("*",)), HostTree())
setting = Setting(strategy="s", target="/koord-test-left", knob=Knob.CPU_MAX, value="20000 100000", reason="-")
enforcer.step([setting])
os._exit(0)
PYTHON
  grep -q '^20000 100000' $cgroup/cpu.max
}
restored() { grep -q '^max 100000' $cgroup/cpu.max; }
until_another() { # the unit has a main process that is not this one, and it answers
  for _ in $(seq 300); do
    if [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ] && answers; then return 0; fi
    sleep 1
  done
  return 1
}
begins() { # an enabled unit
  systemctl is-active koordlet
  until_another 0
  tell "active; $(systemctl show koordlet --property=WatchdogUSec --property=ActiveState --property=SubState | tr '\n' ' ')"
}
snapshot() { # by root, who can write what Python compiles: the unit's later starts are spared that
  koordlet snapshot --seconds 1 >/tmp/snapshot
  tell "a snapshot has $(wc -l </tmp/snapshot) lines"
}
is_killed_hung_and_stopped() {
  leave_an_action
  first=$(main_pid)
  kill -KILL "$first"
  until_another "$first"
  restored
  tell "killed: what was left is restored, another one runs"
  second=$(main_pid)
  kill -STOP "$second"
  until_another "$second"
  tell "hung: the watchdog has begun another one"
  leave_an_action
  systemctl stop koordlet
  restored
  tell "stopped: what was left is restored"
}

ulimit -c 0
# Other tests on this machine, whose files the guest sees, come and go: what is made anew hides theirs.
for place in /etc/koord /var/lib/koord /var/log/koord; do
  mkdir -p "$place"
  rm -r "$place"
  mkdir "$place"
done
# systemd gives the root's cgroups the controllers that its units need: one that stays needs `cpu`.
systemd-run --quiet --unit=koord-test-weighed --property=CPUWeight=90 sleep infinity
mkdir -p $cgroup
for _ in $(seq 60); do [ ! -e $cgroup/cpu.max ] || break; sleep 1; done
test -e $cgroup/cpu.max
# The emulated CPU takes a minute for the imports that a real one takes seconds for.
mkdir -p /etc/systemd/system/koordlet.service.d
printf '[Service]\nTimeoutStartSec=900s\nTimeoutStopSec=600s\n' >/etc/systemd/system/koordlet.service.d/emulated.conf
systemctl daemon-reload

if [ "$way" = package ]; then
  dpkg --install "$folder"/koord_*.deb
  tell "the package is installed"
  koordlet --version
  if systemctl is-active koordlet; then false; fi
  snapshot
  systemctl enable --now koordlet
  begins
  python=/usr/lib/koord/bin/python
  is_killed_hung_and_stopped
  systemctl start koordlet
  leave_an_action
  dpkg --remove koord
  restored
  if systemctl is-active koordlet; then false; fi
  test -e /etc/koord/koordlet.toml
  tell "removed: the agent has ended, what was left is restored"
  dpkg --purge koord
  test ! -e /etc/koord
  test ! -e /var/lib/koord
  tell "purged"
  exit 0
fi

cp -r "$folder/wheelhouse" /tmp/wheelhouse
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/tmp/wheelhouse PIP_NO_COMPILE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
touch .venv/.installed
deploy/vagrant/provision.sh
tell "provisioned"
koordlet --version
systemctl is-enabled koordlet
begins
snapshot
python=/opt/koord/bin/python
leave_an_action
make uninstall
restored
hash -r
if command -v koordlet; then false; fi
test ! -e /opt/koord
test ! -e /etc/systemd/system/koordlet.service
test -e /etc/koord/koordlet.toml
tell "uninstalled: the agent has ended, what was left is restored; settings stay"
