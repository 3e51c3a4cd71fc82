"""Finished members count once, by the pod that ended and not by its name."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.gang.ended import End, EndedMembers


def end(uid: str, *, succeeded: bool = True) -> End:
    return End(uid, succeeded, bound=True)


def test_a_pod_counts_once_however_often_it_is_told() -> None:
    ended = EndedMembers()
    for _ in range(3):
        ended.add("ns/a", "ns/a-0", end("1"))
    assert ended.of("ns/a") == (end("1"),)
    assert ended.of("ns/b") == ()


def test_the_deletion_of_a_predecessor_leaves_its_namesake() -> None:
    ended = EndedMembers()
    ended.add("ns/a", "ns/a-0", end("2", succeeded=False))
    ended.forget("ns/a-0", "1")
    assert ended.of("ns/a") == (end("2", succeeded=False),)
    ended.forget("ns/a-0", "2")
    assert ended.of("ns/a") == ()


def test_a_withdrawn_gang_forgets_its_ends_and_no_others() -> None:
    ended = EndedMembers()
    ended.add("ns/a", "ns/a-0", end("1"))
    ended.add("ns/b", "ns/b-0", end("2"))
    ended.withdraw("ns/a")
    ended.forget("ns/a-0", "1")
    assert (ended.of("ns/a"), ended.of("ns/b")) == ((), (end("2"),))


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "forget", "withdraw"]), st.sampled_from("ab"), st.integers(0, 3)),
        max_size=30,
    )
)
def test_it_holds_just_what_a_plain_table_would(history: list[tuple[str, str, int]]) -> None:
    ended = EndedMembers()
    table: dict[str, str] = {}
    for what, gang, number in history:
        pod = f"p-{number}"
        match what:
            case "add":
                ended.add(gang, pod, end(pod))
                table[pod] = gang
            case "forget":
                ended.forget(pod)
                table.pop(pod, None)
            case _:
                ended.withdraw(gang)
                table = {held: owner for held, owner in table.items() if owner != gang}
    for gang in "ab":
        assert {each.uid for each in ended.of(gang)} == {pod for pod, owner in table.items() if owner == gang}
