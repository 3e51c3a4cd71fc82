"""Saved baselines come back as they were; what cannot be trusted is refused with the reason."""

import hashlib

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from detector.baselines.file import SCHEMA, BaselineRefused, decode, encode
from detector.baselines.learner import Baselines
from detector.baselines.values import BaselinePolicy, BaselineSample, BaselineState, ToldTime, WorkloadKey

WEB = WorkloadKey("Deployment/shop/web", "app", "m7")
TOLD = ToldTime("/web", "turnaround", 120.0, 1050.0)
POLICY = BaselinePolicy(warm_samples=20, warm_periods=1)


def window(value: float) -> BaselineSample:
    return BaselineSample([WEB], np.array([1.5]), np.array([0]), {"lost": np.array([value])})


def taught() -> Baselines:
    baselines = Baselines(POLICY)
    for second, value in enumerate(np.random.default_rng(3).lognormal(-3, 0.3, 100)):
        baselines.learn(window(value), 1000.0 + second)
    return baselines


def signed(body: object, schema: str = SCHEMA, **beside: object) -> bytes:
    raw = msgspec.json.encode(body)
    return msgspec.json.encode({"schema": schema, "sha256": digest(raw), "body": msgspec.Raw(raw), **beside})


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def told(**changes: float) -> bytes:
    raw = msgspec.json.encode([replace(TOLD, **changes)])
    return signed(body(), told={"sha256": digest(raw), "times": msgspec.Raw(raw)})


def body(**changes: object) -> dict[str, object]:
    whole = msgspec.json.decode(encode(taught(), 1100.0))["body"]
    cell = {name: value for name, value in changes.items() if name in whole["cells"][0]}
    outside = {name: value for name, value in changes.items() if name not in cell}
    return {**whole, **outside, "cells": [{**whole["cells"][0], **cell}]}


def test_the_first_window_after_a_restart_is_judged() -> None:
    before = taught().judge(window(0.5), 1100.0)["lost"]
    after = decode(encode(taught(), 1100.0), 1100.0, POLICY).judge(window(0.5), 1100.0)["lost"]
    assert after.state[0] == BaselineState.READY
    assert after.samples[0] == 100
    assert after.score[0] == pytest.approx(before.score[0], rel=0.1)


def test_saving_what_was_loaded_changes_no_byte() -> None:
    data = encode(taught(), 1100.0)
    assert encode(decode(data, 1100.0, POLICY), 1100.0) == data


def test_the_time_of_verdicts_is_kept_and_a_file_without_it_is_read() -> None:
    saved = decode(encode(taught(), 1100.0, (TOLD,)), 1200.0, POLICY)
    assert saved.told == (TOLD,)
    assert decode(encode(saved, 1200.0), 1300.0, POLICY).told == (TOLD,)
    assert decode(signed(body()), 1100.0, POLICY).told == ()


def test_an_earlier_version_reads_a_file_with_the_time_of_verdicts() -> None:
    """It refuses a body with a field that it does not know, and passes over what is beside the body."""
    file = msgspec.json.decode(encode(taught(), 1100.0, (TOLD,)))
    assert file["body"].keys() == {"saved_seconds", "buckets_per_octave", "refused", "cells"}
    assert file["sha256"] == digest(msgspec.json.encode(file["body"]))
    assert msgspec.json.decode(encode(taught(), 1100.0)).keys() == {"schema", "sha256", "body"}


def test_what_a_later_version_adds_is_passed_over() -> None:
    later = decode(signed(body(surprise=1), surprise=1), 1100.0, POLICY)
    assert later.records(1100.0) == decode(signed(body()), 1100.0, POLICY).records(1100.0)


def test_time_spent_switched_off_ages() -> None:
    late = 1100.0 + 30 * 86_400
    assert decode(encode(taught(), 1100.0), late, POLICY).judge(window(0.5), late)["lost"].state[0] == (
        BaselineState.WARMING_UP
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "not a baseline file", id="empty"),
        pytest.param(b"\x00\xff garbage", "not a baseline file", id="binary"),
        pytest.param(encode(taught(), 1100.0)[:-40], "not a baseline file", id="cut short"),
        pytest.param(encode(taught(), 1100.0).replace(b'"samples":100', b'"samples":101'), "sha256", id="bit rot"),
        pytest.param(signed(body(), "koord.baselines/v0"), "koord.baselines/v0", id="older schema"),
        pytest.param(signed({}), "saved_seconds", id="empty body"),
        pytest.param(signed(body(buckets_per_octave=8)), "8 buckets", id="another grid"),
        pytest.param(signed(body(octave=99)), "octave", id="octave outside"),
        pytest.param(signed(body(buckets=[1])), "pair", id="unpaired buckets"),
        pytest.param(signed(body(buckets=[9999], counts=[1.0])), "bucket", id="bucket outside"),
        pytest.param(signed(body(weight=-1.0)), "negative", id="negative weight"),
        pytest.param(signed(body(kept_until_seconds=-1.0)), "negative", id="kept until before all time"),
        pytest.param(signed(body(fall=-0.1)), "negative", id="a way down that goes up"),
        pytest.param(told(seconds=-1.0), "/web, turnaround: a time", id="told too little"),
        pytest.param(told(until_seconds=-1.0), "a time", id="told before all time"),
        pytest.param(told().replace(b"120.0", b"121.0"), "sha256", id="bit rot in the time of verdicts"),
        pytest.param(signed(body(), told={"sha256": digest(b"7"), "times": 7}), "time of verdicts", id="no times"),
        pytest.param(signed(body(ordinary_octave=1e300)), "ordinary level", id="ordinary beyond all values"),
    ],
)
def test_what_cannot_be_trusted_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BaselineRefused, match=reason):
        decode(data, 2000.0, POLICY)


def test_more_cells_than_allowed_are_refused() -> None:
    with pytest.raises(BaselineRefused, match="max_cells"):
        decode(encode(taught(), 1100.0), 1100.0, BaselinePolicy(max_cells=0))
