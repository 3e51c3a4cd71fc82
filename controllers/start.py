"""Entry point of `koord-manager`: says what is missing before its modules are imported."""

from api.programs.extras import require


def main() -> None:
    """Run the command. Exits with 3 where the extra `cluster` is not installed."""
    require("koord-manager", "cluster")
    from controllers.__main__ import main as command

    command()
