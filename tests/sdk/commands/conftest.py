from __future__ import annotations

import pytest

from tests.sdk.commands.shell import Shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    return Shell(monkeypatch, capfdbinary)
