"""What can go wrong with a copy. Whatever it is, an unfinished target is served by nobody.

CopyError
├── CopyRefused            it can't be done like this, and nothing was copied
│   ├── NotCopyable        a URL that names no store which could be copied
│   ├── SourceMissing      there is no store to copy, or none that this version reads
│   ├── SourceServed       a server uses the source, so it would change meanwhile
│   ├── SourceDamaged      a row is damaged without which its shard can't be served
│   ├── SourceChanged      the target holds a copy of what the source was before
│   ├── TargetNotEmpty     something is there, and would be mixed up with the copy
│   ├── TargetServed       a server uses the target
│   ├── TargetUnusable     the target can't be reached, made or written
│   └── EpochsExhausted    there is no epoch left to give to the target
└── CopyFailed             it stopped half-way: run it again, and it goes on
    ├── CopyTaken          somebody took over the source or the target meanwhile
    └── SidesDiffer        both sides were read, and are not the same
"""

from pushlane_storage.bucket import BucketKey, ShardKey


class CopyError(Exception):
    """The target is not a copy of the source. The text ends with what to do next."""


class CopyRefused(CopyError):
    """Nothing was copied."""


class NotCopyable(CopyRefused):
    """A URL that names no store which could be copied."""


class SourceMissing(CopyRefused):
    """There is no store to copy, or none that this version reads."""


class SourceServed(CopyRefused):
    def __init__(self, source: str, who: str) -> None:
        super().__init__(
            f"{source} is served ({who}), and would change while it is copied: stop the servers"
            " first"
        )


class SourceDamaged(CopyRefused):
    """A damaged row that can't be carried over."""


class SourceChanged(CopyRefused):
    def __init__(self, source: str, target: str) -> None:
        super().__init__(
            f"{target} holds a copy of what {source} was before it was served again: choose an"
            " empty target, or empty this one"
        )


class TargetNotEmpty(CopyRefused):
    def __init__(self, target: str, found: str) -> None:
        super().__init__(
            f"{target} is not empty ({found}), and nothing is ever overwritten: choose another"
            " target"
        )


class TargetServed(CopyRefused):
    def __init__(self, target: str, who: str) -> None:
        super().__init__(f"{target} is in use ({who}): stop it first, or choose another target")


class TargetUnusable(CopyRefused):
    """The target can't be reached, made or written."""


class EpochsExhausted(CopyRefused):
    def __init__(self, epoch: int, last: int) -> None:
        super().__init__(
            f"the copy would begin with epoch {epoch}, and {last} is the last one that leaves"
            " room: publish what is left to a new store instead"
        )


class CopyFailed(CopyError):
    """It stopped half-way."""


class CopyTaken(CopyFailed):
    """The source or the target has another owner now."""


class SidesDiffer(CopyFailed):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not the same on both sides: run it again, all of it is copied again; if it"
            " says the same then, choose an empty target"
        )


def shard_name(shard: ShardKey) -> str:
    return f"shard {shard.shard} of queue {shard.queue_id}"


def bucket_name(shard: ShardKey, key: BucketKey) -> str:
    return f"bucket {key.lane}.{key.epoch}.{key.start} of {shard_name(shard)}"
