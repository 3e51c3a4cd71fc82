"""The table that tests/cluster_e2e/test_webhooks.py puts to the policies, put to the rules; the chart's objects."""

import tomllib
from typing import Any

import msgspec
import pytest

from api.crds import ElasticQuota
from api.settings import convert
from controllers.runtime.settings import ManagerSettings
from controllers.webhooks.review import UserInfo
from controllers.webhooks.routes import ROUTES
from controllers.webhooks.rules.protected_keys import FORBIDDEN_KEYS, SCHEDULER_KEYS
from controllers.webhooks.rules.quota_object import parsed
from controllers.webhooks.settings import WebhookSettings
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import review
from tests.deploy.admission_cases import GRANT, PODS, QUOTAS, PodCase, QuotaCase
from tests.deploy.charts import ROOT, documents

VALUES: dict[str, Any] = {
    "manager": {"enabled": True},
    "webhooks": {"enabled": True, "reservations": True, "nodeStatus": True},
}
QUOTA_RESOURCE = ("scheduling.sigs.k8s.io", "elasticquotas")
VALIDATE_QUOTA = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"


def may_bind(user: UserInfo, _namespace: str) -> bool:
    return user.username == "scheduler"


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_rules_on_pods(case: PodCase) -> None:
    view = ClusterView(may_bind=may_bind, namespace_labels=lambda _: {GRANT: case.granted})
    user = "scheduler" if case.scheduler else "tenant"
    new, old = (case.updated(case.stored), case.stored) if case.updates else (case.stored, None)
    done = review("/validate-pod", view, obj=new, old=old, user=user, namespace="shop")
    assert done.allowed == (not case.refusal), done.message
    assert case.refusal in done.message


@pytest.mark.parametrize("case", QUOTAS, ids=lambda case: case.name)
def test_rules_on_quotas(case: QuotaCase) -> None:
    known = parsed(msgspec.convert(case.quota, ElasticQuota))
    view = ClusterView(quotas={known.name: known} if case.later or case.deleted else {})
    given: dict[str, Any] = {"obj": case.quota}
    if case.later is not None:
        given = {"obj": case.later.quota, "old": case.quota}
    elif case.deleted:
        given = {"old": case.quota}
    done = review(VALIDATE_QUOTA, view, resource=QUOTA_RESOURCE, namespace="", **given)
    assert done.allowed == (not case.refusal), done.message
    assert case.refusal in done.message


def configurations() -> list[dict[str, Any]]:
    found = [each for each in documents(VALUES) if each["kind"].endswith("WebhookConfiguration")]
    assert {each["metadata"]["name"] for each in found} == {WebhookSettings().configuration}
    return [webhook for each in found for webhook in each["webhooks"]]


def test_every_webhook_has_its_path_and_every_path_its_webhook() -> None:
    found = configurations()
    assert sorted(each["clientConfig"]["service"]["path"] for each in found) == sorted(ROUTES)
    for each in found:
        route = ROUTES[each["clientConfig"]["service"]["path"]]
        (rule,) = each["rules"]
        assert f"{rule['apiGroups'][0]}/{rule['resources'][0].partition('/')[0]}" == route.resource
        assert each["sideEffects"] == "None"
        assert each["timeoutSeconds"] <= 10


def test_pods_of_our_own_and_of_system_namespaces_are_never_sent() -> None:
    for each in configurations():
        if each["rules"][0]["resources"] == ["pods"]:
            (expression,) = each["namespaceSelector"]["matchExpressions"]
            assert set(expression["values"]) == WebhookSettings().exempt
            assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
            assert each["failurePolicy"] == "Ignore", "policies hold while the webhook is away"


def test_policy_and_rule_protect_the_same_keys() -> None:
    text = (ROOT / "deploy/policies/pod-allocations.yaml").read_text()
    assert [key for key in (*SCHEDULER_KEYS, *FORBIDDEN_KEYS) if f"'{key}'" not in text] == []


def test_service_and_secret_are_those_of_the_settings() -> None:
    found = {(each["kind"], each["metadata"]["name"]) for each in documents(VALUES)}
    settings = WebhookSettings()
    assert ("Service", settings.service) in found
    (role,) = (
        each for each in documents(VALUES) if each["kind"] == "Role" and each["metadata"]["name"] == "koord-webhook"
    )
    assert role["rules"][1]["resourceNames"] == [settings.secret]
    assert role["metadata"]["namespace"] == settings.namespace
    assert not [each for each in documents() if "WebhookConfiguration" in each["kind"]], "off by default"


def test_nothing_calls_webhooks_that_no_manager_serves() -> None:
    # Quotas would be refused by every call that fails.
    assert documents({"webhooks": VALUES["webhooks"]}) == documents()


def test_the_manager_of_the_chart_serves_what_the_chart_calls() -> None:
    webhooks = {"enabled": True, "port": 9999, "settings": 'restricted_classes = ["LSE", "SYSTEM"]'}
    (found,) = (
        each
        for each in documents({"manager": {"enabled": True}, "webhooks": webhooks})
        if each["kind"] == "ConfigMap" and "manager.toml" in each["data"]
    )
    settings = convert(tomllib.loads(found["data"]["manager.toml"]), ManagerSettings, "manager.toml").webhook
    assert settings.enabled
    assert (settings.port, settings.namespace) == (9999, WebhookSettings().namespace)
    assert settings.restricted_classes == ("LSE", "SYSTEM")


RIGHTS = {
    ("", "namespaces"): ({"get", "list", "watch"}, "watched.py", "Informer(client, NAMESPACES"),
    ("scheduling.k8s.io", "priorityclasses"): ({"list", "watch"}, "watched.py", "Informer(client, PRIORITY_CLASSES"),
    ("config.koordinator.sh", "clustercolocationprofiles"): (
        {"list", "watch"},
        "watched.py",
        "custom(CLUSTER_COLOCATION_PROFILE)",
    ),
    ("scheduling.sigs.k8s.io", "elasticquotas"): ({"list", "watch"}, "watched.py", "custom(ELASTIC_QUOTA)"),
    ("quota.koordinator.sh", "elasticquotaprofiles"): (
        {"list", "watch"},
        "watched.py",
        "custom(ELASTIC_QUOTA_PROFILE)",
    ),
    ("", "nodes"): ({"list"}, "watched.py", "list(NODES"),
    ("", "pods"): ({"list"}, "watched.py", "list(PODS"),
    ("authorization.k8s.io", "subjectaccessreviews"): ({"create"}, "access.py", "create(REVIEWS"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): (
        {"get", "patch"},
        "certificate_keeper.py",
        "MUTATING_WEBHOOK_CONFIGURATIONS",
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): (
        {"get", "patch"},
        "certificate_keeper.py",
        "VALIDATING_WEBHOOK_CONFIGURATIONS",
    ),
}
"""Verbs of the cluster role; a file of controllers/webhooks that uses them and what it says there."""


def test_the_role_has_exactly_the_rights_that_are_used() -> None:
    (role,) = (
        each
        for each in documents(VALUES)
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "koord-webhook"
    )
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {key: verbs for key, (verbs, _, _) in RIGHTS.items()}
    for _, file, use in RIGHTS.values():
        assert use in (ROOT / "controllers/webhooks" / file).read_text()
