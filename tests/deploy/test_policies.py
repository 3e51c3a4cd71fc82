"""The policies as files: complete, without templates, and of the objects that agents write."""

import yaml

from tests.deploy.node_reports import POLICY


def test_the_policy_is_bound_and_covers_what_agents_write() -> None:
    policy, binding = yaml.safe_load_all(POLICY.read_text())
    assert "{{" not in POLICY.read_text()
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    covered = {name for rule in rules for name in rule["resources"]}
    assert covered == {"nodemetrics", "nodemetrics/status", "devices", "noderesourcetopologies"}
    assert all(rule["operations"] == ["CREATE", "UPDATE", "DELETE"] for rule in rules)
