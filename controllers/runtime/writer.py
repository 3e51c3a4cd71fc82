"""Carries out writes in a few threads, within the client's rate limit, and only while this process leads."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum

from api.placement import PlacementAnswer, PlacementRequest
from cluster import (
    Client,
    ClusterError,
    Conflict,
    DeleteOptions,
    Forbidden,
    Invalid,
    NotFound,
    Withheld,
    evict,
    merge_patch,
    strategic_patch,
)
from cluster.errors import AlreadyExists
from controllers.runtime.writes import Standing, Target, Verb, Write, kind_name, metadata_of, on_version, patch_body

log = logging.getLogger(__name__)


class Result(StrEnum):
    """Result of the writes to one object."""

    DONE = "done"
    CONFLICT = "conflict"
    """The object changed since it was read: planned again once the change is seen."""
    GONE = "gone"
    FAILED = "failed"
    UNPLACED = "unplaced"
    """Never sent: the scheduler was not reached, or has no node for the pod."""
    DROPPED = "dropped"
    """Never sent: this process does not lead any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of the writes to one object by one controller; `version` is the one that the last write left."""

    controller: str
    target: Target
    writes: Sequence[Write]
    result: Result
    done: int
    """Number of writes that succeeded."""
    version: str = ""
    error: str = ""


class UnplacedError(Exception):
    """The scheduler's refusal, or its silence; the message says which."""


Asking = Callable[[PlacementRequest], PlacementAnswer]
"""Asks the running scheduler; raises UnplacedError when it does not answer."""


class Writer:
    """Writes in `workers` threads; every batch ends in one answer, given to `report` in the worker's thread."""

    def __init__(
        self,
        client: Client,
        workers: int,
        report: Callable[[Answer], None],
        allowed: Callable[[], bool],
        ask: Asking | None = None,
    ) -> None:
        self._client = client
        self._report = report
        self._allowed = allowed
        self._ask = ask
        self._stopping = False
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="write")

    def submit(self, controller: str, writes: Sequence[Write]) -> None:
        """Carry out writes to one object, in order."""
        self._pool.submit(self._carry_out, controller, writes)

    def stop(self) -> None:
        """Drop what waits, and end once the writes under way are answered."""
        self._stopping = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _carry_out(self, controller: str, writes: Sequence[Write]) -> None:
        done, version, error = 0, "", ""
        result = Result.DONE
        try:
            for write in writes:
                if self._stopping or not self._allowed():
                    result = Result.DROPPED
                    break
                if write.question is not None:
                    self._placeable(write.question)
                    # The answer took its time; the lead may be gone.
                    if not self._allowed():
                        result = Result.DROPPED
                        break
                if write.standing is not None and not self._stands(write.standing):
                    raise Conflict(f"{kind_name(write.standing.resource)} {write.standing.key} went meanwhile")
                version = self._send_or_instead(on_version(write, version) if version and write.version else write)
                done += 1
        except (Conflict, AlreadyExists) as failure:
            result, error = Result.CONFLICT, str(failure)
        except NotFound as failure:
            result, error = Result.GONE, str(failure)
        except Withheld:
            result = Result.DROPPED
        except UnplacedError as failure:
            result, error = Result.UNPLACED, str(failure)
        except ClusterError as failure:
            result, error = Result.FAILED, str(failure)
        except Exception as failure:
            # One odd object must neither end the thread nor leave its target held for ever.
            log.exception("%s: writing %s", controller, writes[0].target)
            result, error = Result.FAILED, f"{type(failure).__name__}: {failure}"
        self._report(Answer(controller, writes[0].target, writes, result, done, version, error))

    def _placeable(self, question: PlacementRequest) -> None:
        if self._ask is None:
            raise UnplacedError("there is no scheduler to ask for a place")
        placements = self._ask(question).placements
        if len(placements) < len(question.pods):
            raise UnplacedError("the scheduler's answer lacks the pod")
        if not placements[-1].node:
            raise UnplacedError(placements[-1].message or "the scheduler has no node for the pod")

    def _stands(self, wanted: Standing) -> bool:
        found = self._client.find(wanted.resource, wanted.key)
        if found is None:
            return False
        meta = metadata_of(found)
        return meta.uid == wanted.uid and not meta.deletion_timestamp

    def _send_or_instead(self, write: Write) -> str:
        try:
            return self._send(write)
        except (Forbidden, Invalid) as refusal:
            if write.instead is None:
                raise
            log.warning("%s %s: %s", write.verb.value, write.target, refusal)
            self._send(write.instead)
            return ""

    def _send(self, write: Write) -> str:
        """Return the version that the write left; empty for none."""
        resource, key = write.resource, write.key
        if write.verb is Verb.CREATE:
            return metadata_of(self._client.create(resource, write.body, namespace=key.namespace)).resource_version
        if write.verb is Verb.PATCH:
            body = (strategic_patch if write.strategic else merge_patch)(patch_body(write))
            stored = self._client.patch(resource, key, body, subresource=write.subresource)
            return metadata_of(stored).resource_version
        options = DeleteOptions(write.uid, write.version, write.grace_seconds)
        if write.verb is Verb.DELETE:
            self._client.delete(resource, key, options)
        else:
            answer = evict(self._client, key, replace(options, resource_version=""))
            if not answer.accepted:
                raise Conflict(answer.message)
        return ""
