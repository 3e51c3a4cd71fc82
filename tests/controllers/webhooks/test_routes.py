"""Reviews on the wire: malformed ones, and objects of every shape through every rule."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.twin.patches import json_patch
from controllers.webhooks.json_patch import difference
from controllers.webhooks.review import Request
from controllers.webhooks.routes import ROUTES, Route, reply
from controllers.webhooks.rules.protected_keys import FORBIDDEN_KEYS, SCHEDULER_KEYS
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import EXEMPT, PRIORITY_CLASSES, Document, container, pod, profile, review

FUZZED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def no_view() -> ClusterView:
    raise AssertionError("no rule was to be asked")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="torn"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"{}", id="nothing"),
        pytest.param(b"\xff\xfe", id="bytes"),
        pytest.param(b'{"apiVersion":"v1","kind":"Pod","request":{"uid":"","operation":""}}', id="pod"),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":null}', id="beta"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_a_body_that_is_no_review_is_answered_in_a_line(body: bytes) -> None:
    answer = reply("/mutate-pod", body, no_view, EXEMPT)
    assert answer.status == 400
    assert answer.body.count(b"\n") == 1
    assert b"Traceback" not in answer.body


def test_unknown_paths_and_foreign_resources() -> None:
    assert reply("/mutate-pods", b"{}", no_view, EXEMPT).status == 404
    done = review("/mutate-pod", ClusterView(), obj=pod(), resource=("apps", "deployments"))
    assert done.code == 400
    assert done.message == "this webhook is for pods"


def test_what_a_rule_did_not_foresee_stays_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_request: Request, _view: ClusterView) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr("controllers.webhooks.routes.ROUTES", {"/mutate-pod": Route(broken, "/pods")})
    done = review("/mutate-pod", ClusterView(), obj=pod())
    assert done.code == 500
    assert "secret" not in done.message
    assert "secret" in caplog.text


texts = st.text(max_size=8)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
quantities = st.sampled_from(["0", "1", "500m", "4Gi", "-1", "1e3", "many", "", "1.5", "9" * 30, 3, 0.5])
amounts = st.dictionaries(
    st.sampled_from(
        [
            "cpu",
            "memory",
            "kubernetes.io/batch-cpu",
            "koordinator.sh/batch-cpu",
            "koordinator.sh/gpu",
            "koordinator.sh/gpu.shared",
        ]
    ),
    quantities,
    max_size=4,
)
containers = st.fixed_dictionaries(
    {"name": texts},
    optional={"resources": st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts})},
)
labels = st.dictionaries(
    st.sampled_from(
        [
            "koordinator.sh/qosClass",
            "koordinator.sh/priority",
            "koordinator.sh/priority-class",
            "quota.scheduling.koordinator.sh/name",
            "quota.scheduling.koordinator.sh/parent",
            "quota.scheduling.koordinator.sh/is-parent",
            "app",
        ]
    ),
    st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", "koord-batch", "true", "q", "", "x"]),
    max_size=4,
)
annotations = st.dictionaries(
    st.sampled_from([*SCHEDULER_KEYS, *FORBIDDEN_KEYS, "node.koordinator.sh/extended-resource-spec", "mine"]),
    texts,
    max_size=3,
)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({}, optional={"labels": labels, "annotations": annotations}),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(containers, max_size=3)},
            optional={
                "initContainers": st.lists(containers, max_size=2),
                "priority": st.sampled_from([0, 3500, 5500, 7500, 9500, 2_000_000_000]),
                "overhead": amounts,
                "serviceAccountName": texts,
                "hostNetwork": st.booleans(),
            },
        ),
    }
)
documents = st.fixed_dictionaries(
    {}, optional={"metadata": json, "spec": json, "status": json, "data": json, "kind": json}
)
profiles = st.builds(
    profile,
    st.sampled_from(["a", "b", "c"]),
    qosClass=st.sampled_from(["", "LS", "BE", "LSR"]),
    priorityClassName=st.sampled_from(["", "koord-batch", "koord-mid", "gone"]),
    labels=st.dictionaries(texts, texts, max_size=2),
    annotationKeysMapping=st.dictionaries(
        st.sampled_from(["mine", "other"]), st.sampled_from([*SCHEDULER_KEYS, "copied"]), max_size=2
    ),
    labelSuffixes=st.dictionaries(st.sampled_from(["app", "absent"]), texts, max_size=2),
    probability=st.sampled_from([None, 0, 50, "30%", "x", 1000, -1]),
    patch=st.none() | st.dictionaries(st.sampled_from(["metadata", "spec", "$patch", "$retainKeys"]), json, max_size=2),
)


def sent(path: str, request: Mapping[str, Any], view: ClusterView) -> tuple[int, Document]:
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    answer = reply(path, body, lambda: view, EXEMPT)
    assert b"Traceback" not in answer.body
    return answer.status, msgspec.json.decode(answer.body) if answer.status == 200 else {}


def request_for(route: Route, obj: object, old: object, operation: str) -> Document:
    group, _, resource = route.resource.rpartition("/")
    return {
        "uid": "u",
        "operation": operation,
        "resource": {"group": group, "version": "v1", "resource": resource},
        "namespace": "shop",
        "name": "slo-controller-config",
        "userInfo": {"username": "u"},
        "object": obj,
        "oldObject": old,
    }


@pytest.mark.parametrize("path", ROUTES)
@FUZZED
@given(
    obj=documents | pods | st.none(),
    old=documents | pods | st.none(),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
)
def test_no_object_breaks_a_rule(path: str, obj: Document | None, old: Document | None, operation: str) -> None:
    status, answer = sent(path, request_for(ROUTES[path], obj, old, operation), ClusterView(multi_quota_tree=True))
    assert status in (200, 400)
    if status == 200:
        response = answer["response"]
        assert response["allowed"] or response["status"]["code"] in (400, 403), response


@settings(FUZZED, max_examples=150)
@given(
    document=pods,
    found=st.lists(profiles, max_size=3, unique_by=lambda item: item.metadata.name),
    draw=st.integers(0, 99),
)
def test_mutation_gives_no_rights_and_repeats_itself(document: Document, found: list[Any], draw: int) -> None:
    ordered = sorted(found, key=lambda item: item.metadata.name)
    view = ClusterView(profiles=ordered, priority_classes=PRIORITY_CLASSES, draw=draw, validate_devices=True)
    request = request_for(ROUTES["/mutate-pod"], document, None, "CREATE")
    _, answer = sent("/mutate-pod", request, view)
    response = answer["response"]
    assert response["allowed"] or response["status"]["code"] in (400, 403), response
    if not response["allowed"]:
        return
    stored = json_patch(document, msgspec.json.decode(base64.b64decode(response.get("patch", "W10="))))
    before = document["metadata"].get("annotations", {})
    after = stored["metadata"].get("annotations", {})
    for key in (*SCHEDULER_KEYS, *FORBIDDEN_KEYS):
        assert before.get(key) == after.get(key), "only schedulers write this"
    patched = {name for item in found if item.spec.patch for name in item.spec.patch}
    if not patched:
        for field in ("serviceAccountName", "hostNetwork"):
            assert stored["spec"].get(field) == document["spec"].get(field)
        mapped = any(item.spec.label_suffixes or item.spec.labels for item in found)
        again = sent("/mutate-pod", {**request, "object": stored}, view)[1]["response"]
        assert mapped or "patch" not in again, "a second pass changes nothing"
    checked = sent("/validate-pod", {**request_for(ROUTES["/validate-pod"], stored, None, "CREATE")}, view)[1][
        "response"
    ]
    if any(key in after for key in (*SCHEDULER_KEYS, *FORBIDDEN_KEYS)):
        assert not checked["allowed"], "whatever the profiles did, validation has the last word"


@FUZZED
@given(before=json, after=json)
def test_a_patch_makes_one_document_of_the_other(before: Any, after: Any) -> None:
    document, wanted = {"a": before}, {"a": after, "~/": 1}
    assert json_patch(document, difference(document, wanted)) == wanted
    assert difference(wanted, wanted) == []


def test_dry_run_is_answered_alike() -> None:
    body = {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}, "object": pod(None, container())}
    view = ClusterView(profiles=[profile(labels={"a": "b"})])
    answers = [sent("/mutate-pod", {**body, "dryRun": dry}, view) for dry in (False, True)]
    assert answers[0] == answers[1]
