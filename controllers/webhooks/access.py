"""Rights of submitters, asked of the API server and remembered for a while."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from cluster import Client, ClusterError, Document, Resource
from controllers.webhooks.review import UserInfo

log = logging.getLogger(__name__)

REVIEWS = Resource("SubjectAccessReview", "subjectaccessreviews", dict, group="authorization.k8s.io", namespaced=False)
ALLOWED_SECONDS = 60.0
DENIED_SECONDS = 10.0
MOST_REMEMBERED = 1024

_Subject = tuple[str, str, tuple[str, ...], str]


class BindingRights:
    """Answers whether users may bind pods of a namespace. A question that is not answered is answered no."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._remembered: OrderedDict[_Subject, tuple[bool, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, user: UserInfo, namespace: str) -> bool:
        """Return whether a user may create pods/binding in a namespace."""
        subject = (user.username, user.uid, tuple(user.groups), namespace)
        with self._lock:
            allowed, until = self._remembered.get(subject, (False, float("-inf")))
        if self._clock() < until:
            return allowed
        try:
            allowed = self._asked(user, namespace)
        except ClusterError as error:
            log.warning("whether %s may bind pods of %s: %s", user.username, namespace, error)
            return False
        with self._lock:
            self._remembered[subject] = allowed, self._clock() + (ALLOWED_SECONDS if allowed else DENIED_SECONDS)
            self._remembered.move_to_end(subject)
            while len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return allowed

    def _asked(self, user: UserInfo, namespace: str) -> bool:
        attributes = {"namespace": namespace, "verb": "create", "resource": "pods", "subresource": "binding"}
        spec: Document = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        answer = self._client.create(REVIEWS, {"metadata": {}, "spec": spec | {"resourceAttributes": attributes}})
        return (answer.get("status") or {}).get("allowed") is True
