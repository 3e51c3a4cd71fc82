"""The scheduler's HTTP API: health, metrics, state of plugins, debug flags, extender and simulated placements.

Requests that read the engine run in its thread. A process that does not lead answers 503 to
everything but health and metrics, and is not ready. `HealthApi` answers nothing that could not be known to all.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.kube.resources import QuantityError, format_resources
from api.placement import PATH as PLACEMENT_PATH
from api.placement import PlacementRequest
from cluster.serving import TEXT, Bounds, Reply, Request
from scheduler import extender
from scheduler.loop import Loop
from scheduler.outcome import Result
from scheduler.profile import SchedulerSettings
from scheduler.simulated_placement import simulate

log = logging.getLogger(__name__)

PREFIX = "/apis/v1/"
PERMIT_SECONDS = 60.0
"""Longest wait of an extender's bind for a pod at Permit."""
FLAGS = {"v": "klog.logging.verbosity", "s": "debugTopNScores", "f": "debugFilterFailure", "t": "schedulingTimeout"}
"""Names of debug flags in the answer to their change."""
PLUGIN_ALIASES = {f"{PREFIX}plugins/NodeNUMAResources/": f"{PREFIX}plugins/NodeNUMAResource/"}
"""Other spellings of a plugin's paths."""
STUCK_SECONDS = 60.0
"""Time without a sign of the scheduling thread after which the process had better be started anew."""


