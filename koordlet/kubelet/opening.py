"""The pod source of one node from the settings: what is configured, what may be missing, what cannot be."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from api.plugin import Unsupported
from koordlet.host.files import HostTree
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.source import PodSource

if TYPE_CHECKING:
    from koordlet.kubelet.watch import ApiServer

_log = logging.getLogger(__name__)


class NothingConfigured(Unsupported):
    """Neither the API server nor the kubelet is configured: this is no node of a cluster."""


def node_name(configured: str) -> str:
    """Return the name of this node's object: as configured, $NODE_NAME, or the host's name."""
    return configured or os.environ.get("NODE_NAME") or socket.gethostname().lower()


def is_kubelet_configured(settings: KubeletSettings) -> bool:
    """Return whether the settings or a service account say how to ask the kubelet."""
    given = settings.endpoint or settings.read_only_port or settings.client_certificate
    return bool(given) or Path(settings.token_file).is_file()


def find_apiserver(kubeconfig: str, node: str) -> "ApiServer":
    """Return the API server. Raises Unsupported where none is configured or its client is not installed."""
    try:
        from koordlet.kubelet.watch import ApiServer, NotConfigured
    except ImportError as error:
        raise Unsupported(
            f"the API server needs the Kubernetes client ({error})", "pip install 'koord[cluster]'"
        ) from error
    try:
        return ApiServer.connect(kubeconfig, node)
    except NotConfigured as error:
        raise Unsupported(str(error), "give --kubeconfig, or set $KUBECONFIG") from error


def find_cluster(settings: KubeletSettings, *, node: str, kubeconfig: str) -> "ApiServer | None":
    """Return the API server; None where only the kubelet is configured. Raises NothingConfigured."""
    try:
        return find_apiserver(kubeconfig, node)
    except Unsupported as error:
        if not is_kubelet_configured(settings):
            raise NothingConfigured(
                f"neither the API server nor the kubelet is configured: {error.reason}",
                f"{error.remedy}, run as a pod with a service account, or add --standalone to run without Kubernetes",
            ) from error
        _log.warning("nothing is reported to the cluster: %s; %s", error.reason, error.remedy)
    return None


@contextmanager
def open_pod_source(
    settings: KubeletSettings, tree: HostTree, node: str, apiserver: "ApiServer | None"
) -> Iterator[PodSource]:
    """A started source, closed at the end. What does not answer yet is warned about and asked again."""
    source = PodSource(settings, node, tree, apiserver)
    source.start()
    try:
        yield source
    finally:
        source.close()
