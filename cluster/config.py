"""Address and credentials of the API server: kubeconfig or service account.

The order is the usual one: an explicit file, `$KUBECONFIG`, `~/.kube/config`, then the pod's service account. What is
usual is read by `plain_config.py`; exec plugins, passwords, proxies and what is not well formed are the work of the
official client, which is imported for them alone.
"""

import os
from pathlib import Path
from typing import Any

import urllib3

from cluster.errors import NotConfigured
from cluster.plain_config import endpoint_of_file, endpoint_of_pod
from cluster.transport import Endpoint


def plain_endpoint(url: str, *, pool_size: int = 64) -> Endpoint:
    """Return an endpoint without TLS or credentials, such as the twin or `kubectl proxy`."""
    pools = urllib3.PoolManager(maxsize=pool_size, retries=False)
    return Endpoint(url, pools, authorization=lambda: "")


def load_endpoint(*, kubeconfig: Path | None = None, context: str | None = None, pool_size: int = 64) -> Endpoint:
    """Return the endpoint that the environment configures.

    Raises `NotConfigured` when neither a kubeconfig nor a service account is there, naming both.
    """
    return _plain(kubeconfig, context, pool_size) or _official(kubeconfig, context, pool_size)


def _plain(kubeconfig: Path | None, context: str | None, pool_size: int) -> Endpoint | None:
    """Return the endpoint without the official client; None where it needs that."""
    files = _files(kubeconfig)
    if kubeconfig is None and context is None and not _any_exists(files):
        return endpoint_of_pod(pool_size)
    found = [path for part in files.split(os.pathsep) if part and (path := Path(part).expanduser()).exists()]
    return endpoint_of_file(found[0], context, pool_size) if len(found) == 1 else None


def _files(kubeconfig: Path | None) -> str:
    return str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"


def _official(kubeconfig: Path | None, context: str | None, pool_size: int) -> Endpoint:
    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTClientObject

    configuration = Configuration()
    _load(configuration, kubeconfig, context)
    configuration.connection_pool_maxsize = pool_size
    pools: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
    return Endpoint(configuration.host, pools, lambda: _authorization(configuration), quick_authorization=False)


def _load(configuration: Any, kubeconfig: Path | None, context: str | None) -> None:
    from kubernetes import config
    from yaml import YAMLError

    files = _files(kubeconfig)
    try:
        if kubeconfig is None and context is None and not _any_exists(files):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(files, context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]
    # The official loader indexes into what it read without looking, hence the errors of plain Python.
    except (config.ConfigException, OSError, YAMLError, KeyError, TypeError, ValueError) as error:
        raise NotConfigured(
            f"no usable API server configuration in {files} nor a service account in the pod ({error}); "
            "give a kubeconfig file or set KUBECONFIG"
        ) from error


def _any_exists(files: str) -> bool:
    # The variable is a path list, whose missing members are not an error to kubectl either.
    return any(Path(part).expanduser().exists() for part in files.split(os.pathsep) if part)


def _authorization(configuration: Any) -> str:
    # Asking runs the refresh hook, which re-reads rotated tokens and re-runs exec plugins.
    token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    if token:
        return str(token)
    if configuration.username:
        return str(configuration.get_basic_auth_token())
    return ""
