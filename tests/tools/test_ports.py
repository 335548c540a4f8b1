import socket

import pytest

from tools.services import ports
from tools.services.ports import answers, free_port, free_ports


def test_a_free_port_is_free_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    port = free_port(hosts)
    assert not answers(hosts[0], port)
    with socket.create_server((hosts[1], port)):
        assert answers(hosts[1], port)
        monkeypatch.setattr(ports, "FIRST", port)
        monkeypatch.setattr(ports, "LAST", port)
        assert free_port(hosts[:1]) == port
        with pytest.raises(OSError, match="is free"):
            free_port(hosts)


def test_ports_of_one_call_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((7, 7, 8, 7, 9))
    monkeypatch.setattr(ports, "free_port", lambda: next(drawn))
    assert free_ports(3) == [7, 8, 9]
