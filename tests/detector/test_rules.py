"""Rules from text: what fits, and errors that name rule and key."""

import pytest

from api.frame import CgroupInfo
from api.settings import SettingsError, parse
from detector.registry import default_rules
from detector.rules import load_rules, rules_of

SYMPTOMS = frozenset({"cpu_contention", "own_quota"})
GOOD = """
[rules.web]
all_of = ["cpu_contention"]
any_of = ["own_quota"]
threshold = 0.1
qos_thresholds = {BE = 1.0}
selector = {paths = ["/kube*/web"]}
"""


def test_a_rule_and_its_thresholds() -> None:
    (rule,) = load_rules(GOOD, "rules.toml", SYMPTOMS)
    assert (rule.name, rule.symptoms) == ("web", ("cpu_contention", "own_quota"))
    assert rule.threshold_of(CgroupInfo(1, "/kube-1/web", "web", "LS")) == 0.1
    assert rule.threshold_of(CgroupInfo(1, "/kube-1/web", "web", "BE")) == 1.0
    assert rule.threshold_of(CgroupInfo(1, "/other/web", "web")) == float("inf")


def test_tables_of_a_settings_file_make_the_same_rules() -> None:
    assert rules_of(parse(GOOD, "rules.toml")["rules"], "x.toml", SYMPTOMS) == load_rules(GOOD, "rules.toml", SYMPTOMS)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("any_of = ['own_quota']\nlimit = 1.0", "limit", id="unknown-key"),
        pytest.param("any_of = ['own_quota']\nthreshold = 0.0", "threshold", id="out-of-range"),
        pytest.param("any_of = ['own_quota']\nticks = 'two'", "ticks", id="wrong-type"),
        pytest.param("any_of = ['own_quota']\nticks = 4\nof_ticks = 3", "ticks", id="never-holds"),
        pytest.param("any_of = ['own_qouta']", "any_of", id="unknown-symptom"),
        pytest.param("threshold = 0.1", "any_of", id="no-symptom"),
        pytest.param("any_of = ['own_quota']\nname = 'x'", "name", id="named-twice"),
    ],
)
def test_errors_name_rule_and_key(text: str, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_rules(f"[rules.web]\n{text}", "rules.toml", SYMPTOMS)
    assert "rules.toml: rule web" in str(caught.value)
    assert key in str(caught.value)


def test_keys_beside_rules_are_refused() -> None:
    with pytest.raises(SettingsError, match="rule_s"):
        load_rules("[rule_s.web]", "rules.toml", SYMPTOMS)


@pytest.mark.parametrize(("qos", "told"), [("", True), ("LS", True), ("SYSTEM", True), ("BE", False)])
def test_best_effort_work_is_meant_to_wait_for_a_cpu(qos: str, told: bool) -> None:
    (rule,) = (rule for rule in default_rules() if rule.name == "cpu-contention")
    assert (rule.threshold_of(CgroupInfo(1, "/one", "one", qos)) < 1.0) is told
