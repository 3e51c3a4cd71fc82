#!/usr/bin/env bash
# Installs the packages that Koord needs on Debian or Ubuntu; elsewhere prints which are missing and stops.
#   deploy/provision.sh build run [test] [vm]     sections of packages.txt
# For a kernel without BTF `run` brings `bcc` too, and the kernel's headers where apt has them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { echo "usage: $0 SECTION... (sections of $here/packages.txt)" >&2; exit 2; }

wanted() { # the packages of the named sections, each with those that can take its place
  awk -v sections=" $* " '
    /^\[.*\]$/ { gsub(/[][]/, ""); inside = index(sections, " " $0 " "); next }
    inside && !/^#/ && NF { gsub(/[|]/, ""); print }' "$here/packages.txt"
}

# A package that others only provide has no record of its own, and `apt-cache show` succeeds without a word.
offered() { [ -n "$(apt-cache show "$1" 2>/dev/null)" ]; }
installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

updated=
update() {
  [ -n "$updated" ] || apt-get update -qq
  updated=yes
}

if [[ " $* " == *" run "* && " $* " != *" bcc "* && ! -e ${KOORD_BTF:-/sys/kernel/btf/vmlinux} ]]; then
  set -- "$@" bcc
  headers=linux-headers-$(uname -r)
fi
mapfile -t lines < <(wanted "$@")
packages=("${lines[@]%% *}")
if ! command -v apt-get >/dev/null; then
  echo "this is not Debian or Ubuntu; the equivalents of these packages are needed: ${packages[*]}" >&2
  exit 3
fi
for i in "${!lines[@]}"; do
  read -ra names <<<"${lines[i]}"
  [ ${#names[@]} -gt 1 ] || continue
  for name in "${names[@]}"; do
    if installed "$name"; then packages[i]=$name; continue 2; fi
  done
  if [ "$(id -u)" -eq 0 ]; then update; fi # without its lists, as in an image, apt knows no package
  for name in "${names[@]}"; do
    if offered "$name"; then packages[i]=$name; continue 2; fi
  done
done
if [ -n "${headers:-}" ] && ! installed "$headers"; then
  if [ "$(id -u)" -eq 0 ]; then update; fi
  if offered "$headers"; then
    packages+=("$headers")
  else
    echo "this kernel has no BTF, and apt has no $headers: its headers have to come from elsewhere" >&2
  fi
fi
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "packages ($*): all ${#packages[@]} are installed"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "missing packages: ${missing[*]}" >&2
  echo "run as root, or: apt-get install ${missing[*]}" >&2
  exit 3
fi
echo "packages ($*): installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Load generators come as services that listen on every address; they are started by tests only, and not for the seconds
# between their installation and `disable` either (policy-rc.d of invoke-rc.d; 101 is "not allowed"). All others start.
services=(redis-server nginx prometheus iperf3)
policy=${KOORD_POLICY:-/usr/sbin/policy-rc.d}
origin="# Koord's deploy/provision.sh wrote this for the time of an installation; it can be removed."
if [[ ! -e $policy && ! -L $policy ]] || grep -qxF "$origin" "$policy" 2>/dev/null; then
  trap 'rm -f "$policy"' EXIT
  cat >"$policy" <<END
#!/bin/sh
$origin
case "\${1%.service}" in
  $(IFS='|' && echo "${services[*]}")) exit 101 ;;
esac
exit 0
END
  chmod 755 "$policy"
fi
update
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
if [ -d /run/systemd/system ]; then
  for service in "${services[@]}"; do
    systemctl disable --now "$service" >/dev/null 2>&1 || true
  done
fi
