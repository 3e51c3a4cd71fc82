"""`koordlet doctor`: capabilities of this host."""

import json
import sys
from pathlib import Path

import click

from api.plugin import PluginError
from api.settings import SettingsError
from koordlet.commands.startup import UNSUPPORTED_HOST, USAGE_ERROR, config_option, die, settings_of


@click.command()
@config_option
@click.option("--node", default="", envvar="NODE_NAME", help="Name of this node [$NODE_NAME, then the host's name].")
@click.option("--kubeconfig", default="", help="How to reach the API server, as for `koordlet run`.")
@click.option("--json", "as_object", is_flag=True, help="One JSON object instead of lines.")
def doctor(config: Path | None, node: str, kubeconfig: str, as_object: bool) -> None:
    """List the capabilities of this host. Each no has its reason and its remedy.

    Exit 0 if cpu interference can be measured.
    """
    from koordlet.control.acting import who_may_act
    from koordlet.control.hook_findings import hook_findings
    from koordlet.doctor import Finding, as_json, examine, has_cpu_blame
    from koordlet.host.files import HostTree

    settings = settings_of(config)
    try:
        acting = Finding("acting", available=True, reason=who_may_act(settings))
        findings = examine(settings, node=node, kubeconfig=kubeconfig)
        in_cluster = all(each.name != "cluster" for each in findings)
        hooks = hook_findings(settings, HostTree(Path(settings.root)), in_cluster=in_cluster)
        findings += [Finding(each.name, each.available, each.reason, each.remedy) for each in hooks]
        findings.append(acting)
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
