"""Write the dashboards beside this file as JSON: `python -m deploy.grafana`."""

from pathlib import Path

from .board import text
from .dashboards import dashboards

FOLDER = Path(__file__).parent / "dashboards"


def main() -> None:
    """Write every dashboard and remove those that were dropped."""
    wanted = {FOLDER / f"{board.name}.json": text(board) for board in dashboards()}
    for stale in set(FOLDER.glob("*.json")) - wanted.keys():
        stale.unlink()
    for file, content in wanted.items():
        file.write_text(content)


if __name__ == "__main__":
    main()
