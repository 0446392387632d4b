"""The life of a run is a table with no dead ends and no way back from the end."""

from __future__ import annotations

from stallguard.core import lifecycle as life


def reachable(start: str) -> set[str]:
    seen, todo = set(), [start]
    while todo:
        state = todo.pop()
        if state not in seen:
            seen.add(state)
            todo += life.TRANSITIONS[state].values()
    return seen


def test_every_state_is_reached_from_the_beginning_and_every_target_is_a_state() -> None:
    assert reachable(life.NEW) == set(life.TRANSITIONS) == set(life.MEANING)


def test_every_state_can_end() -> None:
    stuck = [state for state in life.TRANSITIONS if not reachable(state) & life.ENDED]

    assert stuck == []


def test_nothing_leaves_the_end() -> None:
    assert all(life.TRANSITIONS[state] == {} for state in life.ENDED)


def test_sigkill_comes_only_after_sigterm() -> None:
    before_killing = {state for state, moves in life.TRANSITIONS.items() if life.KILLING in moves.values()}

    assert before_killing == {life.STOPPING}


def test_an_unlisted_trigger_changes_nothing() -> None:
    assert life.next_state(life.RUNNING, "grace expired") == life.RUNNING


def test_the_diagram_shows_every_move_but_those_that_all_living_states_share() -> None:
    picture, living = life.diagram(), life.ALIVE - {life.UNGUARDED}

    moves = sum(len(row) for row in life.TRANSITIONS.values())
    assert picture.count("-->") == moves - len(life.common_moves()) * len(living) + 1 + len(life.ENDED)
    assert life.common_moves() == {"ended": life.DONE, "restart": life.BACKOFF, "internal error": life.UNGUARDED}
    assert "holding --> running: recovered" in picture
