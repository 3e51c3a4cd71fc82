"""The plan of the first ten minutes knows every command of README and tour, and no other."""

from tests.docs.pages import Block
from tests.first_ten_minutes import PLAN, commands


def test_each_command_of_readme_and_tour_has_a_plan() -> None:
    written = {step.text for step in commands() if not isinstance(step, Block)}
    assert written == PLAN.keys()
