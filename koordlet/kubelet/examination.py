"""What of kubelet, runtime and API server is reachable from here, for `koordlet doctor`: one line each."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from api.plugin import Unsupported
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from koordlet.kubelet.cgroup_paths import kubepods_path
from koordlet.kubelet.opening import find_apiserver, is_kubelet_configured
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.source import PodSource

if TYPE_CHECKING:
    from koordlet.kubelet.watch import ApiServer


@dataclass(frozen=True, slots=True)
class Examined:
    """One line: what, whether it can be used, why, and the remedy of a no."""

    name: str
    available: bool
    reason: str
    remedy: str = ""


def examine_cluster(settings: KubeletSettings, tree: HostTree, *, node: str, kubeconfig: str) -> list[Examined]:
    """Ask everything once. A host without any trace of Kubernetes gets one line."""
    apiserver, refused = None, Unsupported("")
    try:
        apiserver = find_apiserver(kubeconfig, node)
    except Unsupported as error:
        refused = error
    if apiserver is None and not is_kubelet_configured(settings):
        remedy = "none needed with --standalone; else --kubeconfig, a service account or [kubelet] endpoint"
        return [
            Examined("cluster", available=False, reason="neither API server nor kubelet is configured", remedy=remedy)
        ]
    lines = [_apiserver_line(apiserver, node, refused)]
    source = PodSource(settings, node, tree, apiserver)
    try:
        found = source.examine()
        lines += [
            Examined(name, available=not isinstance(answer, Unsupported), reason=str(answer), remedy=_remedy(answer))
            for name, answer in found.items()
        ]
        lines += _matched(source, tree)
    finally:
        source.close()
    return lines


def _remedy(answer: str | Unsupported) -> str:
    return answer.remedy if isinstance(answer, Unsupported) else ""


def _apiserver_line(apiserver: "ApiServer | None", node: str, refused: Unsupported) -> Examined:
    if apiserver is None:
        return Examined("api server", available=False, reason=refused.reason, remedy=refused.remedy)
    try:
        addresses = apiserver.kubelet_endpoints()
    except Unsupported as error:
        return Examined("api server", available=False, reason=error.reason, remedy=error.remedy)
    return Examined("api server", available=True, reason=f"knows node {node}, kubelet at {', '.join(addresses)}")


def _matched(source: PodSource, tree: HostTree) -> list[Examined]:
    """Lines of the kubelet's cgroups, and of the pods and containers found there."""
    config, table = source.config(), source.table()
    if config is None:
        return [
            Examined(
                "pod cgroups",
                available=False,
                reason="no configuration of a kubelet, and no kubepods cgroup at its usual places",
                remedy="let the agent read nodes/configz, or mount the kubelet's config.yaml",
            )
        ]
    place = kubepods_path(config)
    lines = []
    try:
        mount = str(find_hierarchies(tree).cpu)
    except Unsupported as error:
        return [Examined("pod cgroups", available=False, reason=error.reason, remedy=error.remedy)]
    exists = Path(f"{mount}{place}").is_dir()
    lines.append(
        Examined(
            "pod cgroups",
            available=exists,
            reason=f"{place}{'' if exists else ' is missing'}; driver {config.cgroup_driver}, root "
            f"{config.cgroup_root}, by {config.source}",
            remedy="" if exists else "mount the host's cgroup file system, without a cgroup namespace",
        )
    )
    active = [pod for pod in table.pods if pod.active]
    matched = [pod for pod in active if pod.cgroup_path and Path(f"{mount}{pod.cgroup_path}").is_dir()]
    running = [each for pod in active for each in pod.containers if each.running]
    placed = [each for each in running if each.cgroup_path and Path(f"{mount}{each.cgroup_path}").is_dir()]
    lines.append(
        Examined(
            "pods",
            available=bool(table.generation) and len(matched) == len(active) and len(placed) == len(running),
            reason=f"{len(matched)} of {len(active)} pods and {len(placed)} of {len(running)} running containers "
            f"have their cgroup, pods by {source.status().pods_from or 'no source'}",
            remedy=""
            if len(placed) == len(running)
            else "those that start or end are missing for a moment; look again",
        )
    )
    return lines
