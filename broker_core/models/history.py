"""The manifest of the archive: which events are in which files. Written only by `broker_core.history`."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class ArchiveEpoch(models.Model):
    """A period in one cluster, since transaction ids differ between clusters. A restore or copy into another begins a new one.

    The slices of history that was imported or generated, which has no transactions, are in an epoch of their own (IMPORTED).
    """

    IMPORTED = 0  # as system_identifier

    system_identifier = models.BigIntegerField()
    from_xid = models.BigIntegerField()
    began_at = models.DateTimeField()

    class Meta:
        db_table = "vitrine_archive_epoch"
        verbose_name = "archive epoch"

    def __str__(self):
        return f"epoch {self.pk} of cluster {self.system_identifier}"


class ArchiveSlice(models.Model):
    """The events of transactions from_xid (inclusive) to to_xid (exclusive), all of which had ended when the slice was opened.

    open: its files may be missing or incomplete, and are written again with the same bounds and names. done: they are complete.
    derived: whether jobs have derived lives and attempts from its events (explorer/analysis/jobs/lives.py).
    """

    OPEN, DONE = "open", "done"

    epoch = models.ForeignKey(ArchiveEpoch, on_delete=models.PROTECT, related_name="slices")
    from_xid = models.BigIntegerField()
    to_xid = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=[(OPEN, "open"), (DONE, "done")])
    opened_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    events = models.BigIntegerField(null=True)
    derived = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "vitrine_archive_slice"
        verbose_name = "archive slice"
        constraints = [
            models.UniqueConstraint(fields=["state"], condition=models.Q(state="open"), name="vitrine_archive_slice_one_open"),
            models.UniqueConstraint(fields=["epoch", "from_xid"], name="vitrine_archive_slice_from"),
            models.CheckConstraint(condition=models.Q(to_xid__gt=models.F("from_xid")), name="vitrine_archive_slice_bounds"),
        ]

    def __str__(self):
        return f"slice {self.pk} ({self.state})"


class ArchiveFile(models.Model):
    """One Parquet file of one day and namespace. Readers open only files listed here.

    content: events, which the archiver writes from the event table; lives (with attempts) and open messages, which jobs derive
    from them; counts and histograms, which jobs count in lives; or all settings that a namespace's entities had.
    slice: whose events it has; NULL: it has those of all of `slices`, or is not of slices. imported: its rows were never in the
    event table. rolled_up: whether its lives or attempts are in the counts of their day. step_seconds: of counts and histograms.
    path: relative to ARCHIVE_URL. schema_version: of its content's columns. checksum: SHA-256 of the file, in hexadecimal.
    first_at, last_at: the span of its rows: from the first begin to the last end, as broker_core.history.contents names them.
    """

    EVENTS, SETTINGS = "events", "settings"
    LIVES, OPEN = "lives", "open"
    COUNTS, HISTOGRAMS = "counts", "histograms"
    ROLLED = (COUNTS, HISTOGRAMS)  # what a roll-up counts
    CONTENTS = (EVENTS, SETTINGS, LIVES, OPEN, *ROLLED)

    slice = models.ForeignKey(ArchiveSlice, null=True, on_delete=models.PROTECT, related_name="files")
    slices = ArrayField(models.BigIntegerField(), default=list)
    imported = models.BooleanField(default=False)
    content = models.CharField(max_length=10, choices=[(c, c) for c in CONTENTS])
    day = models.DateField()
    namespace_id = models.BigIntegerField()
    path = models.CharField(max_length=250)
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()
    schema_version = models.PositiveSmallIntegerField(default=1)
    checksum = models.CharField(max_length=64, default="", blank=True)
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    rolled_up = models.BooleanField(default=False, db_default=False)
    step_seconds = models.IntegerField(null=True)

    class Meta:
        db_table = "vitrine_archive_file"
        verbose_name = "archive file"
        constraints = [models.UniqueConstraint(fields=["path"], name="vitrine_archive_file_path")]
        indexes = [models.Index(fields=["content", "day"], name="vitrine_archive_file_day")]

    def __str__(self):
        return self.path

    @property
    def slice_ids(self) -> list[int]:
        """The slices whose rows it has."""
        return self.slices if self.slice_id is None else [self.slice_id]


class ArchivedProperties(models.Model):
    """The keys of the message properties that the lives of an entity keep in the archive (broker_core.history.properties)."""

    entity_id = models.BigIntegerField(primary_key=True)
    keys = ArrayField(models.TextField())

    class Meta:
        db_table = "vitrine_archived_properties"

    def __str__(self):
        return ", ".join(self.keys)


class ArchiveUnusedFile(models.Model):
    """A file that is to be deleted: it is being written and not yet in the manifest, or is not in the manifest any more. Readers
    that began before `since` may still open it."""

    path = models.CharField(max_length=250)
    since = models.DateTimeField()

    class Meta:
        db_table = "vitrine_archive_unused_file"
        constraints = [models.UniqueConstraint(fields=["path"], name="vitrine_archive_unused_file_path")]


class ArchiveRebuild(models.Model):
    """A day of a namespace whose lives are to be derived again from its events, since their files were damaged."""

    day = models.DateField()
    namespace_id = models.BigIntegerField()

    class Meta:
        db_table = "vitrine_archive_rebuild"
        constraints = [models.UniqueConstraint(fields=["day", "namespace_id"], name="vitrine_archive_rebuild_once")]
