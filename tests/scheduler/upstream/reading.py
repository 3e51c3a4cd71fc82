"""Tables of the stock scheduler, as they are written down here."""

from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent


def table(name: str) -> Any:
    """The table `name`.yaml."""
    return msgspec.yaml.decode((HERE / f"{name}.yaml").read_bytes())
