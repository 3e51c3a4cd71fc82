"""A bounded heap: threads share what they free."""

import subprocess
import sys

import pytest

from tests.arenas import arenas_of

THREADS = 12
_PROGRAM = f"""
import sys, threading
from api.programs import heap
if sys.argv[1] != "unbounded":
    getattr(heap, sys.argv[1])()
kept, all_began = [], threading.Barrier({THREADS} + 1)
def run():
    all_began.wait()
    kept.append([bytes(2000) for _ in range(100)])
    all_began.wait()
    all_began.wait()
threads = [threading.Thread(target=run) for _ in range({THREADS})]
for each in threads:
    each.start()
all_began.wait()
all_began.wait()
print("allocated", flush=True)
input()
all_began.wait()
"""


@pytest.mark.parametrize("heap", ["bound_arenas", "bound_heap", "unbounded"])
def test_threads_have_one_arena_beside_the_main_one_where_that_is_asked_for(heap: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, heap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "allocated\n"
        arenas = arenas_of(process.pid)
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(20) == 0
    assert (arenas <= 1) if heap != "unbounded" else (arenas > 1)
