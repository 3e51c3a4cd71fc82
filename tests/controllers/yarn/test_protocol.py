import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.yarn.protocol import (
    MIB,
    Capability,
    NodeReport,
    amounts_of,
    at_most,
    marked_cluster,
    nodes_of,
    problem_of,
    resource_option,
)

# From the documentation of Hadoop 3.3, Cluster Nodes API, in the two forms of old and new versions.
OLD = b"""{"nodes":{"node":[
  {"rack":"/default-rack","state":"NEW","id":"h2:1235","nodeHostName":"h2","nodeHTTPAddress":"h2:2",
   "healthStatus":"Healthy","lastHealthUpdate":1324056895432,"healthReport":"Healthy","numContainers":0,
   "usedMemoryMB":0,"availMemoryMB":8192,"usedVirtualCores":0,"availableVirtualCores":8},
  {"rack":"/default-rack","state":"RUNNING","id":"h1:1234","nodeHostName":"h1","nodeHTTPAddress":"h1:2",
   "healthReport":null,"usedMemoryMB":1024,"availMemoryMB":-512,"usedVirtualCores":2,"availableVirtualCores":6}
]}}""".replace(b'"healthReport":null,', b"")


def test_the_documented_answer() -> None:
    nodes = nodes_of(OLD)
    assert nodes["h2:1235"] == NodeReport("h2:1235", "h2", "NEW", Capability(8, 8192), Capability(0, 0), "Healthy")
    assert nodes["h1:1234"].total == Capability(8, 512), "what is used may exceed the total"
    assert nodes["h1:1234"].used == Capability(2, 1024)


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        pytest.param(b'{"nodes":null}', [], id="null"),
        pytest.param(b'{"nodes":""}', [], id="text"),
        pytest.param(b'{"nodes":{}}', [], id="no-array"),
        pytest.param(b'{"nodes":{"node":[]}}', [], id="empty"),
        pytest.param(b'{"nodes":{"node":{"id":"a:1","state":"RUNNING"}}}', ["a:1"], id="one-without-array"),
        pytest.param(b'{"nodes":{"node":[{"id":"a:1","usedMemoryMB":"12"}]}}', ["a:1"], id="numbers-as-text"),
    ],
)
def test_forms_of_lists(body: bytes, ids: list[str]) -> None:
    assert list(nodes_of(body)) == ids


def test_the_host_is_that_of_the_id_where_none_is_stated() -> None:
    assert nodes_of(b'{"nodes":{"node":[{"id":"worker-1:45454"}]}}')["worker-1:45454"].host == "worker-1"


def test_amounts_that_no_node_has_are_cut() -> None:
    report = nodes_of(b'{"nodes":{"node":[{"id":"a:1","totalResource":{"memory":9223372036854775807,"vCores":-4}}]}}')
    assert report["a:1"].total == Capability(0, (1 << 55) // MIB)


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), st.just(b"[" * 100_000)))
def test_what_is_no_list_of_nodes_is_refused_in_one_way(body: bytes) -> None:
    try:
        nodes_of(body)
    except ValueError as error:
        assert "no list of nodes" in str(error)
    assert len(problem_of(body)) <= 200


def test_the_body_that_sets_a_resource() -> None:
    wanted = Capability(3, 2048)
    assert resource_option(wanted, 30.0) == b'{"resource":{"memory":2048,"vCores":3},"overCommitTimeout":30000}'
    assert resource_option(wanted, -1).endswith(b'"overCommitTimeout":-1}')


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 50), st.integers(1, 5000))
def test_offers_are_rounded_down(millicores: int, size: int, scale: int) -> None:
    back = amounts_of(at_most((millicores, size), scale), scale)
    assert millicores - scale < back[0] <= millicores
    assert size - MIB < back[1] <= size


def test_a_pod_without_a_mark_belongs_to_the_only_cluster() -> None:
    assert marked_cluster("", {"a": 1}) == "a"
    assert marked_cluster("", {"a": 1, "b": 1}) == ""
    assert marked_cluster("b", {"a": 1, "b": 1}) == "b"
    assert marked_cluster("c", {"a": 1}) == ""


def test_the_sentence_of_a_remote_exception() -> None:
    said = {"exception": "NotFoundException", "message": "nodeId, a, is\nnot found", "javaClassName": "x"}
    body = json.dumps({"RemoteException": said}).encode()
    assert problem_of(body) == "NotFoundException: nodeId, a, is not found"
