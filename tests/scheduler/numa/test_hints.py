"""NUMA hints: generation by total and free, the merge rules of the four policies, and policy conflicts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.numa.hints import (
    Alignment,
    NumaHint,
    NumaPolicy,
    PolicyConflictError,
    effective_policy,
    merge,
    nodes_of,
    resource_hints,
)

NONE, BEST, RESTRICTED, SINGLE = NumaPolicy


@pytest.mark.parametrize(
    ("request_amount", "free", "expected"),
    [
        pytest.param(4, (8, 8), [NumaHint(1, True), NumaHint(2, True), NumaHint(3, False)], id="either-node"),
        pytest.param(10, (8, 8), [NumaHint(3, True)], id="both-nodes"),
        pytest.param(4, (2, 8), [NumaHint(2, True), NumaHint(3, False)], id="one-node-short"),
        pytest.param(4, (2, 3), [NumaHint(3, False)], id="only-together"),
        pytest.param(4, (1, 1), [], id="too-little-free"),
        pytest.param(20, (8, 8), [], id="more-than-the-total"),
    ],
)
def test_hints_by_total_and_free(request_amount: int, free: tuple[int, int], expected: list[NumaHint]) -> None:
    assert resource_hints(request_amount, {0: 8, 1: 8}, dict(enumerate(free))) == expected


def test_machine_without_numa_report_gives_no_hint() -> None:
    assert resource_hints(1, {}, {}) == []


@pytest.mark.parametrize(
    ("policy", "providers", "expected"),
    [
        pytest.param(BEST, [None], Alignment(3, True, True), id="best-effort-no-hint"),
        pytest.param(
            BEST, [[NumaHint(1, True)], [NumaHint(2, True)]], Alignment(3, False, True), id="best-effort-apart"
        ),
        pytest.param(
            RESTRICTED, [[NumaHint(1, True)], [NumaHint(2, True)]], Alignment(3, False, False), id="restricted-apart"
        ),
        pytest.param(
            RESTRICTED,
            [[NumaHint(1, True), NumaHint(3, False)], [NumaHint(3, True)]],
            Alignment(3, False, False),
            id="restricted-one-needs-both",
        ),
        pytest.param(
            RESTRICTED,
            [[NumaHint(1, True), NumaHint(3, False)], [NumaHint(1, True), NumaHint(3, False)]],
            Alignment(1, True, True),
            id="restricted-same",
        ),
        pytest.param(RESTRICTED, [[NumaHint(3, False)]], Alignment(3, False, False), id="restricted-not-preferred"),
        pytest.param(SINGLE, [[NumaHint(3, True)]], Alignment(3, False, False), id="single-across"),
        pytest.param(
            SINGLE,
            [[NumaHint(1, True), NumaHint(3, False)], [NumaHint(3, False), NumaHint(1, True)]],
            Alignment(1, True, True),
            id="single-same",
        ),
        pytest.param(SINGLE, [[]], Alignment(3, False, False), id="single-none"),
        pytest.param(
            BEST,
            [[NumaHint(1, True), NumaHint(2, True, 500)], None],
            Alignment(2, True, True),
            id="best-effort-by-score",
        ),
        pytest.param(
            BEST, [[NumaHint(1, True), NumaHint(2, True)]], Alignment(1, True, True), id="best-effort-lower-node"
        ),
        pytest.param(
            BEST, [[NumaHint(3, True, 900), NumaHint(2, True)]], Alignment(2, True, True), id="best-effort-narrower"
        ),
    ],
)
def test_merge(policy: NumaPolicy, providers: list[list[NumaHint] | None], expected: Alignment) -> None:
    assert merge(providers, (0, 1), policy) == expected


@pytest.mark.parametrize(
    ("node", "pod", "effective"), [(NONE, SINGLE, SINGLE), (BEST, NONE, BEST), (SINGLE, SINGLE, SINGLE)]
)
def test_one_policy_wins(node: NumaPolicy, pod: NumaPolicy, effective: NumaPolicy) -> None:
    assert effective_policy(node, pod) is effective


def test_two_policies_conflict() -> None:
    with pytest.raises(PolicyConflictError, match="Restricted"):
        effective_policy(RESTRICTED, SINGLE)


hints = st.lists(st.builds(NumaHint, st.integers(1, 15), st.booleans(), st.integers(0, 5)), min_size=1, max_size=6)


@given(st.lists(hints, min_size=1, max_size=3))
def test_merge_equals_trying_every_combination(providers: list[list[NumaHint]]) -> None:
    best = (True, True, 99, 0, 0)
    for combination in itertools.product(*providers):
        mask = 15
        for hint in combination:
            mask &= hint.mask
        preferred = all(hint.preferred for hint in combination)
        if mask and all(any(hint.mask & mask == hint.mask for hint in hints) for hints in providers):
            score = sum(hint.score for hint in combination)
            best = min(best, (False, not preferred, mask.bit_count(), -score, mask))
    result = merge(providers, range(4), BEST)
    if best[0]:
        assert (result.mask, result.preferred) == (15, False)
    else:
        assert (result.mask, result.preferred) == (best[4], not best[1])


@given(st.lists(hints, min_size=1, max_size=3))
def test_single_numa_node_never_admits_a_wide_mask(providers: list[list[NumaHint]]) -> None:
    result = merge(providers, range(4), SINGLE)
    assert not result.admitted or result.mask.bit_count() == 1


@given(
    st.dictionaries(st.integers(0, 3), st.integers(0, 20), min_size=1),
    st.integers(1, 40),
)
def test_every_hint_has_room(total: dict[int, int], request_amount: int) -> None:
    free = {node: amount // 2 for node, amount in total.items()}
    for hint in resource_hints(request_amount, total, free):
        assert sum(free[node] for node in nodes_of(hint.mask)) >= request_amount
