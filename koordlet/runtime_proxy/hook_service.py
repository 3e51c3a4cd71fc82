"""A hook server: RuntimeHookService on a unix socket, asked by koord-runtime-proxy, answered by rules."""

import contextlib
import logging
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc

from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.hook_types import HOOK_SERVICE, HookType
from koordlet.runtime_proxy.registration import FailurePolicy, HookServer, format_registration
from koordlet.runtime_proxy.settings import HookServiceSettings
from koordlet.serving.requests import decoded
from koordlet.serving.socket_file import SocketUnusable, prepare_socket, private_place

_log = logging.getLogger(__name__)

_THREADS = 4
REGISTRATION_NAME = "koordlet.json"
"""Name of the registration file, Koordinator's own: of two agents the last one to start is asked."""


class HookAnswers(Protocol):
    """Rules that answer hooks. They change the answer they are given, which is what was asked about, and may be called
    by several threads. An exception fails the hook, and the server's failure policy decides what that means."""

    def change_pod(self, hook: HookType, asked: pb.PodSandboxHookRequest, answer: pb.PodSandboxHookResponse) -> None:
        """Change the answer about a pod sandbox."""

    def change_container(
        self, hook: HookType, asked: pb.ContainerResourceHookRequest, answer: pb.ContainerResourceHookResponse
    ) -> None:
        """Change the answer about a container."""


class HookService:
    """Hook server from `start` to `close`; registered in between where the settings name a directory."""

    def __init__(self, settings: HookServiceSettings, answers: HookAnswers, root: Path = Path("/")) -> None:
        self.asked: Counter[str] = Counter()
        """Calls by hook."""
        self.failures: Counter[str] = Counter()
        """Calls that ended with an error of the rules, by hook."""
        self._settings = settings
        self._answers = answers
        self._path = root / settings.socket.lstrip("/")
        directory = settings.directory
        self._registration = root / directory.lstrip("/") / REGISTRATION_NAME if directory else None
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="runtime-hooks"))
        self._server.add_generic_rpc_handlers((self._handler(),))

    def start(self) -> None:
        """Listen, and register. Raises SocketUnusable."""
        prepare_socket(self._path, "[runtime_proxy] socket")
        try:
            with private_place(self._path) as place:
                self._server.add_insecure_port(f"unix:{place}")
        except (OSError, RuntimeError) as error:
            raise SocketUnusable(f"{self._path}: {error}", "set another [runtime_proxy] socket") from error
        self._inode = self._path.stat().st_ino
        self._server.start()
        self._register()
        _log.info("runtime hooks on unix:%s", self._path)

    def close(self) -> None:
        """Take the registration back and end; idempotent."""
        if self._registration is not None:
            with contextlib.suppress(OSError):
                if self._registration.read_bytes() == self._file():  # not that of another agent
                    self._registration.unlink()
        self._server.stop(grace=1.0).wait(5.0)
        with contextlib.suppress(OSError, AttributeError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def _file(self) -> bytes:
        socket = self._settings.registered_socket or self._settings.socket
        policy = FailurePolicy(self._settings.failure_policy)
        return format_registration(HookServer(REGISTRATION_NAME, socket, policy, frozenset(HookType)))

    def _register(self) -> None:
        if self._registration is None:
            return
        part = self._registration.with_name(f".{REGISTRATION_NAME}.part")
        try:
            self._registration.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(fd, "wb") as stream:
                stream.write(self._file())
            os.replace(part, self._registration)
        except OSError as error:
            _log.warning(
                "not registered with koord-runtime-proxy: %s: %s; set another [runtime_proxy] directory",
                self._registration,
                error.strerror,
            )

    def _handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for hook in HookType:
            name = hook.method.rpartition("/")[2]
            if hook.is_of_pod:
                methods[name] = grpc.unary_unary_rpc_method_handler(
                    decoded(pb.PodSandboxHookRequest, partial(self._about_pod, hook)),
                    None,
                    pb.PodSandboxHookResponse.SerializeToString,
                )
            else:
                methods[name] = grpc.unary_unary_rpc_method_handler(
                    decoded(pb.ContainerResourceHookRequest, partial(self._about_container, hook)),
                    None,
                    pb.ContainerResourceHookResponse.SerializeToString,
                )
        return grpc.method_handlers_generic_handler(HOOK_SERVICE, methods)

    def _about_pod(
        self, hook: HookType, asked: pb.PodSandboxHookRequest, context: grpc.ServicerContext
    ) -> pb.PodSandboxHookResponse:
        answer = pb.PodSandboxHookResponse(
            labels=asked.labels, annotations=asked.annotations, cgroup_parent=asked.cgroup_parent
        )
        if asked.HasField("resources"):
            answer.resources.CopyFrom(asked.resources)
        self.asked[hook.value] += 1
        try:
            self._answers.change_pod(hook, asked, answer)
        except Exception as error:  # noqa: BLE001 - told to the proxy, whose policy decides
            self._fail(hook, f"{asked.pod_meta.namespace}/{asked.pod_meta.name}", error, context)
        return answer

    def _about_container(
        self, hook: HookType, asked: pb.ContainerResourceHookRequest, context: grpc.ServicerContext
    ) -> pb.ContainerResourceHookResponse:
        answer = pb.ContainerResourceHookResponse(
            container_annotations=asked.container_annotations,
            pod_cgroup_parent=asked.pod_cgroup_parent,
            container_envs=asked.container_envs,
        )
        if asked.HasField("container_resources"):
            answer.container_resources.CopyFrom(asked.container_resources)
        self.asked[hook.value] += 1
        try:
            self._answers.change_container(hook, asked, answer)
        except Exception as error:  # noqa: BLE001 - told to the proxy, whose policy decides
            name = f"{asked.pod_meta.namespace}/{asked.pod_meta.name}/{asked.container_meta.name}"
            self._fail(hook, name, error, context)
        return answer

    def _fail(self, hook: HookType, name: str, error: Exception, context: grpc.ServicerContext) -> None:
        self.failures[hook.value] += 1
        if self.failures[hook.value] == 1:
            _log.error("hook %s of %s failed: %r", hook.value, name[:200], error)
        context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
