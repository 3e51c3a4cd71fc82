"""Style and script of our pages, inline, and the policy that allows these two and nothing else."""

import base64
import hashlib
from importlib.resources import files

STYLE = (files(__package__) / "page.css").read_text(encoding="utf-8")
SCRIPT = (files(__package__) / "page.js").read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_source(STYLE)}",
        f"script-src {_source(SCRIPT)}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing is fetched but the page itself; markup that slipped in would neither run nor load."""
