"""The retention job: archive what has ended, and drop what nobody needs.

It may be killed at any point and run again: every step is safe to repeat, and what was decided is
carried out first. It looks at a store that others write; it only ever touches drained buckets, and
those never change again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark.errors import ArchiveUnfit, ServerRefused
from pushlane_spark.frames import BUCKET
from pushlane_spark.look import Look
from pushlane_spark.retaining import commits
from pushlane_spark.retaining.archiving import Archivist
from pushlane_spark.retaining.dropping import Dropper, Owner
from pushlane_spark.retaining.files import Files
from pushlane_spark.retaining.plan import (
    GROUP_MESSAGES,
    MARKS,
    OWNER,
    Found,
    Plan,
    Queue,
    found_of,
    groups,
    make_plan,
)
from pushlane_spark.retaining.report import QueueReport, RetentionReport, Unfit
from pushlane_spark.source import Source, open_source
from pushlane_storage.dropping import droppable
from pushlane_storage.queue import QueueConfig
from pushlane_storage.url import shown
from pushlane_storage.wall import wall_clock

DRAIN_S = 10.0
"""How long the job waits for a server to end what is past its retention."""
POLL_S = 0.5
At = Callable[[str], None]


def run(
    spark: SparkSession,
    store: str,
    *,
    archive: str | None = None,
    url: str | None = None,
    token: str | None = None,
    queues: Collection[str] | None = None,
    tenant: str | None = None,
    dry_run: bool = False,
    now: int | None = None,
    orphans: bool = False,
    group_messages: int = GROUP_MESSAGES,
    drain_s: float = DRAIN_S,
    at: At = lambda _: None,
) -> RetentionReport:
    """Archive and drop; `JobError` when something is not as it should be.

    `archive` is a path, on any file system that Spark knows. `url` and `token` are a server's: it
    ends what is past its retention, and drops from an embedded store that it has open. `queues` and
    `tenant` say which queues, all of them otherwise. `orphans`: remove what deleted queues left
    behind. `at` is told of each step.
    """
    job = Job(
        spark, open_source(spark, store), Dropper(store, _server(url, token)), at,
        None if archive is None else Files(spark, archive, make=not dry_run),
        wall_clock() if now is None else now,
        RetentionReport(shown(store), archive, dry_run, 0),
    )  # fmt: skip
    job.choose(tenant, queues)
    if not dry_run:
        job.resume()
    look, plan = job.look(_server(url, token), drain_s)
    job.note(plan)
    if dry_run:
        job.would(look, plan)
    else:
        job.carry_out(look, plan, group_messages)
    job.orphans(plan, remove=orphans and not dry_run)
    at("done")
    return job.report


def _server(url: str | None, token: str | None) -> Owner | None:
    return None if url is None else Owner(url, token)


class Job:
    """One run."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        dropper: Dropper,
        at: At,
        files: Files | None,
        now: int,
        report: RetentionReport,
    ) -> None:
        self._spark = spark
        self._source = source
        self._dropper = dropper
        self._at = at
        self.files = files
        self._now = now
        self.report = report
        report.at = now
        self._queues: dict[str, Queue] = {}
        self._all = True
        self._turn: commits.Turn | None = None

    # Looking

    def choose(self, tenant: str | None, names: Collection[str] | None) -> None:
        """Which queues this run is about; those that are being deleted are their owners' affair."""
        for row in self._source.queues().where(~F.col("deleting")).collect():
            if tenant in (None, row.tenant) and (names is None or row.queue in names):
                config = msgspec.json.decode(row.config, type=QueueConfig)
                self._queues[row.queue_id] = Queue(row.tenant, row.queue, row.queue_id, config)
        self._all = tenant is None and names is None

    def resume(self) -> None:
        """Carry out what an earlier run had decided, and throw away what it had not."""
        if self.files is None:
            return
        self._turn = commits.Turn(self.files)
        for commit in commits.pending(self.files):
            if not commits.can_be_carried_out(self.files, commit):
                commits.undo(self.files, commit)
                continue
            commits.carry_out(self.files, commit, self._at)
            self.report.resumed += 1
        commits.clean(self.files)
        self._at("resumed")

    def look(self, server: Owner | None, drain_s: float) -> tuple[Look, Plan]:
        """A look at these queues and what is to be done, after servers did their part."""
        look, plan = self._look()
        waiting = plan.waiting.get(OWNER)
        if not waiting or server is None or self.report.dry_run:
            return look, plan
        for queue_id in dict.fromkeys(one.shard.queue_id for one in waiting):
            try:
                server.wake(self._queues[queue_id])
            except ServerRefused as error:
                self._wait(queue_id, str(error), 1)
        end = time.monotonic() + drain_s
        while plan.waiting.get(OWNER) and time.monotonic() < end:
            time.sleep(POLL_S)
            look, plan = self._look()
        return look, plan

    def _look(self) -> tuple[Look, Plan]:
        look = Look(self._source, None if self._all else list(self._queues))
        found = found_in(look.buckets)
        self._at("looked")
        can_archive = self.report.archive is not None
        return look, make_plan(self._queues, found, self._now, can_archive=can_archive)

    def note(self, plan: Plan) -> None:
        for reason, waiting in plan.waiting.items():
            for one in waiting:
                self._wait(one.shard.queue_id, reason, 1)

    def _wait(self, queue_id: str, reason: str, count: int) -> None:
        waiting = self._of(queue_id).waiting
        waiting[reason] = waiting.get(reason, 0) + count

    def _of(self, queue_id: str) -> QueueReport:
        queue = self._queues[queue_id]
        return self.report.of(queue.tenant, queue.name)

    # Doing

    def carry_out(self, look: Look, plan: Plan, group_messages: int) -> None:
        done = plan.drop
        if plan.archive:
            states = look.states.localCheckpoint()
            self.report.beyond_seals = beyond_seals(self._source, look.buckets, states)
            self._drop([*done, *self._archived_before(plan.archive)])
            done = []
            self._archive(states, plan.archive, group_messages)
        self._drop(done)

    def _archived_before(self, wanted: list[Found]) -> list[Found]:
        """Those that are in the archive already leave the list."""
        assert self.files is not None
        found = []
        for one in list(wanted):
            try:
                if commits.read_manifest(self.files, one.place) is None:
                    continue
                found.append(one)
            except ArchiveUnfit as error:
                self._unfit(one.place, str(error))
            wanted.remove(one)
        return found

    def _archive(self, states: DataFrame, wanted: list[Found], group_messages: int) -> None:
        assert self.files is not None
        assert self._turn is not None
        archivist = Archivist(
            self._spark, self._source, states, self._queues, self.files, self._turn, self._at
        )
        for group in groups(wanted, group_messages):
            archived, unfit = archivist.archive(group, self._now)
            for bucket in archived:
                part = self._of(bucket.queue_id)
                part.archived_buckets += 1
                part.archived_messages += bucket.messages
            for place, reason in unfit.items():
                self._unfit(place, reason)
            there = {bucket.place for bucket in archived}
            self._drop([one for one in group if one.place in there])

    def _unfit(self, place: commits.Place, reason: str) -> None:
        self.report.unfit.append(Unfit(*place, reason))

    def _drop(self, found: Iterable[Found]) -> None:
        """What was archived, or needs no archive, as far as nobody needs its marks."""
        queues: dict[str, list[Found]] = {}
        for one in found:
            if droppable(one.bucket, self._queues[one.shard.queue_id].config, self._now):
                queues.setdefault(one.shard.queue_id, []).append(one)
            else:
                self._wait(one.shard.queue_id, MARKS, 1)
        for queue_id, wanted in queues.items():
            self._at("dropping")
            try:
                drops = self._dropper.drop(self._queues[queue_id], wanted, self._now)
            except ServerRefused as error:
                self._wait(queue_id, str(error), len(wanted))
                continue
            self._of(queue_id).dropped_buckets += len(drops.dropped)
            for reason, count in drops.kept.items():
                self._wait(queue_id, reason, count)
            self._at("dropped")

    def would(self, look: Look, plan: Plan) -> None:
        """What a run would do: nothing is written, not even in the archive."""
        states = look.states.localCheckpoint()
        self.report.beyond_seals = beyond_seals(self._source, look.buckets, states)
        before = self._archived_before(plan.archive) if plan.archive else []
        for one in plan.archive:
            part = self._of(one.shard.queue_id)
            part.archived_buckets += 1
            part.archived_messages += one.bucket.count
        for one in [*before, *plan.archive, *plan.drop]:
            config = self._queues[one.shard.queue_id].config
            if droppable(one.bucket, config, self._now):
                self._of(one.shard.queue_id).dropped_buckets += 1
            else:
                self._wait(one.shard.queue_id, MARKS, 1)

    def orphans(self, plan: Plan, *, remove: bool) -> None:
        """What belongs to no queue. The queues are read again: one may have been made meanwhile."""
        if not plan.orphans:
            return
        known = {row.queue_id for row in self._source.queues().collect()}
        strange = {id: rows for id, rows in plan.orphans.items() if id not in known}
        self.report.orphans = {id: len(rows) for id, rows in strange.items()}
        if remove and strange and self._dropper.remove(list(strange)):
            self.report.removed = list(strange)


def found_in(buckets: DataFrame) -> list[Found]:
    return [found_of(row.asDict()) for row in buckets.collect()]


def beyond_seals(source: Source, buckets: DataFrame, states: DataFrame) -> int:
    """How many stored messages of drained buckets don't exist."""
    drained = buckets.where("drained")
    ends = states.where("drained").select(*BUCKET, "bucket_end")
    segments = source.segments(drained).select(*BUCKET, "first", "count")
    last = F.col("first") + F.col("count")
    over = last - F.greatest("first", "bucket_end")
    beyond = segments.join(F.broadcast(ends), BUCKET).where(last > F.col("bucket_end"))
    found = beyond.agg(F.sum(over)).first()
    return 0 if found is None or found[0] is None else int(found[0])
