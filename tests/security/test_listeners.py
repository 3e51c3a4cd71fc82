"""Every listener of every program: found in code, settings and options, and what it asks of other hosts.

A new listener, setting or option that is not in a table here fails; it says there what protects it.
"""

import ast
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from cluster.serving import ExposedError, Reply, Request, listen
from controllers.__main__ import main as manager
from controllers.cluster_page.settings import ClusterPageSettings
from controllers.descheduler.__main__ import main as descheduler
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.runtime.settings import ManagerSettings
from controllers.webhooks.settings import WebhookSettings
from controllers.yarn.__main__ import main as copilot
from controllers.yarn.settings import CopilotSettings
from detector.__main__ import main as detector
from koordlet.__main__ import main as koordlet
from koordlet.config import AgentSettings, MetricsSettings
from koordlet.runtime_proxy.__main__ import main as runtime_proxy
from koordlet.runtime_proxy.settings import ProxySettings
from koordlet.serving.settings import ServingSettings
from scheduler.__main__ import main as scheduler
from scheduler.profile import SchedulerSettings
from tests.security.doors import DOORS

ROOT = Path(__file__).parents[2]
PROGRAMS = ("api", "probes", "koordlet", "detector", "cluster", "controllers", "scheduler", "kubectl_koord")

OPENERS = frozenset(
    {"create_server", "add_insecure_port", "add_secure_port", "bind", "MetricsServer", "HTTPServer", "start_server"}
    | {"start_unix_server", "create_unix_server", "ThreadingHTTPServer", "serve_forever"}
)
OWN_SOCKET = "a socket of mode 0600 that only its owner may open"
LOOPBACK = "this host alone, whatever the settings say"
TLS = "TLS beyond loopback; refused without"
ALWAYS_TLS = "TLS on every address"
FOR_ALL = "health and metrics, which are for all"
OPENED = {
    "cluster/serving/listener.py": TLS,
    "cluster/twin/server.py": LOOPBACK,
    "controllers/external_metrics/serve.py": ALWAYS_TLS,
    "controllers/webhooks/server.py": ALWAYS_TLS,
    "koordlet/demo/service.py": LOOPBACK,
    "koordlet/metrics/server.py": FOR_ALL,
    "koordlet/runtime_proxy/hook_service.py": OWN_SOCKET,
    "koordlet/runtime_proxy/proxy_server.py": OWN_SOCKET,
    "koordlet/self_test/stressor.py": LOOPBACK,
    "koordlet/serving/server.py": TLS,
}
"""Files that open a listening socket, and who is let in."""

CLIENT = "connects, and does not listen"
SETTINGS = {
    "AgentSettings.kubelet.cri_socket": CLIENT,
    "AgentSettings.kubelet.endpoint": CLIENT,
    "AgentSettings.kubelet.pod_resources_socket": CLIENT,
    "AgentSettings.kubelet.read_only_port": CLIENT,
    "AgentSettings.metrics.address": FOR_ALL,
    "AgentSettings.metrics.port": FOR_ALL,
    "AgentSettings.nri.socket": CLIENT,
    "AgentSettings.runtime_proxy.registered_socket": CLIENT,
    "AgentSettings.runtime_proxy.socket": OWN_SOCKET,
    "AgentSettings.serving.address": TLS,
    "AgentSettings.serving.socket": OWN_SOCKET,
    "CopilotSettings.clusters.addresses": CLIENT,
    "ManagerSettings.external_metrics.address": ALWAYS_TLS,
    "ManagerSettings.external_metrics.port": ALWAYS_TLS,
    "ManagerSettings.page.port": LOOPBACK,
    "ManagerSettings.webhook.address": ALWAYS_TLS,
    "ManagerSettings.webhook.port": ALWAYS_TLS,
    "ProxySettings.socket": OWN_SOCKET,
}
OPTIONS = {
    "koord-descheduler run --address": FOR_ALL,
    "koord-descheduler run --port": FOR_ALL,
    "koord-manager run --address": FOR_ALL,
    "koord-manager run --port": FOR_ALL,
    "koord-runtime-proxy --koord-runtimeproxy-endpoint": OWN_SOCKET,
    "koord-runtime-proxy --remote-image-service-endpoint": CLIENT,
    "koord-runtime-proxy --remote-runtime-service-endpoint": CLIENT,
    "koord-scheduler run --address": TLS,
    "koord-scheduler run --health-address": FOR_ALL,
    "koord-scheduler run --port": TLS,
    "koord-yarn-copilot run --address": FOR_ALL,
    "koord-yarn-copilot run --port": FOR_ALL,
    "koordlet verdicts --socket": CLIENT,
}
WORDS = frozenset({"address", "addresses", "port", "socket", "endpoint", "listen"})
COMMANDS = {
    "koord-descheduler": descheduler,
    "koord-detector": detector,
    "koord-manager": manager,
    "koord-runtime-proxy": runtime_proxy,
    "koord-scheduler": scheduler,
    "koord-yarn-copilot": copilot,
    "koordlet": koordlet,
}


