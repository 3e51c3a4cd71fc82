"""Hosts made of files, with a pod each."""

from pathlib import Path

import pytest

from tests.koordlet.enforcer.hosts import FakeHost


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, request.param)
    made.make("/pod")
    return made


@pytest.fixture
def v2(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, 2)
    made.make("/pod")
    return made