class RefusedError(Exception):
    """Refusal of a request with an HTTP status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HealthApi:
    """Answers the probes of the kubelet and the scrapes of Prometheus, from any thread and without waiting."""

    def __init__(self, loop: Loop, leading: Callable[[], bool] = lambda: True) -> None:
        self._loop = loop
        self._leading = leading

    def answer(self, request: Request) -> Reply:
        """Answer one request."""
        found = self.find(request.path) if request.method == "GET" else None
        return found or Reply.text(404, "here are /healthz, /livez, /readyz and /metrics")

    def find(self, path: str) -> Reply | None:
        """The answer of a path, None when it is not one of ours."""
        if path in ("/healthz", "/livez"):
            stuck = self._loop.stuck_seconds()
            if stuck > STUCK_SECONDS:
                return Reply.text(500, f"the scheduling thread has not answered for {stuck:.0f} s")
            return Reply(200, b"ok", TEXT)
        if path in ("/readyz", "/readyz/informer-sync"):
            if not self._loop.ready.is_set():
                return Reply(503, b"first lists are not in", TEXT)
            if path != "/readyz":
                return Reply(200, b"ok", TEXT)
            leads = self._leading()
            return Reply(200 if leads else 503, b"ok" if leads else b"another process leads", TEXT)
        if path == "/metrics":
            return Reply(200, generate_latest(self._loop.metrics.registry), CONTENT_TYPE_LATEST)
        return None


class HttpApi:
    """Answers requests; independent of how they arrive.

    `binders` are the names of client certificates that may use the extender and the debug flags; None lets every client
    that reaches the address, which is for plain HTTP on loopback.
    """

    def __init__(
        self, loop: Loop, leading: Callable[[], bool] = lambda: True, binders: frozenset[str] | None = None
    ) -> None:
        self._loop = loop
        self._leading = leading
        self._binders = binders
        self._health = HealthApi(loop, leading)
        self._waiting = threading.Semaphore(loop.engine.settings.extender_waiting_binds)
        """Places of requests to bind that wait."""
        self._routes = _plugin_routes(loop)

    def answer(self, request: Request) -> Reply:
        """Answer one request. Never raises."""
        try:
            return self._answer(request)
        except RefusedError as refusal:
            return Reply.text(refusal.status, str(refusal))
        except (LookupError, QuantityError, msgspec.DecodeError) as error:
            return Reply.text(404 if isinstance(error, LookupError) else 400, str(error))
        except (RecursionError, UnicodeDecodeError):
            return Reply.text(400, "the body cannot be read")
        except PermissionError as error:
            return Reply.text(403, str(error))
        except TimeoutError:
            return Reply.text(504, "the scheduler is busy")
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return Reply.text(500, "internal error; see the log")

    def _answer(self, request: Request) -> Reply:
        method, path, body = request.method, request.path, request.body
        public = self._health.find(path)
        if public is not None:
            return public
        acts = path.startswith(("/debug/flags/", "/extender/"))
        if acts and self._binders is not None and request.client_name not in self._binders:
            shown = request.client_name or "without a name"
            raise RefusedError(
                403, f"client {shown!r} may not bind nor switch; --bind-client-name names those that may"
            )
        if not self._leading():
            raise RefusedError(503, "not the leader")
        if path.startswith("/debug/flags/") and method == "PUT":
            return self._switch(path.removeprefix("/debug/flags/"), body.decode().strip())
        if path.startswith("/extender/") and method == "POST":
            return self._extend(path.removeprefix("/extender/"), body)
        if path == PLACEMENT_PATH and method == "POST":
            asked = msgspec.json.decode(body, type=PlacementRequest)
            return _json(self._loop.call(lambda: simulate(self._loop.engine, asked, self._loop.now())))
        if path.startswith(PREFIX) and method == "GET":
            return self._state(path)
        raise RefusedError(404, f"no {method} {path}; GET {PREFIX}__services__ lists what there is")

    def _switch(self, key: str, value: str) -> Reply:
        try:
            self._loop.call(lambda: self._loop.engine.flags.set(key, value))
        except KeyError as error:
            raise RefusedError(404, f"no debug flag {key!r}; there are s, f, d, db, t and v") from error
        except ValueError as error:
            raise RefusedError(400, f"debug flag {key!r}: {error}") from error
        return Reply.text(200, f"successfully set {FLAGS.get(key, key)} to {value}")

    def _state(self, path: str) -> Reply:
        for other, own in PLUGIN_ALIASES.items():
            path = own + path.removeprefix(other) if path.startswith(other) else path
        for _, matcher, route in self._routes:
            match = matcher.fullmatch(path)
            if match:
                arguments = {name: unquote(text) for name, text in match.groupdict().items()}
                return _json(self._loop.call(partial(route, **arguments)))
        raise RefusedError(404, f"no {path}; GET {PREFIX}__services__ lists what there is")

    def _extend(self, verb: str, body: bytes) -> Reply:
        if not self._loop.engine.settings.extender_scheduler_names:
            raise RefusedError(404, "the extender is off; extender_scheduler_names says for which schedulers it is on")
        engine, now = self._loop.engine, self._loop.now
        if verb == "filter":
            asked = msgspec.json.decode(body, type=extender.ExtenderArgs)
            return _json(self._loop.call(lambda: extender.filter_nodes(engine, asked, now())))
        if verb == "prioritize":
            asked = msgspec.json.decode(body, type=extender.ExtenderArgs)
            return _json(self._loop.call(lambda: extender.prioritize_nodes(engine, asked, now())))
        if verb in ("preempt", "preemption"):
            victims = msgspec.json.decode(body, type=extender.PreemptionArgs)
            return _json(self._loop.call(lambda: extender.preempt(engine, victims, now())))
        if verb == "bind":
            return _json({"Error": self._bind(msgspec.json.decode(body, type=extender.BindingArgs))})
        raise RefusedError(404, f"no verb {verb!r}; there are filter, prioritize, preempt and bind")

    def _bind(self, asked: extender.BindingArgs) -> str:
        """Empty once the pod is bound, else why not."""
        if not self._waiting.acquire(blocking=False):
            return "too many pods wait for others of their gangs; extender_waiting_binds says how many may"
        try:
            outcome = self._loop.bind_for_extender(asked, PERMIT_SECONDS)
        finally:
            self._waiting.release()
        return "" if outcome.result is Result.SCHEDULED else outcome.message or outcome.result.value


def listener_bounds(settings: SchedulerSettings) -> Bounds:
    """Return the bounds of the listener: those for requests that are answered at once, and room for those that wait."""
    waiting = settings.extender_waiting_binds if settings.extender_scheduler_names else 0
    usual = Bounds()
    return Bounds(
        connections=usual.connections + waiting, connections_by_address=usual.connections_by_address + waiting
    )


def _plugin_routes(loop: Loop) -> list[tuple[str, re.Pattern[str], Callable[..., Any]]]:
    """Every state endpoint: its pattern, its matcher and its handler."""
    routes: list[tuple[str, Callable[..., Any]]] = [
        (f"{PREFIX}__services__", lambda: {"GET": sorted(map(_shown, _patterns(loop)))}),
        (f"{PREFIX}nodes/{{node_name}}", lambda node_name: node_state(loop, node_name)),
    ]
    for plugin in loop.engine.plugins.values():
        routes += [(f"{PREFIX}plugins/{plugin.name}/{pattern}", route) for pattern, route in plugin.routes().items()]
    return [(pattern, _matcher(pattern), route) for pattern, route in routes]


def _patterns(loop: Loop) -> list[str]:
    return [pattern for pattern, _, _ in _plugin_routes(loop)]


def _shown(pattern: str) -> str:
    """A pattern as Koordinator prints it: `/nodes/:nodeName`."""
    return re.sub(r"\{(\w+)\}", lambda match: ":" + re.sub(r"_(\w)", lambda part: part[1].upper(), match[1]), pattern)


def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(pattern)))


def node_state(loop: Loop, name: str) -> Mapping[str, Any]:
    """State of a node in the snapshot. Raises LookupError."""
    snapshot = loop.engine.snapshot
    row = snapshot.row(name)
    if row is None:
        raise LookupError(f"no node {name}")
    offered = {key: int(snapshot.allocatable[row, column]) for key, column in snapshot.columns.items()}
    taken = {key: int(snapshot.requested[row, column]) for key, column in snapshot.columns.items()}
    return {
        "name": name,
        "allocatable": format_resources(offered),
        "requested": format_resources(taken),
        "taints": [msgspec.to_builtins(taint) for taint in snapshot.taint_sets[snapshot.taint_set[row]]],
        "pods": sorted(
            (
                {"name": info.key, "uid": uid, "assumed": snapshot.pods[uid].assumed}
                for uid, info in snapshot.residents[row].items()
            ),
            key=lambda item: str(item["name"]),
        ),
        "nominated": [info.key for info in loop.engine.nominated(row)],
    }


def _json(value: Any) -> Reply:
    return Reply(200, msgspec.json.encode(value, enc_hook=_plain))


def _plain(value: Any) -> Any:
    """Numpy values as JSON numbers and lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} does not encode to JSON: {json.dumps(str(value))}")
