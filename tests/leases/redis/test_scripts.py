from pushlane_leases.redis.scripts import CLAIM, GRANT, OVERWRITE, RELEASE, REMEMBER, SCRIPTS
from tools.services.redis import Redis


def test_redis_knows_them_by_the_same_names(server: Redis) -> None:
    with server.client() as client:
        for sha, script in SCRIPTS.items():
            loaded = client.script_load(script.text)
            assert loaded in (sha, sha.encode())


def test_every_script_compares_the_epoch_first() -> None:
    others = {CLAIM, GRANT, RELEASE, REMEMBER}
    assert set(SCRIPTS.values()) == {*others, OVERWRITE}
    for script in others:
        body = script.text.split("\nlocal owner = newer_owner()\n")
        assert len(body) == 2
        assert "redis.call" not in body[0].rsplit("\nend\n", 1)[1]
