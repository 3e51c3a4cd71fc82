"""The runtime hooks of a running agent: the reconciler as a source of intents, the NRI plugin, and what both know.

A best-effort container that is born under suppression starts with its neighbours' CPUs. The reconciler then asks, as
protocol state below the suppression, for the CPUs that it has without it: so the end of the suppression widens it.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from math import ceil
from typing import TYPE_CHECKING

from api.cpuset import format_cpuset
from api.frame import CgroupInfo
from api.intents import Intent, Knob, Setting, Strength
from koordlet.config import AgentSettings
from koordlet.control.birth_writer import BirthWriter
from koordlet.control.control_loop import ControlLoop, HookFigures
from koordlet.control.node_view import NodeViewBuilder
from koordlet.enforcer.lifecycle import open_knobs
from koordlet.hooks.decide import HookRules
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.node_reader import NodeFactsReader
from koordlet.hooks.rdma_nodes import rdma_nodes
from koordlet.hooks.reconciler import STRATEGY, Reconciler
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from koordlet.identity.pods import PodTable, PodTableOf
from koordlet.tick import Tick
from koordlet.topology.cpu_state import CpuStateReader

if TYPE_CHECKING:
    from koordlet.nri.plugin import AwaitPod, Plugin
    from koordlet.nri.runtime_link import RuntimeLink

_log = logging.getLogger(__name__)

ASK_SECONDS = 10.0
"""Time within which a setting that stays the same and is not in effect is asked for again, as in Koordinator. One in
effect is carried on."""
_IDENTITIES = (Knob.CPU_BVT, Knob.CPU_IDLE)
"""Knobs of a pod's cgroup that a strategy keeps and no runtime sets."""
_MOST_BIRTHS = 4096
_UNSEEN_TICKS = 60
"""Ticks after which a container that was told of at its birth and never seen is forgotten."""


