"""The proxy from its start to its end: socket, handlers, background work, draining."""

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from koordlet.host.service_manager import tell_systemd
from koordlet.runtime_proxy.forwarding import SERVER_OPTIONS, Backend, Context
from koordlet.runtime_proxy.hook_directory import HookDirectory
from koordlet.runtime_proxy.hook_servers import HookServers
from koordlet.runtime_proxy.hooked_calls import RUNTIME_SERVICE, HookedCalls, SkipLabel
from koordlet.runtime_proxy.inventory import Inventory
from koordlet.runtime_proxy.pod_store import PodStore
from koordlet.runtime_proxy.settings import ProxySettings
from koordlet.serving.socket_file import SocketUnusable, prepare_socket, private_place

_log = logging.getLogger(__name__)

IMAGE_SERVICE = "runtime.v1.ImageService"
_IMAGE_METHODS = ("ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo")
_RUNTIME_METHODS = (
    "Attach", "CheckpointContainer", "ContainerStats", "ContainerStatus", "Exec", "ExecSync", "ListContainerStats",
    "ListContainers", "ListMetricDescriptors", "ListPodSandbox", "ListPodSandboxMetrics", "ListPodSandboxStats",
    "PodSandboxStats", "PodSandboxStatus", "PortForward", "ReopenContainerLog", "RuntimeConfig", "Status",
    "UpdatePodSandboxResources", "UpdateRuntimeConfig", "Version",
)  # fmt: skip
_UNARY = frozenset(
    [f"/{IMAGE_SERVICE}/{name}" for name in _IMAGE_METHODS]
    + [f"/{RUNTIME_SERVICE}/{name}" for name in _RUNTIME_METHODS]
)
"""Methods of one message each way, which are forwarded in fewer steps; every other one is forwarded as a stream."""
_REFRESH_SECONDS = 600.0
_LOOK_SECONDS = 2.0
_RETRY_SECONDS = (0.2, 5.0)
_START_SECONDS = 20.0
"""Time after which the service is called ready without its runtime too."""


class ProxyHandler(grpc.GenericRpcHandler):
    """Handler of every method of every service."""

    def __init__(self, backend: Backend, image_backend: Backend, hooked: HookedCalls) -> None:
        self._backend = backend
        self._image_backend = image_backend
        self._hooked = hooked.methods()
        self._handlers: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            handler = self._make(method)
            if method in _UNARY or method in self._hooked:  # not for names that a caller invents
                self._handlers[method] = handler
        return handler

    def _make(self, method: str) -> Any:
        if method in self._hooked:
            return grpc.unary_unary_rpc_method_handler(self._hooked[method])
        backend = self._image_backend if method.startswith(f"/{IMAGE_SERVICE}/") else self._backend

        async def unary(request: bytes, context: Context) -> bytes:
            return await backend.unary(method, request, context)

        async def stream(requests: AsyncIterator[bytes], context: Context) -> None:
            await backend.stream(method, requests, context)

        if method in _UNARY:
            return grpc.unary_unary_rpc_method_handler(unary)
        return grpc.stream_stream_rpc_method_handler(stream)


