#!/usr/bin/env bash
# Installs Koord on this host: programs in /opt/koord, links in /usr/local/bin, units, and settings where there are none.
# Starts nothing; uninstalling keeps settings, state and logs.
#   deploy/install.sh              as root, from a checkout
#   deploy/install.sh --uninstall
#   DESTDIR=/tmp/x VENV=.venv deploy/install.sh    below another root, with programs that are there already
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
root=${DESTDIR:-}
venv=${VENV:-}
programs=(koordlet koord-runtime-proxy koord-detector koord-scheduler koord-manager koord-descheduler koord-yarn-copilot kubectl-koord)
units=(koordlet.service koord-runtime-proxy.service)

running_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

case "${1:-}" in
  --uninstall)
    if running_systemd && systemctl is-active --quiet koord-runtime-proxy; then
      echo "koord-runtime-proxy runs: the kubelet may reach its containers through it. Give the kubelet the runtime's own" >&2
      echo "socket again (containerRuntimeEndpoint), restart it, and: systemctl disable --now koord-runtime-proxy" >&2
      exit 3
    fi
    if running_systemd; then
      # Stopping the agent restores every action; protocol state goes with --all.
      systemctl disable --now "${units[@]}" >/dev/null 2>&1 || true
      config=()
      [ ! -e /etc/koord/koordlet.toml ] || config=(--config /etc/koord/koordlet.toml)
      [ ! -x /usr/local/bin/koordlet ] || /usr/local/bin/koordlet restore --all "${config[@]}"
    fi
    for unit in "${units[@]}"; do rm -f "$root/etc/systemd/system/$unit"; done
    for program in "${programs[@]}"; do rm -f "$root/usr/local/bin/$program"; done
    rm -rf "$root/opt/koord"
    if running_systemd; then systemctl daemon-reload; fi
    echo "uninstalled; /etc/koord, /var/lib/koord and /var/log/koord are left"
    exit 0 ;;
  "") ;;
  *) echo "usage: $0 [--uninstall]" >&2; exit 2 ;;
esac

if [ -z "$root" ] && [ "$(id -u)" -ne 0 ]; then
  echo "installing needs root: sudo $0" >&2
  exit 3
fi

if [ -z "$venv" ]; then
  "$here/deploy/provision.sh" build run
  venv=/opt/koord
  [ -x "$root$venv/bin/python" ] || /usr/bin/python3 -m venv "$root$venv"
  constraints=$(mktemp)
  trap 'rm -f "$constraints"' EXIT
  # The lock has the packages of tests too: its versions bind, its list does not.
  sed -E 's/ \\$//; /^ +--hash=/d' "$here/requirements.lock" >"$constraints"
  "$root$venv/bin/pip" install --quiet --upgrade --constraint "$constraints" "$here[cluster,grpc,analysis]"
  (cd "$here" && "$root$venv/bin/python" -m probes.build)
  packages=$("$root$venv/bin/python" -P -c 'import pathlib, probes; print(pathlib.Path(probes.__file__).parent)')
  mkdir -p "$packages/objects"
  cp -r "$here/probes/objects/." "$packages/objects/"
  made=$root$venv
else
  venv=$(cd "$here" && cd "$venv" && pwd)
  made=$venv
fi

install -d "$root/usr/local/bin" "$root/etc/systemd/system" "$root/etc/default" "$root/etc/koord"
for program in "${programs[@]}"; do
  [ -x "$made/bin/$program" ] || { echo "$made/bin/$program is missing" >&2; exit 3; }
  ln -sfn "$venv/bin/$program" "$root/usr/local/bin/$program"
done
for unit in "${units[@]}"; do install -m 644 "$here/deploy/systemd/$unit" "$root/etc/systemd/system/$unit"; done
if [ ! -e "$root/etc/koord/koordlet.toml" ]; then
  install -m 644 "$here/deploy/systemd/koordlet.toml" "$root/etc/koord/koordlet.toml"
fi
if [ ! -e "$root/etc/default/koordlet" ]; then
  echo 'KOORDLET_FLAGS="--standalone"' >"$root/etc/default/koordlet"
fi
if running_systemd; then systemctl daemon-reload; fi
echo "installed: systemctl enable --now koordlet; settings in /etc/koord/koordlet.toml, flags in /etc/default/koordlet"