class RuntimeHooks:
    """Source of intents (see `ControlLoop.sources`) and state for those that answer runtimes; `close` ends the NRI
    plugin."""

    silent: Collection[str]
    """The reconciler, before the first table of pods."""

    def __init__(
        self,
        reconciler: Reconciler | None,
        pods: PodTableOf,
        facts_of: Callable[[PodTable], NodeFacts],
        actions: Callable[[], Mapping[str, Mapping[Knob, str]]],
        holds: Callable[[Setting], bool],
        ask_now: Callable[[Sequence[Setting]], None],
    ) -> None:
        """Without a reconciler nothing is asked for; `actions` are the values of actions in effect, by cgroup; `holds`
        says whether protocol state is in effect, or below an action; `ask_now` has settings applied before the next
        tick, and may wait for that."""
        self.silent = (STRATEGY,)
        self.reconciler = reconciler
        self.pods = pods
        self.actions = actions
        self.plugins: dict[str, Plugin] = {}
        """Those that answer a runtime, by mode."""
        self.link: RuntimeLink | None = None
        """The way to the runtime's NRI."""
        self.may_ask: Callable[[float], bool] = lambda _now_seconds: True
        """Whether protocol state may be asked for at a monotonic second: what pods run with follows from the NodeSLO,
        too."""
        self._facts_of = facts_of
        self._holds = holds
        self._births_now = BirthWriter(ask_now)
        self.await_pod: "AwaitPod | None" = None  # noqa: UP037 - protobuf is not imported for a name
        """Of the source of pods: for a pod that starts before the table has it."""
        self._problems: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._births: dict[str, int] = {}
        self._identities: dict[str, tuple[list[Setting], int]] = {}
        """By path of a pod that starts, and the ticks since; until the tick sees it."""
        self._exit = ExitStack()
        self._asked: tuple[Sequence[Setting], Sequence[Setting]] = ((), ())
        self._asked_seconds = 0.0
        self._next = 0
        """Place in `_asked` from which on the next tick looks."""

    def intents(self, tick: Tick) -> Sequence[Intent]:
        """Return what running pods must have where that changed; else the part that is not in effect, in turns, and
        silence about the rest. Silent before pods and the NodeSLO are known, too.
        """
        pods, cgroups = self.pods(), tick.window.cgroups
        self.silent = (STRATEGY,)
        now = tick.window.last.monotonic_ns / 1e9
        if self.reconciler is None or pods.generation == 0 or not self.may_ask(now):
            return ()
        settings = self.reconciler.settings(pods, cgroups)
        self._report(self.reconciler.problems)
        widened = self._widened(pods, cgroups)
        if settings is self._asked[0] and widened == self._asked[1]:
            return self._lacking(now)
        self._asked, self._asked_seconds = (settings, widened), now
        self.silent = ()
        return (*settings, *widened)

    def _lacking(self, now: float) -> Sequence[Setting]:
        """What is not in effect, because it was refused, put off or given up; a part of all settings in each tick."""
        asked = [*self._asked[0], *self._asked[1]]
        share = min(max(now - self._asked_seconds, 0.0) / ASK_SECONDS, 1.0)
        self._asked_seconds = now
        start, count = self._next, ceil(len(asked) * share)
        self._next = (start + count) % max(len(asked), 1)
        return [one for one in (asked + asked)[start : start + count] if not self._holds(one)]

    def born_suppressed(self, path: str) -> None:
        """Take the path of a container that starts with CPUs of a suppression; any thread may call."""
        with self._lock:
            if len(self._births) < _MOST_BIRTHS:
                self._births[path] = 0

    def born_with(self, path: str, values: Mapping[Knob, str]) -> None:
        """Give the cgroup of a pod that starts its scheduling identity, before it has a process; any thread may call.

        Where a step hangs, the pod starts without it, and the next tick gives it.
        From the first tick that sees it on, the strategy that keeps identities asks for it.
        """
        settings = [_of_birth(path, knob, value, "identity at the start") for knob, value in values.items()]
        with self._lock:
            if not settings or len(self._identities) >= _MOST_BIRTHS:
                return
            self._identities[path] = (settings, 0)
        self._births_now.write(settings)

    def figures(self) -> HookFigures:
        """Return the counters; any thread may call."""
        plugins = self.plugins.items()
        return HookFigures(
            calls={(mode, method): count for mode, each in plugins for method, count in dict(each.events).items()},
            failures={(mode, method): count for mode, each in plugins for method, count in dict(each.failures).items()},
            slowest_seconds={mode: each.slowest_seconds for mode, each in plugins},
            connected={"nri": self.link.reason == ""} if self.link is not None else {},
            problems=len(self._problems) + sum(len(each.problems) for _, each in plugins),
        )

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have something closed at the end."""
        self._exit.callback(callback)

    def close(self) -> None:
        """End what was opened; idempotent."""
        self._exit.close()
        self._births_now.close()

    def _widened(self, pods: PodTable, cgroups: Sequence[CgroupInfo]) -> list[Setting]:
        with self._lock:
            if not self._births and not self._identities:
                return []
            present = {info.path for info in cgroups}
            for path, (settings, unseen) in list(self._identities.items()):
                del self._identities[path]
                if path not in present and unseen < _UNSEEN_TICKS:
                    self._identities[path] = (settings, unseen + 1)
            for path, unseen in list(self._births.items()):
                if path not in present and (unseen < 0 or unseen >= _UNSEEN_TICKS):
                    del self._births[path]  # it ended, or never came
                else:
                    self._births[path] = -1 if path in present else unseen + 1
            born = [path for path, unseen in self._births.items() if unseen < 0]
            starting = [one for settings, _ in self._identities.values() for one in settings]
        if not born:
            return starting
        node = self._facts_of(pods)
        cpus = format_cpuset((node.pools.be_cpus & node.cpus) or node.cpus)
        reason = "it was born under suppression, which is not its own"
        return [*starting, *(_of_birth(path, Knob.CPUSET_CPUS, cpus, reason) for path in born)]

    def _report(self, problems: Mapping[str, str]) -> None:
        for name, problem in problems.items():
            if self._problems.get(name) != problem:
                _log.warning("%s: %s", name, problem)
        self._problems = problems


def _of_birth(path: str, knob: Knob, value: str, reason: str) -> Setting:
    return Setting(
        strategy=STRATEGY,
        target=path,
        knob=knob,
        value=value,
        reason=reason,
        strength=Strength.INVISIBLE,
        protocol_state=True,
    )


def open_runtime_hooks(
    settings: AgentSettings,
    tree: HostTree,
    control: ControlLoop,
    pods: PodTableOf,
    *,
    in_cluster: bool,
    cpus: CpuStateReader | None = None,
    await_pod: "AwaitPod | None" = None,
) -> RuntimeHooks:
    """Open what the settings ask for and make it a source of the control loop. Close the result before the loop.

    Raises SettingsError for a feature gate that no rule has, Unsupported without a cpu hierarchy.
    """
    strategies = {} if control.strategies is None else control.strategies.strategies
    builder = NodeViewBuilder(tree, open_knobs(settings.enforcer, tree), settings=settings.strategies)
    base = NodeFacts(
        info=builder.node_info(),
        strategies=strategies,
        rdma_nodes=rdma_nodes(tree),
        hami_library=settings.hooks.hami_library,
    )
    facts_of = NodeFactsReader(base, (cpus or CpuStateReader(tree, pods)).current, control.enforcer.may_act)
    may_act = settings.enforcer.enabled and not settings.enforcer.dry_run
    v1 = find_hierarchies(tree).version == 1
    automatic = settings.enforcer.enabled and in_cluster
    kept = HookRules(settings.hooks.features, only_reconciled=True)
    reconciler = Reconciler(kept, facts_of, v1=v1) if is_on(settings.hooks.reconcile, automatic) else None
    enforcer = control.enforcer
    hooks = RuntimeHooks(
        reconciler, pods, facts_of, lambda: enforcer.active_state().actions, enforcer.holds, control.ask_now
    )
    hooks.await_pod = await_pod
    if control.strategies is not None:
        hooks.may_ask = control.strategies.may_ask
    if is_on(settings.nri.enabled, automatic) and may_act:
        _open_nri(settings, tree, hooks, facts_of, v1=v1)
    if settings.runtime_proxy.enabled and may_act:
        _open_hook_service(settings, tree, hooks, facts_of, v1=v1)
    control.sources.append(hooks)
    control.hook_figures = hooks.figures
    return hooks


def _open_nri(
    settings: AgentSettings, tree: HostTree, hooks: RuntimeHooks, facts_of: NodeFactsReader, *, v1: bool
) -> None:
    try:
        from koordlet.nri.runtime_link import RuntimeLink

        plugin = _plugin(settings, tree, hooks, facts_of, v1=v1)
    except ImportError as error:
        _log.warning("the NRI plugin needs protobuf (%s); pip install 'koord[grpc]'", error)
        return
    link = RuntimeLink(plugin, tree.path(settings.nri.socket), settings.nri)
    hooks.plugins["nri"], hooks.link = plugin, link
    link.start()
    hooks.on_close(link.close)


def _open_hook_service(
    settings: AgentSettings, tree: HostTree, hooks: RuntimeHooks, facts_of: NodeFactsReader, *, v1: bool
) -> None:
    try:
        from koordlet.runtime_proxy.hook_service import HookService
        from koordlet.runtime_proxy.plugin_answers import PluginAnswers
        from koordlet.serving.socket_file import SocketUnusable

        plugin = _plugin(settings, tree, hooks, facts_of, v1=v1)
    except ImportError as error:
        _log.warning("runtime hooks of koord-runtime-proxy need gRPC (%s); pip install 'koord[grpc]'", error)
        return
    hooks.plugins["runtime_proxy"] = plugin
    service = HookService(settings.runtime_proxy, PluginAnswers(plugin), tree.root)
    try:
        service.start()
    except SocketUnusable as error:
        _log.warning("koord-runtime-proxy is not answered: %s; %s", error, error.remedy)
        return
    hooks.on_close(service.close)


def _plugin(
    settings: AgentSettings, tree: HostTree, hooks: RuntimeHooks, facts_of: NodeFactsReader, *, v1: bool
) -> "Plugin":
    from koordlet.nri.host_facts import pod_bounds
    from koordlet.nri.plugin import Birth, Plugin

    def take_birth(birth: Birth) -> None:
        if birth.suppressed:
            hooks.born_suppressed(birth.path)
        hooks.born_with(birth.path, {knob: birth.values[knob] for knob in _IDENTITIES if knob in birth.values})

    knobs = open_knobs(settings.enforcer, tree)
    return Plugin(
        HookRules(settings.hooks.features),
        facts_of,
        hooks.pods,
        v1=v1,
        bounds_of=lambda path: pod_bounds(knobs, path),
        actions=hooks.actions,
        on_birth=take_birth,
        await_pod=hooks.await_pod,
        request_timeout_milliseconds=settings.nri.request_timeout_milliseconds,
    )


def is_on(switch: str, automatic: bool) -> bool:
    """Return whether a setting of `auto`, `on` and `off` is in effect; `automatic` is what `auto` means here."""
    return automatic if switch == "auto" else switch == "on"
