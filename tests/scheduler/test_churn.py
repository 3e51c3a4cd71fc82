"""Pods that come, are placed or refused, and go leave nothing behind in the engine."""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from msgspec.structs import replace

from api.kube.objects import Pod
from scheduler.engine import Engine
from scheduler.framework import Action
from scheduler.gang.spec import LIGHT_MINIMUM_LABEL, LIGHT_NAME_LABEL
from tests.schedobjects import engine, node, pod

ALIVE = 30
"""Pods at any time."""
WARM = 700
"""Pods after which every bound and every sweep has been met."""
OPAQUE = (type, FunctionType, MethodType, ModuleType, str, bytes, int, float, type(None))


def census(root: Any) -> Counter[str]:
    """Number of elements of all containers within an object, by the attribute that holds them."""
    found: Counter[str] = Counter()
    seen: dict[int, Any] = {}
    waiting = [("", root)]
    while waiting:
        name, each = waiting.pop()
        if isinstance(each, OPAQUE) or id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, dict):
            found[name] += len(each)
            waiting += ((name, item) for item in chain(list(each), list(each.values())))
        elif isinstance(each, list | tuple | set | frozenset | deque):
            found[name] += len(each)
            waiting += ((name, item) for item in each)
        elif isinstance(each, np.ndarray):
            found[name] += each.size
        else:
            kind = type(each).__name__
            waiting += ((f"{kind}.{attribute}", getattr(each, attribute, None)) for attribute in attributes(each))
    return found


def attributes(each: Any) -> Iterable[str]:
    slots = (getattr(kind, "__slots__", ()) for kind in type(each).__mro__)
    names = chain(getattr(each, "__dict__", ()), *((one,) if isinstance(one, str) else one for one in slots))
    return {name for name in names if name not in ("__dict__", "__weakref__")}


def a_pod(number: int) -> Pod:
    """A pod of a job, with terms, of its own: every tenth is too large, every seventh belongs to a gang of one."""
    spread = {
        "maxSkew": 5,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"job-name": f"j{number}"}},
    }
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": f"j{number}"}}}
    gang = {LIGHT_NAME_LABEL: f"g{number}", LIGHT_MINIMUM_LABEL: "1"}
    return pod(
        f"p{number}",
        {"cpu": "100" if number % 10 == 0 else "100m", "memory": "64Mi"},
        labels={"app": "web", "job-name": f"j{number}", **(gang if number % 7 == 0 else {})},
        owner={"kind": "Job", "name": f"j{number}", "uid": f"job-{number}", "apiVersion": "batch/v1"},
        topologySpreadConstraints=[spread],
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}] if number % 5 == 0 else [],
        tolerations=[{"key": "a", "operator": "Exists"}],
    )


def churn(made: Engine, known: deque[Pod], first: int, last: int) -> None:
    """Make pods one by one, each with an attempt and an end of the oldest."""
    for number in range(first, last):
        now = 2.0 * number
        item = a_pod(number)
        made.on_pod(Action.ADD, item, now)
        while made.schedule_one(now) is not None:
            while made.bindings:
                binding = made.bindings.popleft()
                made.bound(binding, now)
                bound = binding.placed.info.pod
                item = replace(bound, spec=replace(bound.spec, node_name=binding.placed.node))
                made.on_pod(Action.UPDATE, item, now)
        known.append(item)
        if len(known) > ALIVE:
            made.on_pod(Action.DELETE, known.popleft(), now)
        made.tick(now)
        made.outcomes.clear()
        made.writes.clear()


def peaks(made: Engine, known: deque[Pod], first: int) -> Counter[str]:
    """Churn, and return the largest number that each container had."""
    found: Counter[str] = Counter()
    step = WARM // 5
    for begin in range(first, first + WARM, step):
        churn(made, known, begin, begin + step)
        found |= census(made)
    return found


def test_pods_that_ended_leave_nothing_behind() -> None:
    made = engine([node(f"n{number}") for number in range(4)])
    known: deque[Pod] = deque()
    churn(made, known, 0, WARM)
    # What is let go of in sweeps goes up and down: the peaks of two stretches are compared.
    before, after = peaks(made, known, WARM), peaks(made, known, 2 * WARM)
    assert len(made.snapshot.pods) > ALIVE // 2
    grown = {name: (before[name], count) for name, count in after.items() if count > 1.3 * before[name] + WARM / 10}
    assert not grown
