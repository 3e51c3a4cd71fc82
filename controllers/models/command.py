"""`koord-manager train-models`: the nightly job from collected profiles to models in WorkloadProfiles."""

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import click
import msgspec

from api.crds import DeliveredModels, WorkloadProfile, WorkloadProfileSpec, WorkloadReference
from api.kube.meta import ObjectMeta
from api.kube.workload import Workload, workload_named
from cluster import Client, ClusterError, Key, merge_patch
from cluster.command_line import Chosen, die
from controllers.kinds import WORKLOAD_PROFILE
from controllers.models.training import Decision, Outcome, decide
from controllers.plans.workload_profiles import MANAGED_BY
from controllers.recommend.profiles import ProfileError, files_of
from detector.models.fit import FitPolicy
from detector.models.profiles import Columns, ProfilesRefused, read_profiles

CANNOT = 3


class Options(Protocol):
    """What every command of the manager is given."""

    @property
    def cluster(self) -> Chosen:
        """The API server to use."""


@click.command("train-models")
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A profile, or a folder with profiles of many nodes; may be repeated.",
)
@click.option("--deliver", is_flag=True, help="Write what was decided into WorkloadProfiles; without, only tell.")
@click.option("--min-samples", default=1000, show_default=True, help="Workloads with fewer rows get no models.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds and profiles give equal models.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form.")
@click.pass_obj
def train_models(
    chosen: Options, sources: tuple[Path, ...], deliver: bool, min_samples: int, seed: int, output: str
) -> None:
    """Train anomaly models from profiles; deliver the good ones, withdraw those that are not any more.

    Models are delivered only if they find more slow harm, planted into later rows, than a threshold with no more
    false verdicts, or no more time under them, does (docs/models.md). With --deliver the present models are read from
    the cluster and tried, too.

    \b
    koord-manager train-models --from /srv/lake
    koord-manager train-models --from /srv/lake --deliver
    """
    try:
        columns = read_profiles(files_of(sources))
    except ImportError as error:
        die(f"reading profiles needs pyarrow ({error})", hint="pip install 'koord[analysis]'", code=CANNOT)
    except (ProfileError, ProfilesRefused) as error:
        die(str(error), hint="give the profiles that agents write ([profiles])")
    policy = FitPolicy(min_samples=min_samples, seed=seed)
    now = time.time()
    try:
        if not deliver:
            decisions = _decisions(columns, {}, policy, now)
        else:
            with chosen.cluster.client() as client:
                known = _profiles(client)
                present = {name: each.status.models for name, each in known.items() if each.status.models}
                decisions = _decisions(columns, present, policy, now)
                failed = sum(not _written(client, known, each) for each in decisions)
    except ImportError as error:
        die(f"training needs scikit-learn ({error})", hint="pip install 'koord[analysis]'", code=CANNOT)
    except ClusterError as error:
        die(f"API server: {error}")
    for each in decisions:
        click.echo(
            msgspec.json.encode(each) if output == "json" else f"{each.outcome:8} {each.workload}: {each.reason}"
        )
    counts = Counter(each.outcome for each in decisions)
    summary = ", ".join(f"{counts[each]} {each}" for each in Outcome if counts[each])
    click.echo(f"{len(decisions)} workloads: {summary or 'no rows'}", err=True)
    if deliver and failed:
        click.echo(f"{failed} profiles were not written", err=True)
        sys.exit(1)


def _decisions(
    columns: Columns, present: Mapping[str, DeliveredModels], policy: FitPolicy, now: float
) -> list[Decision]:
    """Decide on all workloads behind a progress bar."""
    with click.progressbar(length=1, label="workloads", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def told(done: int, every: int) -> None:
            bar.length = every
            bar.update(done - bar.pos)

        return decide(columns, present, policy, now, progress=told)


def _profiles(client: Client) -> dict[str, WorkloadProfile]:
    found = {}
    for item in client.list(WORKLOAD_PROFILE).items:
        profile = item.value
        if profile is None:
            continue
        named = profile.spec.workload
        found[Workload(profile.metadata.namespace, named.kind, named.name).path] = profile
    return found


def _written(client: Client, known: Mapping[str, WorkloadProfile], decision: Decision) -> bool:
    """Write what a decision changes; return whether that was possible."""
    if decision.outcome not in (Outcome.DELIVER, Outcome.WITHDRAW):
        return True
    workload = workload_named(decision.workload)
    if workload is None:
        return True
    try:
        key = Key(workload.namespace, workload.profile_name)
        if decision.workload not in known:
            client.create(WORKLOAD_PROFILE, _made(workload))
        client.patch(
            WORKLOAD_PROFILE, key, merge_patch({"status": {"models": _wire(decision.models)}}), subresource="status"
        )
    except ClusterError as error:
        click.echo(f"{decision.workload}: not written: {error}", err=True)
        return False
    return True


def _wire(models: DeliveredModels | None) -> dict[str, Any] | None:
    if models is None:
        return None
    # A merge patch leaves what it does not name: figures of the models before must not stay beside these.
    empty = dict.fromkeys(("recall", "plainRecall", "falseAlarms", "rows", "trainedTime"))
    return {**empty, **msgspec.to_builtins(models)}


def _made(workload: Workload) -> dict[str, Any]:
    meta = ObjectMeta(name=workload.profile_name, namespace=workload.namespace, labels=MANAGED_BY)
    spec = WorkloadProfileSpec(workload=WorkloadReference(kind=workload.kind, name=workload.name), container="")
    kind = {"apiVersion": WORKLOAD_PROFILE.api_version, "kind": WORKLOAD_PROFILE.kind}
    return {**kind, **msgspec.to_builtins(WorkloadProfile(metadata=meta, spec=spec))}