def names_called(tree: ast.AST) -> Iterator[str]:
    for found in ast.walk(tree):
        if isinstance(found, ast.Call):
            called = found.func
            yield called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_every_file_that_opens_a_listening_socket_is_known() -> None:
    found = set()
    for path in (path for program in PROGRAMS for path in sorted((ROOT / program).rglob("*.py"))):
        text = path.read_text()
        # The scheduler binds pods, and tables of columns.
        openers = OPENERS - {"bind"} if not ("import socket" in text or "socketserver" in text) else OPENERS
        if any(name in text for name in openers) and openers & set(names_called(ast.parse(text))):
            found.add(str(path.relative_to(ROOT)))
    assert found == set(OPENED)


def structs_of(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Settings tables in a type, however they are wrapped."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in typing.get_args(kind):
        if not isinstance(inner, (str, int, msgspec.Meta, types.EllipsisType)):
            yield from structs_of(inner)


def settings_of(kind: type[msgspec.Struct], prefix: str, seen: frozenset[type] = frozenset()) -> Iterator[str]:
    for name, hint in typing.get_type_hints(kind).items():
        if WORDS & set(name.split("_")):
            yield f"{prefix}.{name}"
        for inner in structs_of(hint):
            if inner not in seen:
                yield from settings_of(inner, f"{prefix}.{name}", seen | {inner})


def test_every_setting_of_an_address_is_known() -> None:
    roots = (AgentSettings, CopilotSettings, ManagerSettings, ProxySettings, SchedulerSettings)
    assert {found for root in roots for found in settings_of(root, root.__name__)} == set(SETTINGS)


def options_of(command: click.Command, prefix: str) -> Iterator[str]:
    for parameter in command.params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            if WORDS & set(option.strip("-").split("-")):
                yield f"{prefix} {option}"
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from options_of(inner, f"{prefix} {name}")


def test_every_option_of_an_address_is_known() -> None:
    assert {found for name, command in COMMANDS.items() for found in options_of(command, name)} == set(OPTIONS)


class Nothing:
    """Answers with nothing."""

    def answer(self, _request: Request) -> Reply:
        return Reply(200, b"")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.com", "", "127.0.0.1.example.com"])
def test_what_listens_for_others_is_refused_without_tls(address: str) -> None:
    with pytest.raises(ExposedError, match="TLS"):
        listen(Nothing(), address, 0)
    if address:
        with pytest.raises(msgspec.ValidationError, match="without TLS"):
            msgspec.convert({"address": f"{address}:0"}, ServingSettings)


@pytest.mark.parametrize(
    ("name", "kind"), [("webhooks", WebhookSettings), ("external_metrics", ExternalMetricsSettings)]
)
def test_what_the_api_server_calls_has_no_way_without_tls(
    name: str, kind: type[msgspec.Struct], tmp_path: Path
) -> None:
    assert not {field for field in kind.__struct_fields__ if "tls" in field or "insecure" in field}
    with DOORS[name](tmp_path) as opened:
        assert opened.door.context is not None


def test_the_cluster_page_has_no_address_to_choose_and_the_agents_is_this_host() -> None:
    assert "address" not in ClusterPageSettings.__struct_fields__
    assert MetricsSettings().address == "127.0.0.1"


def test_a_scheduler_that_would_serve_others_ends_before_it_does() -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(
        scheduler, ["--server", "http://127.0.0.1:1", "run", "--no-leader-elect", "--address", "0.0.0.0", "--port", "0"]
    )
    assert done.exit_code == 2
    assert "--tls-cert" in done.output
