"""Unreadable annotations are one kind of error, whatever is wrong with them."""

from typing import Any

import msgspec
import pytest

from api.kube.annotations import AnnotationError, decode_annotation

DEEP = 50_000
"""Beyond what an interpreter takes: 1,000 levels by Python 3.11, 10,000 by 3.12 and 3.13."""


class Spec(msgspec.Struct):
    """Something small."""

    count: int = 0


@pytest.mark.parametrize("kind", [Spec, dict[str, Any], list[str], dict[str, Spec]])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="torn"),
        pytest.param("[" * DEEP, id="deep-list"),
        pytest.param('{"a":' * DEEP, id="deep-object"),
        pytest.param('{"unknown":' + "[" * DEEP + "]" * DEEP + "}", id="deep-where-it-is-passed-over"),
        pytest.param("\ud800", id="half-a-character"),
        pytest.param("7", id="another-type"),
    ],
)
def test_what_cannot_be_read_is_one_error(kind: Any, text: str) -> None:
    with pytest.raises(AnnotationError):
        decode_annotation(text, kind)


def test_a_number_beyond_range_is_no_count() -> None:
    with pytest.raises(AnnotationError):
        decode_annotation('{"count": 1e999999}', Spec)


def test_the_rest_is_decoded() -> None:
    assert decode_annotation('{"count": 3, "other": [[[]]]}', Spec) == Spec(3)
