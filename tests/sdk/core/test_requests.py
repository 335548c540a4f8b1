"""Ids of requests: from 1 to 2^53-1, unique among the unanswered. Settings: valid or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.core.requests import Requests, UnsubscribeRequest
from pushlane.core.settings import Settings

REQUEST = UnsubscribeRequest(None)


def test_ids_never_pass_the_largest_integer() -> None:
    requests = Requests(last_id=2**53 - 3)
    assert [requests.add(REQUEST) for _ in range(4)] == [2**53 - 2, 2**53 - 1, 1, 2]


def test_an_id_in_use_is_passed_over() -> None:
    requests = Requests(last_id=2**53 - 2)
    requests.open[1] = REQUEST
    assert [requests.add(REQUEST), requests.add(REQUEST)] == [2**53 - 1, 2]


def test_an_answer_is_taken_once() -> None:
    requests = Requests()
    id = requests.add(REQUEST)
    assert requests.pop(id) is REQUEST
    assert requests.pop(id) is None
    assert len(requests) == 0


@pytest.mark.parametrize("bad", [{"close_ms": 0}, {"producer_window": 1025}, {"buffered": -1}])
def test_settings_out_of_bounds(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Settings(**bad)
