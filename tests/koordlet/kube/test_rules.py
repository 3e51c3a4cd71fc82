"""Rules as objects: every field becomes what the settings make of it, errors name object and key, changes arrive."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.crds import INTERFERENCE_DETECTION_RULE, InterferenceDetectionRuleSpec
from api.crds.definition import object_schema
from api.qos import QoSClass
from api.settings import SettingsError
from cluster import Client, Key, custom, merge_patch
from cluster.twin import Fault, FaultType, Twin
from detector.registry import default_rules, discover_symptoms
from detector.rules import Rule, Selector, load_rules
from koordlet.kube.rules import ClusterRules, rule_of
from tests.api.test_crds import SAMPLES
from tests.waiting import wait_for

SCHEMA = object_schema(INTERFERENCE_DETECTION_RULE.model)
SYMPTOMS = frozenset(discover_symptoms())
RULES = custom(INTERFERENCE_DETECTION_RULE)
WHOLE = SAMPLES["InterferenceDetectionRule"]["spec"]


def document(name: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": INTERFERENCE_DETECTION_RULE.api_version, "kind": INTERFERENCE_DETECTION_RULE.kind}
    return head | {"metadata": {"name": name}, "spec": spec}


def test_every_field_becomes_the_rules() -> None:
    assert rule_of(document("web", **WHOLE), SYMPTOMS) == Rule(
        name="web",
        all_of=("cpu_contention",),
        any_of=("reclaim", "compaction"),
        unless_measured=("pressure",),
        threshold=0.1,
        qos_thresholds={QoSClass.BE: 1.0, QoSClass.LS: 0.05},
        selector=Selector(("/kubepods*",), (QoSClass.LS, QoSClass.LSR)),
        ticks=3,
        of_ticks=5,
        progress_ratio=0.1,
        least_ratio=0.5,
        at_once_ratio=4.0,
        close_ratio=0.25,
        hold_seconds=20.0,
        cooldown_seconds=30.0,
    )
    changed = {field.name for field in msgspec.structs.fields(Rule)}
    assert set(WHOLE) == {field.encode_name for field in msgspec.structs.fields(InterferenceDetectionRuleSpec)}
    assert changed - {"name"} == {field.name for field in msgspec.structs.fields(InterferenceDetectionRuleSpec)}


losses = st.floats(0.001, 100)
some = st.lists(st.sampled_from(sorted(SYMPTOMS)), max_size=3, unique=True).map(tuple)
any_rule = st.builds(
    Rule,
    name=st.just("made"),
    all_of=some,
    any_of=some.filter(bool),
    unless_measured=some,
    threshold=losses,
    qos_thresholds=st.dictionaries(st.sampled_from(QoSClass), losses),
    selector=st.builds(
        Selector,
        paths=st.lists(st.text(min_size=1), max_size=2).map(tuple),
        qos=st.lists(st.sampled_from(QoSClass), max_size=2).map(tuple),
    ),
    ticks=st.integers(1, 5),
    of_ticks=st.integers(5, 60),
    progress_ratio=st.floats(0, 1),
    least_ratio=st.floats(0.01, 1),
    at_once_ratio=st.floats(1, 100),
    close_ratio=st.floats(0.01, 1),
    hold_seconds=st.floats(0, 3600),
    cooldown_seconds=st.floats(0, 3600),
)


@given(any_rule | st.sampled_from(default_rules()))
def test_every_rule_can_be_an_object_that_the_schema_admits(rule: Rule) -> None:
    plain = msgspec.to_builtins(rule)
    del plain["name"]
    wire = {field.name: field.encode_name for field in msgspec.structs.fields(InterferenceDetectionRuleSpec)}
    spec = {wire[key]: value for key, value in plain.items()}
    made = msgspec.json.decode(msgspec.json.encode(document(rule.name, **spec)))
    jsonschema.validate(made, SCHEMA)
    assert rule_of(made, SYMPTOMS) == rule


def test_absent_fields_are_those_of_the_settings() -> None:
    (from_settings,) = load_rules('[rules.web]\nany_of = ["reclaim"]', "rules.toml", SYMPTOMS)
    assert rule_of(document("web", anyOf=["reclaim"]), SYMPTOMS) == from_settings


@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param({"limit": 1.0}, "spec.limit", id="unknown key"),
        pytest.param({"any_of": ["reclaim"]}, "spec.any_of", id="the settings' spelling"),
        pytest.param({"threshold": 0.0}, "spec.threshold", id="out of range"),
        pytest.param({"ofTicks": "five"}, "spec.ofTicks", id="wrong type"),
        pytest.param({"ofTicks": 61}, "spec.ofTicks", id="too many ticks"),
        pytest.param({"ticks": 4}, "spec.ticks", id="never holds"),
        pytest.param({"closeRatio": 1.5}, "spec.closeRatio", id="ratio"),
        pytest.param({"anyOf": ["reclame"]}, "spec.anyOf", id="unknown symptom"),
        pytest.param({"anyOf": []}, "spec.anyOf", id="no symptom"),
        pytest.param({"selector": {"paths": "x"}}, "spec.selector.paths", id="nested"),
        pytest.param({"selector": {"names": []}}, "spec.selector.names", id="nested unknown key"),
        pytest.param({"qosThresholds": {"XL": 1.0}}, "spec.qosThresholds", id="class"),
        pytest.param({"qosThresholds": {"BE": 0.0}}, "spec.qosThresholds", id="class threshold"),
    ],
)
def test_errors_name_object_and_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rule_of(document("web", **({"anyOf": ["reclaim"]} | change)), SYMPTOMS)
    assert f"InterferenceDetectionRule: rule web: {key}" in str(caught.value)


def test_an_object_without_a_spec_is_told() -> None:
    with pytest.raises(SettingsError, match="rule web: spec"):
        rule_of({"metadata": {"name": "web"}}, SYMPTOMS)


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        running.serve(RULES, status=False)
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client() as opened:
        yield opened


@pytest.fixture
def rules(client: Client) -> Iterator[ClusterRules]:
    watching = ClusterRules(client, SYMPTOMS, default_rules())
    watching.start()
    assert watching.informer.wait_synced(20.0)
    yield watching
    watching.close()


def await_rules(rules: ClusterRules) -> list[str]:
    return [rule.name for rule in wait_for(rules.newest)]


def test_rules_come_change_and_go(client: Client, rules: ClusterRules) -> None:
    assert rules.newest() is None, "without objects the settings' rules stand"
    client.create(RULES, document("b", anyOf=["reclaim"]))
    assert await_rules(rules) == ["b"]
    client.create(RULES, document("a", anyOf=["compaction"]))
    assert await_rules(rules) == ["a", "b"]
    assert rules.newest() is None
    client.delete(RULES, Key("", "a"))
    assert await_rules(rules) == ["b"]
    client.delete(RULES, Key("", "b"))
    assert await_rules(rules) == [rule.name for rule in default_rules()]


def test_a_wrong_object_keeps_the_last_good_rule(
    client: Client, rules: ClusterRules, caplog: pytest.LogCaptureFixture
) -> None:
    client.create(RULES, document("web", anyOf=["reclaim"], threshold=0.3))
    assert await_rules(rules) == ["web"]
    client.patch(RULES, Key("", "web"), merge_patch({"spec": {"anyOf": ["reclame"]}}))
    wait_for(lambda: rules.errors == 1)
    assert rules.newest() is None
    client.create(RULES, document("never-good", anyOf=["reclame"]))
    wait_for(lambda: rules.errors == 2)
    assert rules.informer.counters.subscriber_errors == 0
    assert "the rule stays as it was" in caplog.text
    assert "nothing is judged by it" in caplog.text
    client.patch(RULES, Key("", "web"), merge_patch({"spec": {"anyOf": ["reclaim"], "threshold": 0.4}}))
    assert await_rules(rules) == ["web"]


def test_what_does_not_matter_is_no_change(client: Client, rules: ClusterRules) -> None:
    client.create(RULES, document("web", anyOf=["reclaim"]))
    assert await_rules(rules) == ["web"]
    client.patch(RULES, Key("", "web"), merge_patch({"metadata": {"labels": {"a": "b"}}}))
    client.create(RULES, document("z", anyOf=["reclaim"]))
    assert await_rules(rules) == ["web", "z"]


def test_a_server_that_is_away_keeps_the_rules(twin: Twin, client: Client, rules: ClusterRules) -> None:
    client.create(RULES, document("web", anyOf=["reclaim"]))
    assert await_rules(rules) == ["web"]
    twin.faults.add(Fault(FaultType.ERROR, verbs=frozenset({"list", "watch"}), status=503))
    twin.drop_watches()
    wait_for(lambda: rules.informer.counters.failures >= 2)
    assert rules.newest() is None
    twin.faults.clear()
    client.create(RULES, document("more", anyOf=["reclaim"]))
    assert await_rules(rules) == ["more", "web"]


def test_a_cluster_without_the_kind_leaves_the_settings_rules() -> None:
    with Twin() as bare, bare.client() as opened:
        watching = ClusterRules(opened, SYMPTOMS, default_rules())
        watching.start()
        assert watching.informer.wait_synced(20.0)
        assert not watching.informer.served
        assert watching.newest() is None
        watching.close()
