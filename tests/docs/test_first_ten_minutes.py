"""The plan of the first ten minutes knows every command of README and tour, and no other."""

from tests.docs.pages import Block
from tests.first_ten_minutes import ON_PAGE, PLAN, Command, commands


def written() -> list[Command]:
    return [step for step in commands() if not isinstance(step, Block)]


def test_each_command_of_readme_and_tour_has_a_plan() -> None:
    assert {step.text for step in written()} == PLAN.keys()


def test_what_differs_on_a_page_is_there() -> None:
    assert {(step.page, step.text) for step in written()} >= ON_PAGE.keys()
