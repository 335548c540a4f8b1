from __future__ import annotations

import pytest

from pushlane_gateway.http.settings import HttpSettings


@pytest.mark.parametrize("name", HttpSettings.__struct_fields__)
def test_settings_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0"):
        HttpSettings(**{name: 0})
