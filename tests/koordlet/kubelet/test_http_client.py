"""The kubelet's HTTPS interface: trust, credentials, refusals, addresses."""

from pathlib import Path

import msgspec
import pytest

from koordlet.kubelet import http_client
from koordlet.kubelet.http_client import KubeletClient, KubeletUnavailable
from koordlet.kubelet.settings import KubeletSettings
from tests.koordlet.kubelet.recordings import recorded
from tests.koordlet.kubelet.servers import KubeletServer, make_certificate


def changed(settings: KubeletSettings, **given: object) -> KubeletSettings:
    return msgspec.structs.replace(settings, **given)


def test_a_certificate_that_names_the_node_is_trusted_at_its_address(
    settings: KubeletSettings, kubelet: KubeletServer
) -> None:
    client = KubeletClient(settings, "node-0")
    assert client.pods() == recorded("pods.json")
    assert client.configz() == recorded("configz.json")
    assert client.endpoint == kubelet.url
    client.close()


def test_a_certificate_of_another_node_is_not(settings: KubeletSettings) -> None:
    with pytest.raises(KubeletUnavailable, match="not trusted") as refused:
        KubeletClient(settings, "node-1").pods()
    assert "server_name" in refused.value.remedy


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_of_another_authority_is_not_unless_asked_for(settings: KubeletSettings, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_certificate(tmp_path / "other", "DNS:node-0")
    other = changed(settings, ca_file=str(tmp_path / "other/ca.crt"))
    with pytest.raises(KubeletUnavailable, match="not trusted") as refused:
        KubeletClient(other, "node-0").pods()
    assert "insecure_tls" in refused.value.remedy
    assert KubeletClient(changed(other, insecure_tls=True), "node-1").pods()


def test_the_token_is_read_again_when_it_rotates(settings: KubeletSettings, kubelet: KubeletServer) -> None:
    client = KubeletClient(settings, "node-0")
    client.pods()
    kubelet.token = "another"
    with pytest.raises(KubeletUnavailable, match="401"):
        client.pods()
    Path(settings.token_file).write_text("another")
    assert client.pods()
    client.close()


@pytest.mark.parametrize(
    ("status", "reason", "remedy"),
    [
        pytest.param(401, "401", "authentication.webhook", id="unauthorized"),
        pytest.param(403, "may not read nodes/pods", "nodes/proxy", id="forbidden"),
        pytest.param(500, "500", "", id="broken"),
    ],
)
def test_a_refusal_says_what_is_missing(
    settings: KubeletSettings, kubelet: KubeletServer, status: int, reason: str, remedy: str
) -> None:
    kubelet.answers["/pods"] = status
    with pytest.raises(KubeletUnavailable, match=reason) as refused:
        KubeletClient(settings, "node-0").pods()
    assert remedy in refused.value.remedy


def test_a_configuration_that_may_not_be_read_names_its_own_rule(
    settings: KubeletSettings, kubelet: KubeletServer
) -> None:
    kubelet.answers["/configz"] = 403
    with pytest.raises(KubeletUnavailable, match="nodes/configz"):
        KubeletClient(settings, "node-0").configz()


def test_an_endless_answer_is_cut_off(
    settings: KubeletSettings, kubelet: KubeletServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 1000)
    kubelet.answers["/pods"] = b"x" * 1001
    with pytest.raises(KubeletUnavailable, match="longer than 1000"):
        KubeletClient(settings, "node-0").pods()
    kubelet.answers["/pods"] = b"x" * 1000
    assert len(KubeletClient(settings, "node-0").pods()) == 1000


def test_the_nodes_own_address_is_asked_where_loopback_does_not_answer(
    settings: KubeletSettings, kubelet: KubeletServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "DEFAULT_ENDPOINT", "https://127.0.0.1:1")
    client = KubeletClient(changed(settings, endpoint=""), "node-0", lambda: (kubelet.url,))
    assert client.pods()
    assert client.endpoint == kubelet.url
    client.close()


def test_no_answer_names_address_and_remedy(settings: KubeletSettings) -> None:
    with pytest.raises(KubeletUnavailable, match=r"https://127\.0\.0\.1:1: no answer") as refused:
        KubeletClient(changed(settings, endpoint="https://127.0.0.1:1"), "node-0").pods()
    assert "endpoint" in refused.value.remedy


def test_files_that_are_none_name_the_setting(settings: KubeletSettings, tmp_path: Path) -> None:
    for key in ("ca_file", "client_certificate"):
        with pytest.raises(KubeletUnavailable) as refused:
            KubeletClient(changed(settings, **{key: str(tmp_path / "missing")}), "node-0").pods()
        assert key in refused.value.remedy


def test_the_read_only_port_gets_no_token(settings: KubeletSettings) -> None:
    with KubeletServer(None, {"/pods": b"{}"}) as plain:
        client = KubeletClient(changed(settings, read_only_port=plain.port), "node-0")
        assert client.pods() == b"{}"
        client.close()
