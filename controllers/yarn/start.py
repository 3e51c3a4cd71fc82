"""Entry point of `koord-yarn-copilot`: says what is missing before its modules are imported."""

from api.programs.extras import require


def main() -> None:
    """Run the command. Exits with 3 where the extra `cluster` is not installed."""
    require("koord-yarn-copilot", "cluster")
    from controllers.yarn.__main__ import main as command

    command()
