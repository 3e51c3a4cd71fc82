"""Client of the API server: typed reads and safe writes, rate-limited and retried.

Every call may block for rate limiting, the server and back-off, and is safe to make from many threads. A
request is repeated only where that cannot do harm: reads, writes with the same effect twice, and writes
that surely did not happen. Any other failure is an error whose `ambiguous` says whether the write may have happened.
"""

import logging
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Self, TypeVar

import msgspec

from cluster import errors
from cluster.listing import Listing, list_all
from cluster.rate_limit import TokenBucket
from cluster.resources import EVERYTHING, Document, Key, Patch, PatchType, Query, Resource
from cluster.sending.quick_writes import QuickWrites
from cluster.settings import DEFAULT_DELETION, ClientSettings, DeleteOptions
from cluster.transport import Endpoint, Request, Transport, always
from cluster.watch import Watch

log = logging.getLogger(__name__)

T = TypeVar("T")


def _never(_: errors.ApiError) -> bool:
    return False


Observer = Callable[[str, int, float], None]
"""Called for every attempt: method, HTTP status (0 without an answer) and seconds; must be quick."""


def unobserved(_method: str, _status: int, _seconds: float) -> None:
    """Observe nothing."""


class Client:
    """Client of one API server. Close it, or use it as a context manager."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ClientSettings | None = None,
        *,
        random: Random | None = None,
        observe: Observer = unobserved,
        may_write: Callable[[], bool] = always,
    ) -> None:
        """Make a client. `may_write` is asked before each try of a request that is no read, and again where its bytes
        go out; `Withheld` where it says no. A retry may come minutes after the call: by then another process may lead.
        """
        self.settings = settings or ClientSettings()
        self._transport = Transport(endpoint, self.settings, may_write)
        self._bucket = TokenBucket(self.settings.requests_per_second, self.settings.burst)
        self._random = random or Random()
        self._observe = observe
        self._may_write = may_write
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop idle connections. Open watches end when they are closed themselves."""
        self._transport.close()

    # Reading.

    def get(self, resource: Resource[T], key: Key) -> T:
        """Return the object as stored; raises `NotFound`."""
        return self._decode(resource.model, self.send(Request("GET", resource.object_path(key))))

    def find(self, resource: Resource[T], key: Key) -> T | None:
        """Return the object as stored, or None."""
        try:
            return self.get(resource, key)
        except errors.NotFound:
            return None

    def list(self, resource: Resource[T], query: Query = EVERYTHING, *, not_older_than: str = "") -> Listing[T]:
        """Return all objects that match, read in chunks that together are one consistent state.

        `not_older_than` is a resource version that the answer must have reached.
        """
        return list_all(self.send, resource, query, self.settings.page_size, not_older_than)

    def watch(
        self,
        resource: Resource[T],
        query: Query = EVERYTHING,
        *,
        resource_version: str,
        silence_seconds: float = 90.0,
    ) -> Watch[T]:
        """Watch changes after `resource_version`, with bookmarks. See `Watch`; most callers want an `Informer`.

        Raises `Expired` (here or while iterating) when the server no longer has that version.
        """
        self._wait_turn()
        return Watch(self._transport, resource, query, resource_version, silence_seconds)

    # Writing.

    def create(self, resource: Resource[T], obj: Any, *, namespace: str = "") -> T:
        """Create an object (a document or a struct) and return it as stored.

        `namespace` defaults to the object's own. Raises `AlreadyExists`. When an earlier try's answer was
        lost and the object that exists contains all that was asked for, that object is returned: it is ours.
        """
        body = msgspec.json.encode(obj)
        wanted = msgspec.json.decode(body)
        metadata = wanted.get("metadata", {})
        namespace = namespace or metadata.get("namespace", "")
        if resource.namespaced and not namespace:
            raise ValueError(f"creating a {resource.kind} needs a namespace")
        request = Request("POST", resource.path(namespace), body=_typed(resource, wanted, body))
        if not metadata.get("name"):
            return self._decode(resource.model, self.send(request, repeatable=False))
        return self._create_named(resource, request, Key(namespace, metadata["name"]), wanted)

    def update(self, resource: Resource[T], obj: Any, *, subresource: str = "") -> T:
        """Replace an object (PUT). With a resourceVersion in it, only if unchanged: else `Conflict`.

        Raises TypeError for a struct that holds only some fields of its kind, since the rest would be lost.
        An answer lost on the way raises `Unavailable`; `modify` deals with that.
        """
        if not resource.complete and not isinstance(obj, Mapping):
            raise TypeError(f"{resource.model.__name__} holds part of a {resource.kind}; patch it instead")
        body = msgspec.json.encode(obj)
        wanted = msgspec.json.decode(body)
        metadata = wanted["metadata"]
        key = Key(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        path = resource.object_path(key, subresource)
        data = self.send(Request("PUT", path, body=_typed(resource, wanted, body)), repeatable=False)
        return self._decode(resource.model, data)

    def patch(self, resource: Resource[T], key: Key, patch: Patch, *, subresource: str = "") -> T:
        """Apply a patch and return the object as stored. Raises `NotFound`, `Conflict`, `Invalid`."""
        parameters = {"fieldManager": patch.field_manager}
        if patch.type is PatchType.APPLY:
            parameters["force"] = "true" if patch.force else "false"
        request = Request(
            "PATCH",
            resource.object_path(key, subresource),
            parameters,
            msgspec.json.encode(patch.body),
            patch.type.value,
        )
        return self._decode(resource.model, self.send(request, repeatable=patch.repeatable))

    def modify(
        self,
        resource: Resource[Any],
        key: Key,
        change: Callable[[Document], Document | None],
        *,
        subresource: str = "",
        attempts: int = 8,
    ) -> Document:
        """Read, change, write, and retry when another client wrote in between; returns the stored document.

        `change` gets a document it may alter and returns the wanted state, or None to leave the object as
        it is. It is called once per attempt and must give the same result on its own result, because an
        attempt whose answer was lost is repeated. Raises the last `Conflict` when attempts run out.
        """
        documents = resource.of(dict, complete=True)
        for attempt in range(attempts):
            current = self.get(documents, key)
            wanted = change(current)
            if wanted is None:
                return current
            try:
                return self.update(documents, wanted, subresource=subresource)
            except (errors.Conflict, errors.Unavailable) as error:
                if attempt == attempts - 1:
                    raise
                self.pause(attempt, error.retry_after_seconds)
        raise ValueError(f"modify needs at least one attempt, got {attempts}")

    def delete(self, resource: Resource[Any], key: Key, options: DeleteOptions = DEFAULT_DELETION) -> bool:
        """Delete an object; False when it was gone already. Raises `Conflict` when a precondition fails."""
        body = msgspec.json.encode(options.document())
        try:
            self.send(Request("DELETE", resource.object_path(key), body=body))
        except errors.NotFound:
            return False
        return True

    # Sending.

    def send(
        self, request: Request, *, repeatable: bool = True, final: Callable[[errors.ApiError], bool] = _never
    ) -> bytes:
        """Send within the rate limit, with retries; returns the body of a 2xx answer or raises `ApiError`.

        `repeatable` says that doing it twice equals doing it once. Otherwise an answer lost after the
        request went out raises `Unavailable` with `ambiguous` set. `final` names refusals that are answers.
        """
        started = time.monotonic()
        for attempt in range(self.settings.attempts):
            self._wait_turn()
            try:
                return self._attempt(request)
            except (errors.TooManyRequests, errors.Unavailable) as error:
                waited = time.monotonic() - started
                last = attempt == self.settings.attempts - 1 or waited > self.settings.patience_seconds
                if last or final(error) or not _worth_repeating(error, repeatable):
                    raise
                log.debug("retrying %s: %s", request.where, error)
                self.pause(attempt, error.retry_after_seconds)
        raise ValueError(f"a client needs at least one attempt, got {self.settings.attempts}")

    def quick_writes(self, connections: int) -> QuickWrites[Request, Any]:
        """Return a sender of writes that waits for no answer. It keeps to the rate limit and to `may_write`."""
        transport, settings = self._transport, self.settings

        def encoded(request: Request) -> bytes | None:
            data = transport.encoded(request) if self._bucket.try_take(time.monotonic()) else None
            # Asked last, for credentials may take their time.
            return data if self._may_write() else None

        def observe(request: Request, status: int, seconds: float) -> None:
            self._observe(request.method, status, seconds)

        most = connections if transport.quick else 0
        return QuickWrites(transport.open_socket, encoded, most, settings.timeout_seconds, observe)

    def _attempt(self, request: Request) -> bytes:
        if request.method != "GET" and not self._may_write():
            raise errors.Withheld(f"{request.where}: not sent, this process may not write any more")
        started = time.monotonic()
        status = 0
        try:
            status, body = self._transport.send(request, self.settings.timeout_seconds)
            return body
        except errors.ApiError as error:
            status = error.status
            raise
        finally:
            self._observe(request.method, status, time.monotonic() - started)

    def _create_named(self, resource: Resource[T], request: Request, key: Key, wanted: Document) -> T:
        doubtful = False
        for attempt in range(self.settings.attempts):
            try:
                return self._decode(resource.model, self.send(request, repeatable=False))
            except errors.AlreadyExists:
                if doubtful:
                    existing = self.get(resource.of(dict), key)
                    if contains(existing, wanted):
                        return msgspec.convert(existing, resource.model)
                raise
            except errors.Unavailable as error:
                doubtful = doubtful or error.ambiguous
                if attempt == self.settings.attempts - 1:
                    raise
                self.pause(attempt, error.retry_after_seconds)
        raise ValueError(f"a client needs at least one attempt, got {self.settings.attempts}")

    def _decode(self, model: type[T], data: bytes) -> T:
        decoder = self._decoders.get(model)
        if decoder is None:
            decoder = self._decoders[model] = msgspec.json.Decoder(model)
        try:
            value: T = decoder.decode(data)
        except msgspec.DecodeError as error:
            raise errors.Undecodable(f"answer is no {model.__name__}: {error}") from error
        return value

    def _wait_turn(self) -> None:
        wait = self._bucket.reserve(time.monotonic())
        if wait > 0:
            time.sleep(wait)

    def pause(self, attempt: int, at_least_seconds: float | None = None) -> None:
        """Wait before retry number `attempt` (from 0), longer than what the server asked for."""
        delay = self.settings.backoff.delay_seconds(attempt, self._random)
        # What the server asked for is a floor: jitter goes on top, so that its clients do not return all at once.
        time.sleep(delay + (at_least_seconds or 0.0))


def contains(existing: Any, wanted: Any) -> bool:
    """Return whether `existing` has every field of `wanted`; lists compare element by element."""
    if isinstance(wanted, dict):
        return isinstance(existing, dict) and all(
            name in existing and contains(existing[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(existing, list)
            and len(existing) == len(wanted)
            and all(contains(have, want) for have, want in zip(existing, wanted, strict=True))
        )
    return bool(existing == wanted)


def _worth_repeating(error: errors.ApiError, repeatable: bool) -> bool:
    if isinstance(error, errors.TooManyRequests):
        return True
    return repeatable or not error.ambiguous


def _typed(resource: Resource[Any], wanted: Document, body: bytes) -> bytes:
    # The API refuses bodies without apiVersion and kind; structs need not carry them.
    if "apiVersion" in wanted and "kind" in wanted:
        return body
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind} | wanted)
