"""A message's life: the table is all there is, and the docs show it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pushlane_dispatcher.core.life import (
    ENDS,
    IN_FLIGHT,
    PURGEABLE,
    TABLE,
    WAITING,
    Event,
    Life,
    State,
    diagram,
)

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architecture.md"
TOOL = [sys.executable, "-m", "tools.generated", "life"]
OVER = [state for state in State if state >= State.ACKED]


class Living:
    def __init__(self, state: State) -> None:
        self.state = state
        self.since = 0


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_can_not_happen(state: State, event: Event) -> None:
    life, living = Life(), Living(state)
    life.born(state)
    target = TABLE.get((state, event))
    for move in (life.move, life.move_mixed):
        if target is None:
            with pytest.raises(KeyError):
                move([living], event, 5)
            assert (living.state, living.since) == (state, 0)
    if target is not None:
        life.move([living], event, 5)
        assert (living.state, living.since) == (target, 5)
    assert sum(life.counts) == 1
    assert life.counts[living.state] == 1


def test_an_end_is_an_end() -> None:
    assert not {state for state, _ in TABLE if state in OVER}


def test_every_state_can_be_reached_and_left() -> None:
    births = {State.READY, State.DELAYED, State.BLOCKED}
    assert births | set(TABLE.values()) == set(State)
    assert {state for state, _ in TABLE} == set(State) - set(OVER)


def test_only_what_is_ready_is_granted() -> None:
    granted = {source for (source, _), target in TABLE.items() if target in IN_FLIGHT}
    assert granted == {State.READY, State.RESERVED}
    assert TABLE[State.RESERVED, Event.START] is State.LEASED


def test_what_came_back_is_ready_only_by_a_durable_void() -> None:
    for state in IN_FLIGHT:
        targets = {target for (source, _), target in TABLE.items() if source is state}
        assert State.READY not in targets
        assert not targets & WAITING
    into_ready = {source for (source, _), target in TABLE.items() if target is State.READY}
    assert into_ready == {State.VOIDING, *WAITING}


def test_what_can_be_purged_is_not_in_flight() -> None:
    assert not PURGEABLE & IN_FLIGHT
    assert all((state, Event.END) in TABLE for state in PURGEABLE)


def test_every_end_has_its_event() -> None:
    for cause, event in ENDS.items():
        assert TABLE[State.ENDING, event].name.lower() == cause


def test_messages_of_one_state_move_together() -> None:
    life = Life()
    life.born(State.READY, 3)
    living = [Living(State.READY) for _ in range(3)]
    life.move(living, Event.LEASE, 7)
    assert [one.state for one in living] == [State.LEASED] * 3
    assert (life.counts[State.READY], life.counts[State.LEASED]) == (0, 3)


def test_messages_of_several_states_do_not_move_as_if_of_one() -> None:
    life = Life()
    mixed = [Living(State.RESERVED), Living(State.LEASED)]
    with pytest.raises(AssertionError):
        life.move(mixed, Event.ACK, 7)


def test_messages_of_several_states_move_each_by_its_own() -> None:
    life = Life()
    life.born(State.RESERVED)
    life.born(State.LEASED)
    mixed = [Living(State.RESERVED), Living(State.LEASED)]
    life.move_mixed(mixed, Event.ACK, 7)
    assert life.counts[State.SETTLING] == 2
    assert life.leaving() == 2


def test_leaving_is_a_sum() -> None:
    life = Life()
    for number, state in enumerate(State):
        life.born(state, 1 << number)
    gone = (State.SETTLING, State.LEAVING, State.MOVED, State.ENDING)
    assert life.leaving() == sum(1 << state for state in gone)


# The diagram


def test_the_diagram_has_every_transition() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = [line for line in lines if "-->" in line]
    assert len(arrows) == len(set(arrows)) == 3 + len(TABLE) + len(OVER)
    for line in arrows:
        assert re.fullmatch(r" {4}(\[\*\]|[A-Z]+) --> (\[\*\]|[A-Z]+)(: [^:]+)?", line)


def test_the_docs_show_the_diagram() -> None:
    shown = re.search(r"<!-- life:begin -->\n(.*?)<!-- life:end -->", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == f"```mermaid\n{diagram()}\n```\n", (
        "run python -m tools.generated life --write"
    )


def test_the_tool_writes_what_the_docs_show(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- life:begin -->\nold\n<!-- life:end -->\nafter\n")
    subprocess.run([*TOOL, "--write", page], check=True, cwd=ROOT)
    text = page.read_text()
    assert text.startswith("before\n<!-- life:begin -->\n```mermaid\nstateDiagram-v2\n")
    assert text.endswith("\n```\n<!-- life:end -->\nafter\n")
    printed = subprocess.run(TOOL, check=True, cwd=ROOT, capture_output=True, text=True)
    assert printed.stdout == diagram() + "\n"
