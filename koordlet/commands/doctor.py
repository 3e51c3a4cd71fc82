"""`koordlet doctor`: capabilities of this host."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from api.plugin import PluginError, Unsupported
from api.settings import SettingsError
from koordlet.commands.startup import UNSUPPORTED_HOST, USAGE_ERROR, config_option, die, require_root, settings_of

if TYPE_CHECKING:
    from koordlet.config import AgentSettings


@click.command()
@config_option
@click.option("--node", default="", envvar="NODE_NAME", help="Name of this node [$NODE_NAME, then the host's name].")
@click.option("--kubeconfig", default="", help="How to reach the API server, as for `koordlet run`.")
@click.option("--json", "as_object", is_flag=True, help="One JSON object instead of lines.")
@click.option("--self-test", is_flag=True, help="Move each counter by a stressor and compare; takes ten seconds.")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/var/tmp"),  # noqa: S108 - a default of a flag
    show_default=True,
    help="With --self-test: where a file of 160 MiB may be for that long, on a disk.",
)
def doctor(config: Path | None, node: str, kubeconfig: str, as_object: bool, self_test: bool, directory: Path) -> None:
    """List the capabilities of this host. Each no has its reason and its remedy.

    Exit 0 if cpu interference can be measured, on a kernel that is not older than those of the tests.

    With --self-test, stressors in cgroups of their own move each counter instead, for which root is needed; exit 0 if
    every counter that this host has says what its stressor did.
    """
    if self_test:
        _test(settings_of(config), directory, as_object=as_object)
    from koordlet.control.acting import who_may_act
    from koordlet.control.hook_findings import hook_findings
    from koordlet.doctor import Finding, as_json, examine, has_cpu_blame
    from koordlet.host.files import HostTree
    from koordlet.kube.kept_spec import KeptSpec
    from koordlet.kubelet.opening import node_name

    settings = settings_of(config)
    try:
        findings = examine(settings, node=node, kubeconfig=kubeconfig)
        in_cluster = all(each.name != "cluster" for each in findings)
        hooks = hook_findings(settings, HostTree(Path(settings.root)), in_cluster=in_cluster)
        findings += [Finding(each.name, each.available, each.reason, each.remedy) for each in hooks]
        kept = KeptSpec(Path(settings.enforcer.state_dir), node_name(node or settings.cluster.node_name))
        spec = kept.load() if in_cluster else None
        source = " (by the NodeSLO that the agent followed last)" if spec is not None else ""
        findings.append(Finding("acting", available=True, reason=who_may_act(settings, spec) + source))
    except (SettingsError, PluginError) as error:
        die(str(error), code=USAGE_ERROR)
    if as_object:
        click.echo(json.dumps(as_json(findings)))
    else:
        for finding in findings:
            mark = click.style("yes", fg="green") if finding.available else click.style("no ", fg="red")
            click.echo(f"{mark}  {finding.name:<13} {finding.reason}")
            if finding.remedy and not finding.available:
                click.echo(f"     {'':<13} -> {finding.remedy}")
    sys.exit(0 if has_cpu_blame(findings) else UNSUPPORTED_HOST)


def _test(settings: "AgentSettings", directory: Path, *, as_object: bool) -> NoReturn:
    from koordlet.self_test.results import Status
    from koordlet.self_test.trial import Trial

    require_root()
    try:
        results = Trial(settings, directory).run()
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy, code=UNSUPPORTED_HOST)
    except OSError as error:
        die(f"cgroups for the self-test: {error}", hint="end it on a node that manages its cgroups alone")
    if as_object:
        rows = [
            {
                "name": each.name,
                "status": each.status,
                "unit": each.unit,
                "measured": _finite(each.measured),
                "low": _finite(each.low),
                "high": _finite(each.high),
                "reason": each.reason or None,
                "remedy": each.remedy or None,
            }
            for each in results
        ]
        click.echo(json.dumps({"schema": "koord.self-test/v1", "results": rows}))
    else:
        colours = {Status.RIGHT: "green", Status.WRONG: "red", Status.ABSENT: "yellow"}
        for each in results:
            mark = click.style(f"{each.status:<6}", fg=colours[each.status])
            figures = "" if each.status is Status.ABSENT else f"measured {each.measured:.6g}, expected {each.expected}"
            click.echo(f"{mark}  {each.name:<16} {figures or each.reason}")
            if figures and each.reason:
                click.echo(f"        {'':<16} {each.reason}")
            if each.remedy:
                click.echo(f"        {'':<16} -> {each.remedy}")
    sys.exit(1 if any(each.status is Status.WRONG for each in results) else 0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
