"""Rotation of the certificate as steps on the shared Secret, so that a replica may end anywhere in between.

The next certificate is staged: it is trusted before it is used, for as long as the API server needs to learn of it. All
replicas take each step from the Secret's content and the time alone; the Secret's version lets one of them write.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controllers.webhooks.certificates import CertificateError, Pair, facts

Document = dict[str, Any]

ANNOTATION_STAGED_AT = "admission.koordinator.sh/staged-at"
STAGING_SECONDS = 300.0
"""Time from staging a certificate to using it."""
REMAINING_SHARE = 1 / 3
"""Share of its lifetime at which a certificate is replaced."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Content of the Secret: the pair in use, the one staged, and all that the API server is to trust."""

    current: Pair | None = None
    staged: Pair | None = None
    staged_at_seconds: float = 0.0
    trusted: tuple[str, ...] = ()

    @property
    def bundle(self) -> str:
        """The trusted certificates as one PEM text."""
        return "".join(self.trusted)


Issue = Callable[[], Pair]


def step(kept: Kept, names: Sequence[str], now: float, issue: Issue) -> Kept:
    """Return the next content; the same one where nothing is due. Raises CertificateError from `issue`."""
    if kept.current is None or not _usable(kept.current.certificate, names, now):
        pair = kept.staged if kept.staged and _usable(kept.staged.certificate, names, now) else issue()
        return Kept(current=pair, trusted=_trusted((pair.certificate,), now))
    if kept.staged is not None:
        if not _usable(kept.staged.certificate, names, now):
            return replace(kept, staged=None, trusted=(kept.current.certificate,))
        # A staging time in the future was written by a clock that is ahead.
        if abs(now - kept.staged_at_seconds) < STAGING_SECONDS:
            return kept
        both = (kept.staged.certificate, kept.current.certificate)
        return Kept(current=kept.staged, trusted=_trusted(both, now))
    if _due(kept.current.certificate, now):
        staged = issue()
        both = (kept.current.certificate, staged.certificate)
        return replace(kept, staged=staged, staged_at_seconds=now, trusted=_trusted(both, now))
    if kept.current.certificate not in kept.trusted:
        return replace(kept, trusted=_trusted((kept.current.certificate, *kept.trusted), now))
    return kept


def _usable(certificate: str, names: Sequence[str], now: float) -> bool:
    try:
        found = facts(certificate)
    except CertificateError:
        return False
    return now < found.not_after_seconds and found.names >= set(names)


def _due(certificate: str, now: float) -> bool:
    found = facts(certificate)
    lifetime = found.not_after_seconds - found.not_before_seconds
    return found.not_after_seconds - now < REMAINING_SHARE * lifetime


def _trusted(certificates: Sequence[str], now: float) -> tuple[str, ...]:
    return tuple(item for item in dict.fromkeys(certificates) if _usable(item, (), now))


def decoded(secret: Document | None) -> Kept:
    """Return the content of a Secret; what cannot be read is absent."""
    data = (secret or {}).get("data")
    found = {name: _text(value) for name, value in data.items()} if isinstance(data, dict) else {}
    metadata = (secret or {}).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    stated = str((annotations or {}).get(ANNOTATION_STAGED_AT, ""))
    return Kept(
        current=_pair(found, "tls"),
        staged=_pair(found, "next"),
        staged_at_seconds=float(stated) if stated.isdecimal() else 0.0,
        trusted=_certificates(found.get("ca.crt", "")),
    )


def encoded(kept: Kept) -> Document:
    """Return `data` and `metadata.annotations` of the Secret."""
    texts = {"ca.crt": kept.bundle}
    for name, pair in (("tls", kept.current), ("next", kept.staged)):
        if pair is not None:
            texts |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
    staged = {ANNOTATION_STAGED_AT: str(int(kept.staged_at_seconds))} if kept.staged else {}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return {"data": data, "metadata": {"annotations": staged}}


def _pair(found: dict[str, str], name: str) -> Pair | None:
    certificate, key = found.get(f"{name}.crt", ""), found.get(f"{name}.key", "")
    return Pair(certificate, key) if certificate and key else None


def _text(value: object) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _certificates(bundle: str) -> tuple[str, ...]:
    end = "-----END CERTIFICATE-----\n"
    return tuple(part + end for part in bundle.split(end) if "-----BEGIN CERTIFICATE-----" in part)
