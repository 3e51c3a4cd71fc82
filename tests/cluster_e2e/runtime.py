"""containerd with runc and a bridge network, all of it inside one directory."""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.cluster_e2e import images
from tests.cluster_e2e.cgroup_layout import IS_SYSTEMD
from tests.cluster_e2e.machine import BRIDGE, POD_SUBNET, may_lower_oom_score
from tests.cluster_e2e.processes import Started, start_time_of
from tests.waiting import PATIENCE

_SHIM = "containerd-shim-runc-v2"
_CONFIGURATION = """version = 3
root = "{directory}/containerd"
state = "{directory}/containerd-run"
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = {restrict}
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{directory}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    BinaryName = "{assets}/runc"
    SystemdCgroup = {systemd}
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{directory}/nri.sock"
  plugin_path = "{directory}/nri/plugins"
  plugin_config_path = "{directory}/nri/conf.d"
  plugin_registration_timeout = "{registration_seconds}s"
  plugin_request_timeout = "{request_seconds}s"
"""


@dataclass(frozen=True)
class Runtime:
    """A containerd of binaries in `assets` with its files in `directory`."""

    assets: Path
    directory: Path

    @property
    def socket(self) -> Path:
        """Its CRI socket."""
        return self.directory / "containerd.sock"

    @property
    def nri_socket(self) -> Path:
        """Its NRI socket."""
        return self.directory / "nri.sock"

    def configure(self) -> None:
        """Write its settings, the network's, and the image archives."""
        text = _CONFIGURATION.format(
            directory=self.directory,
            socket=self.socket,
            pause=images.PAUSE,
            restrict=str(not may_lower_oom_score()).lower(),
            plugins=self.assets / "cni",
            assets=self.assets,
            systemd=str(IS_SYSTEMD).lower(),
            registration_seconds=round(5 * PATIENCE),
            request_seconds=round(2 * PATIENCE),
        )
        (self.directory / "containerd.toml").write_text(text)
        self._configure_network()
        listed = subprocess.run([images.busybox(), "--list"], capture_output=True, text=True, check=True)
        applets = [name for name in listed.stdout.split() if name != "busybox"]
        images.write_archive(self.directory / "pause.tar", [images.PAUSE], ["/bin/busybox", "sleep", "2147483647"], [])
        images.write_archive(self.directory / "busybox.tar", [images.BUSYBOX], ["sh"], applets)

    def command(self) -> list[str | Path]:
        """Command of containerd."""
        return [self.assets / "containerd", "-c", self.directory / "containerd.toml"]

    def environment(self) -> dict[str, str]:
        """Environment in which containerd and the kubelet find their programs."""
        path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        return {**os.environ, "PATH": f"{self.assets}:{path}"}

    def answers(self) -> bool:
        """Return whether containerd takes calls."""
        return self.socket.exists() and self.ctr("version").returncode == 0

    def import_images(self) -> None:
        """Import the archives."""
        for name in ("pause", "busybox"):
            done = self.ctr("images", "import", str(self.directory / f"{name}.tar"))
            assert done.returncode == 0, f"import of {name}: {done.stderr}"

    def remove_containers(self) -> None:
        """End and remove every container, with the kubelet gone; nothing where containerd does not answer."""
        if not self.answers():
            return
        for task in self.ctr("tasks", "list", "-q").stdout.split():
            self.ctr("tasks", "remove", "--force", task)
        for container in self.ctr("containers", "list", "-q").stdout.split():
            self.ctr("containers", "remove", container)

    def shims(self) -> list[Started]:
        """Return the shims of this containerd, which outlive it: those that were given its socket."""
        found = []
        for directory in Path("/proc").iterdir():
            if not directory.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                arguments = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
                pid, begun = int(directory.name), start_time_of(int(directory.name))
                if Path(arguments[0]).name == _SHIM and str(self.socket) in arguments and begun is not None:
                    found.append(Started(_SHIM, pid, begun))
        return found

    def ctr(self, *arguments: str, timeout_seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run containerd's own client in the namespace of CRI."""
        command = [self.assets / "ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_seconds)

    def _configure_network(self) -> None:
        folder = self.directory / "cni"
        folder.mkdir()
        ranges = [[{"subnet": POD_SUBNET}]]
        ipam = {"type": "host-local", "dataDir": str(self.directory / "cni-addresses"), "ranges": ranges}
        plugin = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipam": ipam}
        network = {"cniVersion": "1.0.0", "name": "koord-test", "plugins": [plugin]}
        (folder / "10-koord-test.conflist").write_bytes(msgspec.json.encode(network))
