"""What can be wrong before a job runs, or with what it is given: the whole tree.

Every message says what to do next.
"""


class JobError(Exception):
    """Whatever keeps a job from running."""


class SparkMissing(JobError):
    """PySpark is not installed."""


class JavaUnfit(JobError):
    """There is no Java, or not one that Spark runs on."""


class JarsMissing(JobError):
    """The jars that the stores are read with are not there, and can't be fetched."""


class StoreUnreadable(JobError):
    """A store or an archive that can't be read as one."""


class QueueUnknown(JobError):
    """There is no such queue in the store, nor in the archive."""


class ArchiveUnfit(JobError):
    """An archive that can't be written, or is not what was written."""


class ServerRefused(JobError):
    """A server did not do what a job asked of it."""


class HistoryUnfit(JobError):
    """What should be a recorded history can't be audited."""


class RateCardUnfit(JobError):
    """A rate card that can't be used, or has no prices for a day that is to be billed."""


class PeriodUnfit(JobError):
    """A period of time that no job can be about."""


class FrameUnfit(JobError):
    """The columns of a DataFrame that can't be published as messages."""


class PublishFailed(JobError):
    """What a job should publish could not be stored, or only in part. `code` is the server's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class WindowTooShort(JobError):
    """The queue forgets dedup ids before a job could repeat them."""


class BookmarkUnfit(JobError):
    """The bookmark is none, or one of another replay."""
