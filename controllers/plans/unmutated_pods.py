"""Pods that colocation profiles would have changed and did not, reported by an Event each."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from api.kube.objects import Pod
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.kinds import CLUSTER_COLOCATION_PROFILE, NAMESPACE, POD
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Writes, kind_name, reference
from controllers.webhooks.rules.profiles import selects
from controllers.webhooks.rules.unmutated import selection, unmutated


class UnmutatedSettings(ControllerSettings, frozen=True, kw_only=True):
    """Table `[controllers.unmutated_pods]`."""

    exempt_namespaces: tuple[str, ...] = ("kube-system", "kube-public", "kube-node-lease", "koord-system")
    """Namespaces that webhooks do not look at."""


class UnmutatedPods(Controller[UnmutatedSettings]):
    """Records Events; writes nothing else."""

    settings_type = UnmutatedSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (POD, NAMESPACE, CLUSTER_COLOCATION_PROFILE)

    def plan(self, view: View, now: float) -> Writes:
        """Return a warning for each due pod that lacks what its profiles give."""
        found = view.objects(CLUSTER_COLOCATION_PROFILE)
        profiles = [found[key] for key in sorted(found)]
        if not profiles:
            return Writes()
        labels = {key.name: item.metadata.labels for key, item in view.objects(NAMESPACE).items()}
        pods = view.objects(POD)
        everything = view.touched(CLUSTER_COLOCATION_PROFILE) or view.touched(NAMESPACE)
        exempt = frozenset(self.settings.exempt_namespaces)
        selected = []
        for key in sorted(pods) if everything else view.due(POD):
            pod = pods.get(key)
            if pod is None or key.namespace in exempt or pod.metadata.deletion_timestamp:
                continue
            of_namespace = labels.get(key.namespace, {})
            if any(selects(profile, pod.metadata.labels, of_namespace) for profile in profiles):
                selected.append(msgspec.convert(msgspec.to_builtins(pod), Pod))
        warnings = [
            Event(
                reference(POD, pods[Key(item.pod.metadata.namespace, item.pod.metadata.name)]),
                "ProfileNotApplied",
                item.message,
                "CheckProfiles",
                "Warning",
            )
            for item in unmutated(selected, profiles, labels, exempt)
        ]
        return Writes((), warnings)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return for each profile whether it selects the pod, which requirement fails, and what the pod lacks."""
        pod = view.objects(POD).get(key)
        if kind != kind_name(POD) or pod is None:
            return ()
        namespace = view.objects(NAMESPACE).get(Key("", key.namespace))
        labels = namespace.metadata.labels if namespace is not None else {}
        lines = []
        for name, profile in sorted(view.objects(CLUSTER_COLOCATION_PROFILE).items()):
            failed = selection(profile, pod.metadata.labels, labels)
            plain = msgspec.convert(msgspec.to_builtins(pod), Pod)
            found = next(iter(unmutated([plain], [profile], {key.namespace: labels})), None)
            if key.namespace in self.settings.exempt_namespaces:
                lines.append(f"profile {name}: does not apply: namespace {key.namespace} is exempt")
            elif failed:
                lines.append(f"profile {name}: does not apply: {failed}")
            else:
                lines.append(f"profile {name}: applies; the pod lacks {', '.join(found.lacks) if found else 'nothing'}")
        return lines
