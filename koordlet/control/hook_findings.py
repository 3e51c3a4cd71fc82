"""Runtime hooks for `koordlet doctor`: who applies the rules here, and whether runtime and proxy can be reached."""

from pathlib import Path

from api.plugin import Unsupported
from koordlet.config import AgentSettings
from koordlet.control.runtime_hooks import is_on
from koordlet.hooks.decide import HookRules
from koordlet.host.files import HostTree
from koordlet.kubelet.examination import Examined
from koordlet.runtime_proxy.settings import DEFAULT_SOCKET

_NO_GRPC = "pip install 'koord[grpc]'"


def hook_findings(settings: AgentSettings, tree: HostTree, *, in_cluster: bool) -> list[Examined]:
    """Ask the runtime's NRI socket and the proxy once; nothing stays registered. Raises SettingsError."""
    return [_rules(settings, in_cluster), _nri(settings, tree, in_cluster), _proxy(settings, tree)]


def _rules(settings: AgentSettings, in_cluster: bool) -> Examined:
    rules = HookRules(settings.hooks.features).rules
    is_kept = is_on(settings.hooks.reconcile, settings.enforcer.enabled and in_cluster)
    text = f"{len(rules)} rules: {', '.join(rules)}"
    if is_kept and settings.enforcer.enabled:
        return Examined("hooks", available=True, reason=f"{text}; kept in effect for running pods")
    remedy = "none needed to observe; else run with --enforce in a cluster, or set [hooks] reconcile"
    return Examined("hooks", available=False, reason=f"{text}; no program keeps them in effect", remedy=remedy)


def _nri(settings: AgentSettings, tree: HostTree, in_cluster: bool) -> Examined:
    path = tree.path(settings.nri.socket)
    if not path.exists():
        remedy = "none needed without NRI; else enable it in the runtime, or set [nri] socket"
        return Examined("nri", available=False, reason=f"no socket at {path}", remedy=remedy)
    try:
        from koordlet.nri.runtime_link import ask_runtime

        runtime = ask_runtime(path, settings.nri.connect_timeout_seconds)
    except ImportError as error:
        return Examined("nri", available=False, reason=f"NRI needs protobuf ({error})", remedy=_NO_GRPC)
    except Unsupported as error:
        return Examined("nri", available=False, reason=error.reason, remedy=error.remedy)
    is_used = is_on(settings.nri.enabled, settings.enforcer.enabled and in_cluster) and settings.enforcer.enabled
    use = "containers start with what the rules say" if is_used else "not used: nothing is enforced here"
    return Examined("nri", available=True, reason=f"{runtime} at {path}; {use}")


def _proxy(settings: AgentSettings, tree: HostTree) -> Examined:
    name = "runtime-proxy"
    socket = tree.path(DEFAULT_SOCKET)
    if not socket.exists():
        if settings.runtime_proxy.enabled:
            remedy = "start koord-runtime-proxy and name its socket as the kubelet's containerRuntimeEndpoint"
        else:
            remedy = "none needed with [nri]; else start koord-runtime-proxy, and set [runtime_proxy] enabled"
        return Examined(name, available=False, reason=f"no socket at {socket}", remedy=remedy)
    try:
        from koordlet.kubelet.cri import RuntimeClient
    except ImportError as error:
        return Examined(name, available=False, reason=f"the proxy needs grpcio ({error})", remedy=_NO_GRPC)
    client = RuntimeClient(socket, settings.kubelet.timeout_seconds)
    try:
        runtime = " ".join(client.version())
    except Unsupported as error:
        remedy = "look at the log of koord-runtime-proxy, and whether its runtime runs"
        return Examined(name, available=False, reason=error.reason, remedy=remedy)
    finally:
        client.close()
    return Examined(name, available=True, reason=f"{runtime} behind {socket}; {_registered(settings, tree)}")


def _registered(settings: AgentSettings, tree: HostTree) -> str:
    directory = settings.runtime_proxy.directory
    if not directory:
        return "registration is left to others: [runtime_proxy] directory is empty"
    folder: Path = tree.path(directory)
    files = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    return f"hook servers of {folder}: {', '.join(files) or 'none'}"
