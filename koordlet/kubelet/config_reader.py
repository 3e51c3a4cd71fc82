"""Reader of the kubelet's configuration: from the kubelet, else its file, else what the cgroup tree shows."""

from collections.abc import Callable
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostError, HostTree
from koordlet.kubelet.cgroup_paths import kubepods_path
from koordlet.kubelet.configuration import (
    CgroupDriver,
    ConfigurationError,
    KubeletConfig,
    fitted,
    of_configz,
    of_file,
    of_tree,
)
from koordlet.kubelet.retries import Complaints


class ConfigReader:
    """Reader of one kubelet's configuration; what cannot be read is complained about, and the next source asked."""

    def __init__(self, tree: HostTree, root_directory: str, complaints: Complaints) -> None:
        self._tree = tree
        self._file = f"{root_directory.rstrip('/')}/config.yaml"
        self._complaints = complaints

    def read(
        self, configz: Callable[[], bytes] | None, runtime_driver: Callable[[], CgroupDriver | None]
    ) -> KubeletConfig | None:
        """Return the configuration; None where there is no trace of a kubelet.

        `configz` asks the kubelet, None where it is not to be asked; `runtime_driver` the runtime, if there is nothing
        else.
        """
        exists = exists_below(self._tree)
        config = (self._of_kubelet(configz) if configz else None) or self._of_file()
        if config is not None:
            return fitted(config, exists)
        return of_tree(exists, runtime_driver()) or of_tree(exists)

    def _of_kubelet(self, configz: Callable[[], bytes]) -> KubeletConfig | None:
        try:
            return of_configz(configz())
        except (Unsupported, ConfigurationError) as error:
            self._complaints.unsupported("kubelet's configuration", error)
            return None

    def _of_file(self) -> KubeletConfig | None:
        try:
            text = self._tree.text(self._file)
            return of_file(text, self._file) if text else None
        except (HostError, ConfigurationError) as error:
            self._complaints.unsupported("kubelet's configuration", error)
            return None


def mount_of(tree: HostTree) -> Path | None:
    """Return the mount of the cpu controller; None where there is none."""
    try:
        return find_hierarchies(tree).cpu
    except (Unsupported, HostError):
        return None


def exists_below(tree: HostTree) -> Callable[[KubeletConfig], bool]:
    """Return whether a configuration's `kubepods` cgroup is in the tree of the cpu controller."""
    mount = mount_of(tree)
    if mount is None:
        return lambda _config: False
    return lambda config: Path(f"{mount}{kubepods_path(config)}").is_dir()
