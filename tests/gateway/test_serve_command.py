"""`pushlane serve` has nothing to serve yet, and says so."""

import pytest

from pushlane_gateway.serve_command import serve


def test_it_says_what_is_missing_and_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        serve()
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no listener yet" in captured.err
    assert "pushlane.wire" in captured.err
