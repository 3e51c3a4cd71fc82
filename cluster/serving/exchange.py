"""Request and reply of HTTP, apart from how they travel."""

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read to its end."""

    method: str
    target: str
    """Path and query as they were sent."""
    body: bytes = b""
    client_name: str = ""
    """Common name of the client's certificate, which an authority of ours signed; empty without one."""
    host: str = ""
    """By which name the client asked: the header Host."""

    @property
    def path(self) -> str:
        """The path without the query."""
        try:
            return urlsplit(self.target).path
        except ValueError:  # such as //[
            return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a request."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    """Further ones."""

    @classmethod
    def text(cls, status: int, message: str) -> "Reply":
        """A line of plain text."""
        return cls(status, f"{message}\n".encode(), TEXT)


class Answering(Protocol):
    """Answers requests, many at a time."""

    def answer(self, request: Request) -> Reply:
        """Answer one request. What it raises is logged and answered with status 500."""
