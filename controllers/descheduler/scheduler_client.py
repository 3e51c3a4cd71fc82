"""Asks the running scheduler for simulated placements, over HTTP or with client certificates over HTTPS."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import msgspec
import urllib3

from api.placement import PATH, PlacementAnswer, PlacementRequest
from controllers.runtime.writer import UnplacedError

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SchedulerAddress:
    """URL of the scheduler, and the files of TLS."""

    url: str
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class SchedulerClient:
    """Safe for several threads. `ask` raises UnplacedError whenever there is no usable answer."""

    def __init__(self, address: SchedulerAddress) -> None:
        """Raise OSError for TLS files that cannot be read."""
        context = None
        if address.url.startswith("https:"):
            context = ssl.create_default_context(cafile=address.authority)
            if address.certificate is not None:
                context.load_cert_chain(address.certificate, address.key)
        self._url = address.url.rstrip("/") + PATH
        self._pool = urllib3.PoolManager(
            num_pools=1, maxsize=8, ssl_context=context, timeout=TIMEOUT_SECONDS, retries=False
        )

    def ask(self, request: PlacementRequest) -> PlacementAnswer:
        """Return the scheduler's answer."""
        try:
            response = self._pool.request(
                "POST",
                self._url,
                body=msgspec.json.encode(request),
                headers={"Content-Type": "application/json"},
                redirect=False,
                preload_content=False,
            )
            try:
                body = response.read(MAX_ANSWER_BYTES)
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnplacedError(f"the scheduler does not answer: {error}") from error
        if response.status != 200:
            text = body[:200].decode("utf-8", "replace").strip()
            raise UnplacedError(f"the scheduler answers {response.status}: {text}")
        try:
            return msgspec.json.decode(body, type=PlacementAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnplacedError(f"the scheduler's answer cannot be read: {error}") from error
