"""docs/settings.md: as the types of the settings are, with every key of the agent."""

from collections.abc import Iterator

import pytest
from msgspec import inspect as types

from docs.render import DOCUMENTS
from docs.settings_page import _number, _tables_in, settings_page
from koordlet.config import AgentSettings

PAGE = DOCUMENTS / "settings.md"


def keys_of(kind: type, path: str = "") -> Iterator[tuple[str, str]]:
    """Tables and keys, found apart from the page's own walk by its sections."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    for field in info.fields:
        inner = _tables_in(field.type)
        for _, found in inner:
            yield from keys_of(found, f"{path}.{field.encode_name}".strip("."))
        if not inner:
            yield path, field.encode_name


def test_the_page_is_what_the_types_say() -> None:
    assert PAGE.read_text() == settings_page(), "run: make docs"


def test_every_key_of_the_agent_is_in_its_table() -> None:
    agent = PAGE.read_text().partition("\n## koordlet")[2].partition("\n## koord-manager")[0]
    sections = {part.partition("\n")[0].strip("[]"): part for part in agent.split("\n### ")[1:]}
    keys = list(keys_of(AgentSettings))
    assert len(keys) > 150
    for table, key in keys:
        assert f"\n| `{key}` |" in (sections[table] if table else agent), (table, key)


@pytest.mark.parametrize(
    "row",
    [
        "| `port` | 0 to 65,535 | `9316` | 0 takes a free port. |",
        "| `match` | text | required |",
        '| `backend` | `auto`, `bcc`, `core`, `none` | `"auto"` |',
        "| `hook_timeout_seconds` | number, above 0, at most 120 | `2.0` |",
        "| `profiles` | list of `WorkloadProfile` | - |",
    ],
    ids=["range", "required", "words", "bounds", "objects"],
)
def test_rows_say_type_range_default_and_meaning(row: str) -> None:
    assert f"\n{row}" in settings_page()


def test_numbers_are_grouped() -> None:
    assert (_number(1_000_000), _number(0.5)) == ("1,000,000", "0.5")
