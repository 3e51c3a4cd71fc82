#!/usr/bin/env bash
# What the Vagrantfile runs in its machine, as root: the programs, and the agent as a systemd unit that observes. With
# `kubernetes` a cluster of one node (k3s) instead, the agent as a DaemonSet that acts, and a protected pod beside batch work.
#   deploy/vagrant/provision.sh [kubernetes]
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)
K3S=${K3S:-v1.33.5+k3s1}
READY_SECONDS=${READY_SECONDS:-300}

pressure() { # the kernel measures pressure from the next boot on
  [ -e /etc/default/grub ] || return 0
  grep -q psi=1 /etc/default/grub || sed -i 's/^GRUB_CMDLINE_LINUX="/&psi=1 /' /etc/default/grub
  update-grub
}

programs() {
  command -v make >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends make; }
  make -C "$tree" setup install
}

download() ( # the binary by its published digest, without the installer; a subshell, whose exit removes the folder
  name=k3s sums=sha256sum-amd64.txt place=https://github.com/k3s-io/k3s/releases/download/${K3S/+/%2B}
  if [ "$(uname -m)" = aarch64 ]; then name=k3s-arm64 sums=sha256sum-arm64.txt; fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cd "$folder"
  curl -fsSL -o "$folder/$name" "$place/$name"
  curl -fsSL "$place/$sums" | grep " $name\$" | sha256sum --check --quiet
  install -m 755 "$folder/$name" /usr/local/bin/k3s
)

cluster() {
  if [ ! -x /usr/local/bin/k3s ]; then
    apt-get install -y -qq --no-install-recommends ca-certificates curl iptables
    download
  fi
  install -m 644 "$tree/deploy/vagrant/k3s.service" /etc/systemd/system/k3s.service
  systemctl daemon-reload
  systemctl enable k3s
  systemctl start --no-block k3s # the unit waits for its readiness without end
  local end=$((SECONDS + READY_SECONDS))
  until timeout 60 k3s kubectl wait --for=condition=Ready node --all --timeout=30s 2>/dev/null; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "the node is not ready after $READY_SECONDS s; the log of k3s ends with:" >&2
      journalctl -u k3s --no-pager | tail -n 40 >&2
      exit 1
    fi
    sleep 1
  done
}

agent_in_the_cluster() { # two agents on one host would share /run/koord and /var/lib/koord
  systemctl disable --now koordlet 2>/dev/null || true
  apt-get install -y -qq --no-install-recommends git
  # The folder comes from the host, with an owner of its own and perhaps with changes.
  git config --global --get-all safe.directory | grep -qx "$tree" || git config --global --add safe.directory "$tree"
  "$tree/.venv/bin/python" -m probes.build x86 arm64
  "$tree/.venv/bin/python" -m deploy.release image --allow-dirty
  # The folder keeps the images of earlier versions.
  version=$(sed -n '/^\[project]/,/^\[[^p]/s/^version = "\(.*\)"$/\1/p' "$tree/pyproject.toml")
  k3s ctr --namespace k8s.io images import "$tree/dist/koord-$version.oci.tar"
  k3s kubectl apply -f "$tree/deploy/manifests/00-namespace.yaml" -f "$tree/deploy/crds"
  "$tree/.venv/bin/python" "$tree/deploy/render.py" --values "$tree/deploy/vagrant/values.yaml" | k3s kubectl apply -f -
  k3s kubectl --namespace koord-system rollout status daemonset/koordlet --timeout=300s
  k3s kubectl apply -f "$tree/deploy/vagrant/protected.yaml"
  k3s kubectl wait --for=condition=Ready pod/web --timeout=300s
  k3s kubectl rollout status deployment/batch --timeout=300s
}

case "${1:-}" in
  "") pressure; programs; systemctl enable --now koordlet ;;
  kubernetes) pressure; programs; cluster; cd "$tree"; agent_in_the_cluster ;;
  *) echo "usage: $0 [kubernetes]" >&2; exit 2 ;;
esac
