"""The chart: its manifests are up to date, it asks for little, and Helm renders it as we do."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from koordlet.config import AgentSettings, load_settings
from tests.deploy.charts import documents, helm_documents, one, renderer

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "enforce": {"koordlet": {"enforce": True}},
    "network": {"koordlet": {"enforce": True, "network": True}},
    "privileged": {"koordlet": {"privileged": True}},
    "tls": {"koordlet": {"metricsSecret": "koord-metrics", "metricsClientCertificates": True}},
    "standalone": {"koordlet": {"standalone": True}, "image": {"tag": "x"}},
}


POLICIES = ("nodeReports", "podAllocations", "podClasses", "exclusiveClasses", "elasticQuotas")


def container(values: dict[str, Any] | None = None) -> dict[str, Any]:
    (found,) = one("DaemonSet", values)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def pod_spec(values: dict[str, Any] | None = None) -> dict[str, Any]:
    return dict(one("DaemonSet", values)["spec"]["template"]["spec"])


def mounts(values: dict[str, Any] | None = None) -> dict[str, bool]:
    return {each["mountPath"]: each.get("readOnly", False) for each in container(values)["volumeMounts"]}


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    expected = renderer.manifests()
    stored = {path: path.read_text() for path in renderer.MANIFESTS.glob("*.yaml")}
    assert stored == expected, "run: python deploy/render.py"


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_helm_renders_the_same(variant: str, tmp_path: Path) -> None:
    found = helm_documents(VARIANTS[variant], tmp_path / "values.yaml")
    if found is None:
        pytest.skip("neither helm nor its library for Python (helm-python-sdk) is here")

    def ordered(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))

    assert ordered(found) == ordered(documents(VARIANTS[variant], hooks=True))


def test_the_chart_brings_every_custom_resource_definition() -> None:
    brought = {path.name for path in (renderer.CHART / "crds").glob("*.yaml")}
    assert brought == {path.name for path in (renderer.HERE / "crds").glob("*.yaml")} != set()


def test_the_chart_brings_every_policy() -> None:
    policies = sorted((renderer.HERE / "policies").glob("*.yaml"))
    wanted = [document for path in policies for document in yaml.safe_load_all(path.read_text())]
    assert policies
    values = {"policies": dict.fromkeys(POLICIES, True)}
    found = [each for each in documents(values) if each["kind"].startswith("ValidatingAdmission")]

    def named(each: dict[str, Any]) -> tuple[str, str]:
        return each["metadata"]["name"], each["kind"]

    assert sorted(found, key=named) == sorted(wanted, key=named)
    none = documents({"policies": dict.fromkeys(POLICIES, False)})
    assert not [each for each in none if each["kind"].startswith("ValidatingAdmission")]


def test_an_observing_agent_may_write_to_its_own_directories_only() -> None:
    security = container()["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["BPF", "PERFMON"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    writable = {path for path, read_only in mounts().items() if not read_only}
    assert writable == {"/run/koord", "/var/lib/koord", "/var/log/koord", "/tmp"}
    assert "hostNetwork" not in one("DaemonSet")["spec"]["template"]["spec"]


def test_an_enforcing_agent_may_write_to_cgroups() -> None:
    values = VARIANTS["enforce"]
    assert not mounts(values)["/sys/fs/cgroup"]
    assert "--enforce" in container(values)["args"]
    added = container(values)["securityContext"]["capabilities"]["add"]
    assert added == ["BPF", "PERFMON", "DAC_OVERRIDE", "SYS_RESOURCE"]
    assert mounts(values)["/var/run/nri"] is False
    assert "initContainers" not in pod_spec(values)


def test_before_an_observing_agent_starts_the_actions_of_an_enforcing_one_are_restored() -> None:
    (restorer,) = pod_spec()["initContainers"]
    assert restorer["command"] == ["koordlet", "restore"]
    assert "--all" not in restorer["args"]
    writable = {each["mountPath"] for each in restorer["volumeMounts"] if not each.get("readOnly", False)}
    assert writable == {"/sys/fs/cgroup", "/var/lib/koord", "/var/log/koord"}
    assert restorer["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "SYS_RESOURCE"]}


def test_before_an_uninstallation_a_job_has_every_node_restore() -> None:
    hooks = [each for each in documents(hooks=True) if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert {each["kind"] for each in hooks} == {"ServiceAccount", "Role", "RoleBinding", "Job"}
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"pre-delete"}
    (job,) = (each for each in hooks if each["kind"] == "Job")
    assert "--daemonset=koord-system/koordlet" in job["spec"]["template"]["spec"]["containers"][0]["args"]
    installed = {(each["kind"], each["metadata"]["name"]) for each in documents()}
    assert not installed & {(each["kind"], each["metadata"]["name"]) for each in hooks}


def test_resctrl_is_mounted_where_it_is_asked_for() -> None:
    assert "/sys/fs/resctrl" not in mounts()
    assert mounts({"koordlet": {"resctrl": True}})["/sys/fs/resctrl"] is True
    assert mounts({"koordlet": {"resctrl": True, "enforce": True}})["/sys/fs/resctrl"] is False


def test_an_observer_may_ask_kubelet_and_runtime() -> None:
    assert mounts()["/var/lib/kubelet"]
    assert mounts()["/run/containerd"]


@pytest.mark.parametrize("namespace", ["koord-system", "elsewhere"])
def test_the_policy_is_for_the_exact_account_of_the_agents(namespace: str) -> None:
    texts = renderer.rendered(namespace=namespace)["policies.yaml"]
    policy = next(each for each in yaml.safe_load_all(texts) if each["metadata"]["name"] == "koord-node-reports")
    (condition,) = policy["spec"]["matchConditions"]
    wanted = f"request.userInfo.username == 'system:serviceaccount:{namespace}:koordlet'"
    assert condition["expression"].strip() == wanted


def test_the_policy_can_be_left_out_where_tokens_name_no_node() -> None:
    names = {each["metadata"]["name"] for each in documents({"policies": {"nodeReports": False}})}
    assert "koord-node-reports" not in names


def test_traffic_classes_need_the_network_of_the_host() -> None:
    values = VARIANTS["network"]
    assert one("DaemonSet", values)["spec"]["template"]["spec"]["hostNetwork"]
    assert "NET_ADMIN" in container(values)["securityContext"]["capabilities"]["add"]


def test_privileged_stands_in_place_of_capabilities() -> None:
    security = container(VARIANTS["privileged"])["securityContext"]
    assert security["privileged"]
    assert not {"capabilities", "allowPrivilegeEscalation", "seccompProfile"} & security.keys()


def test_a_rollout_changes_few_nodes_at_once_and_waits_for_the_handover() -> None:
    spec = one("DaemonSet")["spec"]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
    assert spec["minReadySeconds"] >= 30
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 60
    assert spec["template"]["spec"]["priorityClassName"] == "system-node-critical"


def loaded(tmp_path: Path, values: dict[str, Any] | None = None) -> AgentSettings:
    """The settings as the agent finds them in its container."""
    data = one("ConfigMap", values)["data"]
    (volume,) = (each for each in pod_spec(values)["volumes"] if "configMap" in each)
    for item in volume["configMap"]["items"]:
        file = tmp_path / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
    return load_settings(tmp_path / "koordlet.toml")


def test_port_evictions_and_kubelet_have_one_source(tmp_path: Path) -> None:
    other = {
        "metricsPort": 9999,
        "evict": True,
        "kubeletDirectory": "/var/lib/k0s/kubelet",
        "settings": '[metrics]\nport = 1\nenabled = false\naddress = "127.0.0.1"\n[enforcer]\nevict = false\n',
    }
    settings = loaded(tmp_path, {"koordlet": other})
    (port,) = container({"koordlet": other})["ports"]
    assert settings.metrics.port == port["containerPort"] == 9999
    assert (settings.metrics.enabled, settings.metrics.address) == (True, "0.0.0.0")
    assert settings.enforcer.evict
    assert settings.kubelet.pod_resources_socket == "/var/lib/k0s/kubelet/pod-resources/kubelet.sock"
    assert settings.kubelet.root_directory in mounts({"koordlet": other})


@pytest.mark.parametrize("demanded", [False, True])
def test_metrics_by_tls_take_their_files_from_the_secret(tmp_path: Path, demanded: bool) -> None:
    values = {"koordlet": {"metricsSecret": "koord-metrics", "metricsClientCertificates": demanded}}
    metrics = loaded(tmp_path, values).metrics
    (mount,) = (each for each in container(values)["volumeMounts"] if each["name"] == "metrics")
    (volume,) = (each for each in pod_spec(values)["volumes"] if each["name"] == "metrics")
    assert volume["secret"] == {"secretName": "koord-metrics", "defaultMode": 0o400}
    assert mount["readOnly"]
    where = mount["mountPath"]
    assert (metrics.certificate, metrics.key) == (f"{where}/tls.crt", f"{where}/tls.key")
    assert metrics.client_ca == (f"{where}/ca.crt" if demanded else "")
    probes = [container(values)[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]
    assert [probe["scheme"] for probe in probes] == ["HTTPS", "HTTPS"]
    annotations = one("DaemonSet", values)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scheme"] == "https"
    plain = one("DaemonSet")["spec"]["template"]
    assert "prometheus.io/scheme" not in plain["metadata"]["annotations"]
    assert "metrics" not in {each["name"] for each in plain["spec"]["volumes"]}


@pytest.mark.parametrize("standalone", [False, True])
def test_a_standalone_agent_is_not_asked_to_report(tmp_path: Path, standalone: bool) -> None:
    settings = loaded(tmp_path, {"koordlet": {"standalone": standalone}})
    assert settings.cluster.enabled is not standalone
    assert ("--standalone" in container({"koordlet": {"standalone": standalone}})["args"]) is standalone


def test_the_settings_are_valid_and_a_change_of_them_rolls_the_agents(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    (port,) = container()["ports"]
    assert settings.metrics.port == port["containerPort"]
    assert not settings.enforcer.enabled
    assert not settings.enforcer.evict

    def annotation(values: dict[str, Any]) -> str:
        return str(one("DaemonSet", values)["spec"]["template"]["metadata"]["annotations"]["koord.sh/settings"])

    assert annotation({}) != annotation({"koordlet": {"settings": "interval_seconds = 2.0\n"}})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("{{ .Values.missing }}", "not set", id="unset-value"),
        pytest.param("{{ range .Values.a }}{{ end }}", "not known", id="range"),
        pytest.param("{{ .Values.a | upper }}", "not known", id="function"),
        pytest.param('{{ include "a" . }}', "not known", id="include"),
        pytest.param("{{ if .Values.a }}", "no `end`", id="open-if"),
        pytest.param("{{ .Values.a .Values.a }}", "not known", id="call-of-a-value"),
    ],
)
def test_what_the_renderer_does_not_know_is_refused(template: str, message: str) -> None:
    with pytest.raises(renderer.TemplateError, match=message):
        renderer.render(template, {"Values": {"a": "x"}}, "t.yaml")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        pytest.param("a: {{ .Values.n }}", "a: 3", id="number"),
        pytest.param("a: {{ .Values.n | quote }}", 'a: "3"', id="quoted"),
        pytest.param("a:\n  {{- if .Values.no }}\n  b\n  {{- end }}\n", "a:\n", id="untaken"),
        pytest.param("{{ if not .Values.no }}x{{ else }}y{{ end }}", "x", id="not"),
        pytest.param("{{ if .Values.no }}{{ .Values.missing }}{{ else }}y{{ end }}", "y", id="unset-but-untaken"),
        pytest.param("a:\n  {{- toYaml .Values.t | nindent 2 }}", "a:\n  k: v", id="yaml"),
    ],
)
def test_what_it_knows(template: str, text: str) -> None:
    scope = {"Values": {"n": 3, "no": False, "t": {"k": "v"}}}
    assert renderer.render(template, scope, "t.yaml") == text


def test_values_are_merged_table_by_table() -> None:
    assert renderer.merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d": []}) == {
        "a": {"b": 3, "c": 2},
        "d": [],
    }
    assert yaml.safe_load((renderer.CHART / "values.yaml").read_text())["koordlet"]["enforce"] is False
