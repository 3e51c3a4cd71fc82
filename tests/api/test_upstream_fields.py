"""The comparison of definitions finds what is missing and what differs, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from api.crds import DEFINITIONS, definition_document
from tests.api.upstream_fields import difference, differences, main

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def version(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"properties": properties}}, **more}


@pytest.mark.parametrize(
    ("theirs", "ours", "missing", "types"),
    [
        pytest.param({"a": TEXT}, {"a": TEXT, "b": TEXT}, [], 0, id="more-is-no-difference"),
        pytest.param({"a": TEXT, "b": TEXT}, {"a": TEXT}, [".b"], 0, id="field"),
        pytest.param({"a": TEXT}, {"a": NUMBER}, [], 1, id="type"),
        pytest.param({"a": {"properties": {"b": TEXT}}}, {"a": {"properties": {}}}, [".a.b"], 0, id="nested"),
        pytest.param(
            {"a": {"items": {"properties": {"b": TEXT}}}}, {"a": {"items": {}}}, [".a[].b"], 0, id="in-a-list"
        ),
        pytest.param(
            {"a": {"type": "object", "properties": {"b": TEXT}}},
            {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            [],
            0,
            id="what-is-open-takes-it",
        ),
        pytest.param({"a": {"additionalProperties": TEXT}}, {"a": {"additionalProperties": NUMBER}}, [], 1, id="map"),
        pytest.param({"metadata": {"properties": {"x": TEXT}}}, {"metadata": {}}, [], 0, id="metadata"),
    ],
)
def test_differences(theirs: Any, ours: Any, missing: list[str], types: int) -> None:
    found = difference("k", version(theirs), version(ours))
    assert found.missing == missing
    assert len(found.types) == types
    assert found.is_none == (not missing and not types)


def test_columns_subresources_and_versions_count() -> None:
    columns = [{"name": "Phase", "jsonPath": ".status.phase"}]
    theirs = version({}, additionalPrinterColumns=columns, subresources={"status": {}})
    assert difference("k", theirs, version({})).other == ["column Phase", "subresource status"]
    assert difference("k", theirs, None).other == ["the version"]


def test_our_own_definitions_lack_nothing_of_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for definition in DEFINITIONS:
        (tmp_path / f"{definition.name}.yaml").write_text(yaml.safe_dump(definition_document(definition)))
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    found = list(differences(tmp_path))
    assert len(found) >= len(DEFINITIONS)
    assert all(each.is_none for each in found)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(" fields, 0 missing\n")
    (tmp_path / "x.yaml").write_text(
        yaml.safe_dump(
            {
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "x"},
                "spec": {"scope": "Cluster", "versions": [version({"a": TEXT})]},
            }
        )
    )
    assert main([str(tmp_path)]) == 1
    assert "the version" in capsys.readouterr().out
