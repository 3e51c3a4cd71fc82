"""The admission policies of deploy/policies at the real API server."""

from pathlib import Path

import pytest

from tests.cluster_e2e.node import Node
from tests.deploy.node_reports import check_policy

pytestmark = pytest.mark.cluster


def test_an_agent_writes_the_reports_of_its_own_node_and_of_no_other(node: Node, tmp_path: Path) -> None:
    check_policy(node.client, node.kubeconfig, tmp_path)