class RuntimeProxy:
    """A proxy on one socket; `start`, then `stop` once."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._path = Path(settings.socket)
        self._inode = -1
        self._backend = Backend(settings.backend)
        same = settings.image_backend in ("", settings.backend)
        self._image_backend = self._backend if same else Backend(settings.image_backend)
        self._hooks = HookServers(HookDirectory(Path(settings.hook_directory)), settings.hook_timeout_seconds)
        self.inventory = Inventory(self._backend, PodStore())
        skip = SkipLabel(settings.skip_label, settings.skip_value)
        hooked = HookedCalls(self._backend, self._hooks, self.inventory, skip)
        self._server = aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((ProxyHandler(self._backend, self._image_backend, hooked),))
        self._tasks: list[asyncio.Task[None]] = []
        self._reached = asyncio.Event()

    async def start(self) -> None:
        """Listen. Raises SocketUnusable."""
        prepare_socket(self._path, "--koord-runtimeproxy-endpoint")
        try:
            with private_place(self._path) as place:
                self._server.add_insecure_port(f"unix:{place}")
        except (OSError, RuntimeError) as error:
            raise SocketUnusable(f"{self._path}: {error}", "set another --koord-runtimeproxy-endpoint") from error
        self._inode = self._path.stat().st_ino
        await self._server.start()
        self._tasks = [
            asyncio.create_task(self._watch_backend()),
            asyncio.create_task(self._keep_inventory()),
            asyncio.create_task(self._look_at_hooks()),
        ]
        _log.info("proxy on unix:%s to unix:%s", self._path, self._settings.backend)

    async def wait_for_backend(self, seconds: float) -> bool:
        """Wait until the runtime was reached once; return whether it was."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reached.wait(), seconds)
        return self._reached.is_set()

    async def stop(self) -> None:
        """Refuse new calls, end streams, let the others finish within the time for it, and remove the socket."""
        _log.info("stopping: calls in flight have %g s", self._settings.drain_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._remove_socket()
        stopping = asyncio.ensure_future(self._server.stop(self._settings.drain_seconds))
        await asyncio.sleep(0)  # the server refuses calls from here on
        for backend in {self._backend, self._image_backend}:
            backend.drain()
        await stopping
        for backend in {self._backend, self._image_backend}:
            await backend.close()
        await self._hooks.close()

    def _remove_socket(self) -> None:
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:  # not the socket of a proxy that has started meanwhile
                self._path.unlink()

    async def _watch_backend(self) -> None:
        """Log when the runtime goes and comes."""
        channel, was_ready = self._backend.channel, None
        while True:
            state = channel.get_state(try_to_connect=True)
            is_ready = {
                grpc.ChannelConnectivity.READY: True,
                grpc.ChannelConnectivity.TRANSIENT_FAILURE: False,
            }.get(state, was_ready)
            if is_ready is not was_ready:
                if is_ready:
                    self._reached.set()
                    _log.info("runtime reached on unix:%s", self._backend.socket)
                else:
                    _log.warning(
                        "runtime not reachable on unix:%s: calls fail as UNAVAILABLE until it is; start it, or set "
                        "--remote-runtime-service-endpoint",
                        self._backend.socket,
                    )
                was_ready = is_ready
            await channel.wait_for_state_change(state)

    async def _keep_inventory(self) -> None:
        wait = _RETRY_SECONDS[0]
        while True:
            try:
                await self.inventory.refresh()
                wait = _REFRESH_SECONDS
            except aio.AioRpcError as error:
                _log.debug("runtime's lists: %s: %s", error.code().name, error.details())
                wait = min(2 * wait, _RETRY_SECONDS[1])
            except Exception:  # noqa: BLE001 - the proxy serves without lists
                _log.exception("runtime's lists")
                wait = _REFRESH_SECONDS
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))

    async def _look_at_hooks(self) -> None:
        """Log registrations soon after they change; calls themselves look each time."""
        while True:
            await self._hooks.forget_unregistered()
            await asyncio.sleep(_LOOK_SECONDS)


async def serve(settings: ProxySettings) -> None:
    """Run a proxy until SIGTERM or SIGINT. Raises SocketUnusable."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    proxy = RuntimeProxy(settings)
    await proxy.start()
    # A kubelet that is started after this service ends at once if its first call fails.
    readiness = asyncio.create_task(_tell_ready(proxy))
    await stop.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second signal ends the process at once
    readiness.cancel()
    tell_systemd("STOPPING=1")
    await proxy.stop()


async def _tell_ready(proxy: RuntimeProxy) -> None:
    await proxy.wait_for_backend(_START_SECONDS)
    tell_systemd("READY=1")
