"""Certificates: made, read, staged, replaced, and kept by several replicas."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from cluster import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Client,
    Document,
    Key,
)
from cluster.twin import UNLIMITED, Twin
from controllers.webhooks import rotation
from controllers.webhooks.certificate_keeper import CertificateKeeper
from controllers.webhooks.certificates import CertificateError, Pair, facts, issue, load, server_context
from controllers.webhooks.rotation import STAGING_SECONDS, Kept, decoded, encoded, step
from controllers.webhooks.settings import WebhookSettings

NAMES = ("koord-webhook.koord-system.svc", "koord-webhook")
DAY = 86400.0


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return [issue(NAMES, 300) for _ in range(3)]


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        yield running


def never() -> Pair:
    raise AssertionError("no certificate was to be made")


def test_an_issued_certificate_says_what_it_is_for(pairs: list[Pair]) -> None:
    found = facts(pairs[0].certificate)
    assert found.names == set(NAMES)
    assert found.not_after_seconds - found.not_before_seconds == 300 * DAY
    load(server_context(), pairs[0])


@pytest.mark.parametrize("text", [pytest.param("", id="empty"), pytest.param("garbage", id="garbage"), "\x00"])
def test_what_is_no_certificate(text: str) -> None:
    with pytest.raises(CertificateError):
        facts(text)


def test_a_key_of_another_certificate_is_refused(pairs: list[Pair]) -> None:
    with pytest.raises(CertificateError, match="do not fit"):
        load(server_context(), Pair(pairs[0].certificate, pairs[1].key))


def test_openssl_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CertificateError, match="install it"):
        issue(NAMES, 1)


def test_a_certificate_is_trusted_before_it_is_used(pairs: list[Pair]) -> None:
    first, second, third = pairs
    begin = facts(first.certificate).not_before_seconds
    kept = step(Kept(), NAMES, begin, lambda: first)
    assert kept == Kept(current=first, trusted=(first.certificate,))
    assert step(kept, NAMES, begin + 199 * DAY, never) == kept
    staged = step(kept, NAMES, begin + 201 * DAY, lambda: second)
    assert staged.current == first
    assert staged.trusted == (first.certificate, second.certificate)
    assert step(staged, NAMES, begin + 201 * DAY + STAGING_SECONDS - 1, never) == staged
    used = step(staged, NAMES, begin + 201 * DAY + STAGING_SECONDS, never)
    assert used == Kept(current=second, trusted=(second.certificate, first.certificate)), (
        "old servers are still trusted"
    )
    assert step(used, ("other",), begin, lambda: third).current == third, "names that changed"


@pytest.mark.parametrize(
    ("broken", "now_days"),
    [
        pytest.param("expired", 301, id="expired"),
        pytest.param("garbage", 1, id="no-certificate"),
        pytest.param("renamed", 1, id="other-names"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_replaced_at_once(broken: str, now_days: int, pairs: list[Pair]) -> None:
    first, second, _ = pairs
    now = facts(first.certificate).not_before_seconds + now_days * DAY
    given = Pair("garbage", "") if broken == "garbage" else first
    fresh = issue((*NAMES, "new"), 600) if broken == "renamed" else issue(NAMES, 600)
    names = (*NAMES, "new") if broken == "renamed" else NAMES
    kept = step(Kept(current=given, trusted=(second.certificate,)), names, now, lambda: fresh)
    assert kept == Kept(current=fresh, trusted=(fresh.certificate,))


def test_a_clock_that_is_ahead_delays_nothing_for_ever(pairs: list[Pair]) -> None:
    first, second, _ = pairs
    begin = facts(first.certificate).not_before_seconds
    staged = Kept(current=first, staged=second, staged_at_seconds=begin + 50 * DAY, trusted=(first.certificate,))
    assert step(staged, NAMES, begin + DAY, never).current == second


def test_the_secret_holds_all_of_it(pairs: list[Pair]) -> None:
    trusted = (pairs[0].certificate, pairs[1].certificate)
    kept = Kept(current=pairs[0], staged=pairs[1], staged_at_seconds=7.0, trusted=trusted)
    assert decoded(encoded(kept)) == kept
    without = replace(kept, staged=None, staged_at_seconds=0.0)
    assert decoded(encoded(without)) == without


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(None, id="absent"),
        pytest.param({"data": None}, id="empty"),
        pytest.param({"data": {"tls.crt": "%", "tls.key": 3}}, id="no-base64"),
        pytest.param({"data": [], "metadata": {"annotations": {rotation.ANNOTATION_STAGED_AT: "soon"}}}, id="no-map"),
    ],
)
def test_a_secret_of_nonsense_holds_nothing(secret: Document | None) -> None:
    assert decoded(secret) == Kept()


def keeper(client: Client) -> CertificateKeeper:
    return CertificateKeeper(client, WebhookSettings(), server_context(), random=Random(0))


def test_replicas_share_one_certificate_and_tell_the_api_server(twin: Twin) -> None:
    with Client(twin.endpoint(), UNLIMITED) as client:
        for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
            webhooks = [{"name": name, "clientConfig": {"service": {"name": "koord-webhook"}}} for name in ("a", "b")]
            client.create(resource, {"metadata": {"name": "koord-webhooks"}, "webhooks": webhooks})
        first, second = keeper(client), keeper(client)
        first.keep()
        second.keep()
        assert first.loaded
        assert second.loaded
        kept = decoded(client.get(SECRETS, Key("koord-system", "koord-webhook-certificate")))
        assert kept.current is not None
        bundle = base64.b64encode(kept.current.certificate.encode()).decode()
        for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
            found = client.get(resource, Key("", "koord-webhooks"))["webhooks"]
            assert [item["clientConfig"] for item in found] == [
                {"service": {"name": "koord-webhook"}, "caBundle": bundle}
            ] * 2
        version = client.get(SECRETS, Key("koord-system", "koord-webhook-certificate"))["metadata"]["resourceVersion"]
        first.keep()
        again = client.get(SECRETS, Key("koord-system", "koord-webhook-certificate"))
        assert again["metadata"]["resourceVersion"] == version, "nothing due, nothing written"


def test_a_replica_that_comes_second_takes_what_the_first_made(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(twin.endpoint(), UNLIMITED) as client:
        first, second = keeper(client), keeper(client)
        find = client.find
        seen: list[object] = []

        def late(resource: object, key: Key) -> object:
            # The second replica has read that there is no Secret before the first one makes it.
            if not seen:
                seen.append(resource)
                first.keep()
                return None
            return find(resource, key)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(client, "find", late)
            second.keep()
        kept = decoded(client.get(SECRETS, Key("koord-system", "koord-webhook-certificate")))
        assert kept.current == second._loaded == first._loaded
