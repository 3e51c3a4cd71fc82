"""Moves pods from nodes that are loaded above a threshold to those below another, by measured usage."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec

from api.kube.meta import LabelSelector
from api.kube.objects import Node, Pod
from api.kube.resources import Resources
from api.kube.selectors import label_selector_matches
from api.kube.times import duration_seconds
from cluster.resources import Key
from controllers.descheduler.cluster_view import is_prod
from controllers.descheduler.node_load import (
    AnomalyDetector,
    Group,
    Levels,
    Load,
    above,
    group_of,
    level,
    load_of,
    thresholds,
    usage_score,
)
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Anomaly(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Rounds until a node counts as anomalous, and as sound again."""

    timeout: str = "1m"
    consecutive_abnormalities: Annotated[int, msgspec.Meta(ge=1)] = 5
    consecutive_normalities: Annotated[int, msgspec.Meta(ge=1)] = 3


class Pool(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Nodes that share thresholds."""

    name: str = ""
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool = False
    high_thresholds: dict[str, Percent] = {}
    low_thresholds: dict[str, Percent] = {}
    prod_high_thresholds: dict[str, Percent] = {}
    prod_low_thresholds: dict[str, Percent] = {}
    resource_weights: dict[str, int] = {}
    anomaly_condition: Anomaly | None = Anomaly()


class LowNodeLoadArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments; the thresholds of the top level are a pool of their own."""

    number_of_nodes: int = 0
    """Act only if more nodes than this are low."""
    node_metric_expiration_seconds: float = 180.0
    use_deviation_thresholds: bool = False
    high_thresholds: dict[str, Percent] = {}
    low_thresholds: dict[str, Percent] = {}
    prod_high_thresholds: dict[str, Percent] = {}
    prod_low_thresholds: dict[str, Percent] = {}
    resource_weights: dict[str, int] = {}
    anomaly_condition: Anomaly | None = Anomaly()
    detector_cache_timeout: str = "5m"
    node_pools: list[Pool] = []

    @property
    def pools(self) -> list[Pool]:
        """All pools, the implicit one first."""
        implicit = Pool(
            name="__default_node_pool__",
            use_deviation_thresholds=self.use_deviation_thresholds,
            high_thresholds=self.high_thresholds,
            low_thresholds=self.low_thresholds,
            prod_high_thresholds=self.prod_high_thresholds,
            prod_low_thresholds=self.prod_low_thresholds,
            resource_weights=self.resource_weights,
            anomaly_condition=self.anomaly_condition,
        )
        stated = self.high_thresholds or self.prod_high_thresholds
        return [*([implicit] if stated else []), *self.node_pools]


class LowNodeLoad(Plugin[LowNodeLoadArgs]):
    """Balances measured load.

    Source: Koordinator's LowNodeLoad.
    """

    name = "LowNodeLoad"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = LowNodeLoadArgs

    def __init__(self, args: LowNodeLoadArgs) -> None:
        super().__init__(args)
        self._detectors: dict[tuple[str, bool], AnomalyDetector] = {}
        self._cache_seconds = duration_seconds(args.detector_cache_timeout) or 300.0

    def run(self, session: Session) -> None:
        """Balance pool by pool; a node that was over-loaded in one is not looked at in later ones with a selector."""
        self._forget(session.now)
        handled: set[str] = set()
        for pool in self.args.pools:
            chosen = [
                node
                for node in session.nodes
                if pool.node_selector is None
                or (node.name not in handled and label_selector_matches(pool.node_selector, node.metadata.labels))
            ]
            handled |= self._balance(session, pool, chosen)

    def _balance(self, session: Session, pool: Pool, nodes: Sequence[Node]) -> set[str]:
        found = (
            load_of(session.cluster, node, session.now, self.args.node_metric_expiration_seconds) for node in nodes
        )
        loads = [each for each in found if each is not None]
        levels = _levels(pool, loads)
        groups = {each.node.name: group_of(each, levels[each.node.name]) for each in loads}
        by_group = {group: [each for each in loads if groups[each.node.name] is group] for group in Group}
        for each in loads:
            if not above(each.used, levels[each.node.name].low):
                self._reset(each.node.name, prod=False)
        low, both, prod_low = by_group[Group.LOW], by_group[Group.BOTH_LOW], by_group[Group.PROD_LOW]
        high, prod_high = by_group[Group.HIGH], by_group[Group.PROD_HIGH]
        anomalous = self._anomalous(high, pool, session.now, prod=False)
        prod_anomalous = self._anomalous(prod_high, pool, session.now, prod=True)
        lows = len(low) + len(both) + len(prod_low)
        if not lows or lows <= self.args.number_of_nodes or len(low) + len(both) == len(loads):
            return set()
        over = [each.node.name for each in (*high, *prod_high)]
        room = _room([*low, *both], levels, prod=False)
        self._relieve(session, pool, anomalous, [*low, *both], levels, room, over, prod=False)
        prod_room = _prod_room(prod_low, both, levels, room)
        self._relieve(session, pool, prod_anomalous, [*prod_low, *both], levels, prod_room, over, prod=True)
        return {each.node.name for each in (*anomalous, *prod_anomalous)}

    def _relieve(
        self,
        session: Session,
        pool: Pool,
        sources: Sequence[Load],
        targets: Sequence[Load],
        levels: Mapping[str, Levels],
        room: Resources,
        over: Sequence[str],
        *,
        prod: bool,
    ) -> None:
        """Move pods from the fullest nodes until they are below their level, or there is no more room."""
        if not targets:
            return
        weights = _weights(pool, prod=prod)
        assumed = {each.node.name: dict(each.prod_used if prod else each.used) for each in targets}
        for load in sorted(
            sources, key=lambda each: -usage_score(each, each.prod_used if prod else each.used, weights)
        ):
            own = levels[load.node.name]
            limit = own.prod_high if prod else own.high
            used = dict(load.prod_used if prod else load.used)
            excess = {name: used.get(name, 0) - limit[name] for name in above(used, limit)}
            here = session.cluster.pods_by_node.get(load.node.name, ())
            candidates = [pod for pod in here if (is_prod(pod) or not prod) and not session.refusal(pod)]
            for pod in session.in_order(candidates, load.pods, excess, weights):
                over_now = above(used, limit)
                if not over_now or any(room.get(name, 0) <= 0 for name in over_now):
                    break
                usage = load.pods.get(Key(pod.metadata.namespace, pod.metadata.name))
                target = self._target(session, pod, usage, targets, assumed, levels, prod=prod)
                if self.args.node_fit and target is None:
                    continue
                kind = "prod pods use" if prod else "the node uses"
                text = ", ".join(_too_much(name, load, used, limit) for name in over_now)
                if not session.evict(pod, f"{kind} {text}", avoid=over):
                    continue
                for name, amount in (usage or {}).items():
                    used[name] = used.get(name, 0) - amount
                    room[name] = room.get(name, 0) - amount
                    if target is not None:
                        assumed[target][name] = assumed[target].get(name, 0) + amount
                used["pods"], room["pods"] = used.get("pods", 0) - 1, room.get("pods", 0) - 1
            detector = self._detectors[load.node.name, prod]
            if above(used, limit):
                detector.mark(abnormal=False, now=session.now)
            else:
                detector.reset()

    def _target(
        self,
        session: Session,
        pod: Pod,
        usage: Resources | None,
        targets: Sequence[Load],
        assumed: Mapping[str, Resources],
        levels: Mapping[str, Levels],
        *,
        prod: bool,
    ) -> str | None:
        """Return a node that takes a pod without going above its own high level."""
        if usage is None:
            return None
        for node in session.destinations(pod, [each.node for each in targets]):
            limit = levels[node.name].prod_high if prod else levels[node.name].high
            if all(assumed[node.name].get(name, 0) + usage.get(name, 0) <= most for name, most in limit.items()):
                return node.name
        return None

    def _anomalous(self, loads: Sequence[Load], pool: Pool, now: float, *, prod: bool) -> list[Load]:
        condition = pool.anomaly_condition or Anomaly(consecutive_abnormalities=1)
        found = []
        for each in loads:
            detector = self._detectors.get((each.node.name, prod))
            if detector is None:
                seconds = duration_seconds(condition.timeout) or 60.0
                detector = self._detectors[each.node.name, prod] = AnomalyDetector(
                    seconds, condition.consecutive_abnormalities, condition.consecutive_normalities
                )
            if detector.mark(abnormal=True, now=now):
                found.append(each)
        return found

    def _reset(self, node: str, *, prod: bool) -> None:
        detector = self._detectors.get((node, prod))
        if detector is not None:
            detector.reset()

    def _forget(self, now: float) -> None:
        for key, detector in list(self._detectors.items()):
            if now - detector.used_seconds > self._cache_seconds:
                del self._detectors[key]


def _too_much(name: str, load: Load, used: Resources, limit: Resources) -> str:
    have = load.capacity.get(name, 0) or 1
    return f"{name} {100 * used[name] / have:.0f} % > {100 * limit[name] / have:.0f} %"


def _levels(pool: Pool, loads: Sequence[Load]) -> dict[str, Levels]:
    deviation = pool.use_deviation_thresholds
    low, high = thresholds(pool.low_thresholds, pool.high_thresholds, loads, deviation=deviation)
    prod_low, prod_high = thresholds(
        pool.prod_low_thresholds, pool.prod_high_thresholds, loads, deviation=deviation, prod=True
    )
    return {
        each.node.name: Levels(
            level(low, each.capacity),
            level(high, each.capacity),
            level(prod_low, each.capacity),
            level(prod_high, each.capacity),
        )
        for each in loads
    }


def _weights(pool: Pool, *, prod: bool) -> dict[str, int]:
    names = (pool.prod_high_thresholds if prod else pool.high_thresholds).keys()
    return {**dict.fromkeys(("cpu", "memory", *names), 1), **pool.resource_weights}


def _room(loads: Sequence[Load], levels: Mapping[str, Levels], *, prod: bool) -> Resources:
    found: Resources = {}
    for each in loads:
        used = each.prod_used if prod else each.used
        limits = levels[each.node.name].prod_high if prod else levels[each.node.name].high
        for name, limit in limits.items():
            found[name] = found.get(name, 0) + limit - used.get(name, 0)
    return found


def _prod_room(
    prod_low: Sequence[Load], both: Sequence[Load], levels: Mapping[str, Levels], rest: Resources
) -> Resources:
    """Room for prod pods: on nodes low for them alone, and on those low for all as far as those have room left."""
    own, shared = _room(prod_low, levels, prod=True), _room(both, levels, prod=True)
    return {
        name: own.get(name, 0) + min(shared.get(name, 0), max(rest.get(name, shared.get(name, 0)), 0))
        for name in own.keys() | shared.keys()
    }
