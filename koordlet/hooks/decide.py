"""Decisions of all rules on one pod or container: composed, with the problems of rules that could not follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.plugin import discover
from api.settings import SettingsError
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources, merged
from koordlet.hooks.rule import Rule, RuleProblem
from koordlet.identity.pods import PodContainer, PodFacts
from koordlet.strategies.view import KubeQoS


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pod or container must run with."""

    resources: ContainerResources = NOTHING
    problems: Mapping[str, str] = field(default_factory=dict)
    """`namespace/pod/rule`, or `namespace/pod/container/rule`, to what the rule could not follow."""


class HookRules:
    """The rules whose gates are open, in the order in which they decide. Safe for several threads."""

    def __init__(self, features: Mapping[str, bool] | None = None, *, only_reconciled: bool = False) -> None:
        """`features` replace defaults of gates; `only_reconciled` leaves out what strategies keep in effect.

        Raises SettingsError for a gate that no rule has.
        """
        kinds = discover_rules()
        known = {gate for kind in kinds.values() for gate in kind.features}
        for gate in features or {}:
            if gate not in known:
                problem = f"no feature gate {gate!r}; there are {', '.join(sorted(known))}"
                raise SettingsError("settings", "[hooks.features]", problem)
        gates = {gate: default for kind in kinds.values() for gate, default in kind.features.items()}
        gates.update(features or {})
        chosen = [
            (kind.order, name, kind)
            for name, kind in kinds.items()
            if all(gates[gate] for gate in kind.features) and (kind.reconciled or not only_reconciled)
        ]
        self.rules: dict[str, Rule] = {name: kind() for _, name, kind in sorted(chosen, key=lambda choice: choice[:2])}

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> Decision:
        """Return what one container must run with; never raises."""
        return self._decided(f"{pod.name}/{container.name}", lambda rule: rule.container(pod, container, node))

    def pod(self, pod: PodFacts, node: NodeFacts) -> Decision:
        """Return what a pod as a whole must run with; never raises."""
        return self._decided(pod.name, lambda rule: rule.pod(pod, node))

    def directory(self, kube_qos: KubeQoS, node: NodeFacts) -> Decision:
        """Return what the kubelet's directory of a class must run with; never raises."""
        return self._decided(kube_qos.value, lambda rule: rule.directory(kube_qos, node))

    def _decided(self, name: str, asked: Callable[[Rule], ContainerResources]) -> Decision:
        resources, problems = NOTHING, {}
        for rule_name, rule in self.rules.items():
            try:
                resources = merged(resources, asked(rule))
            except RuleProblem as problem:
                problems[f"{name}/{rule_name}"] = str(problem)
            except Exception as error:  # noqa: BLE001 - one pod's oddity never costs another rule or pod
                problems[f"{name}/{rule_name}"] = f"{type(error).__name__}: {error}"
        return Decision(resources, problems)


def discover_rules() -> dict[str, type[Rule]]:
    """Map name to class: the modules of `rules/`, and entry points of `koord.hooks`."""
    import koordlet.hooks.rules as package

    return discover(package, Rule, "koord.hooks")
