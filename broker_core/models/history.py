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
    """

    OPEN, DONE = "open", "done"

    epoch = models.ForeignKey(ArchiveEpoch, on_delete=models.PROTECT, related_name="slices")
    from_xid = models.BigIntegerField()
    to_xid = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=[(OPEN, "open"), (DONE, "done")])
    opened_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    events = models.BigIntegerField(null=True)

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
    """One Parquet file: the events, or the ended lives or attempts, of one day and namespace, or who received (clients); or all
    settings that a namespace's entities had. Readers open only files listed here.

    slice: whose part it has; NULL: it was compacted from those of `slices`, and has a column `slice_id`. imported: its rows
    were never in the event table. path: relative to ARCHIVE_URL. schema_version: of broker_core.history.schema. checksum: SHA-256
    of the file, in hexadecimal; empty for files written before there was one. first_at, last_at: the span of an instant of its
    rows, which broker_core.history.contents names.
    """

    EVENTS, LIVES, ATTEMPTS, CLIENTS, SETTINGS = "events", "lives", "attempts", "clients", "settings"

    slice = models.ForeignKey(ArchiveSlice, null=True, on_delete=models.PROTECT, related_name="files")
    slices = ArrayField(models.BigIntegerField(), default=list)
    imported = models.BooleanField(default=False)
    content = models.CharField(max_length=10, choices=[(c, c) for c in (EVENTS, LIVES, ATTEMPTS, CLIENTS, SETTINGS)])
    day = models.DateField()
    namespace_id = models.BigIntegerField()
    path = models.CharField(max_length=250)
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()
    schema_version = models.PositiveSmallIntegerField(default=1)
    checksum = models.CharField(max_length=64, default="", blank=True)
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)

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


class ArchiveRollup(models.Model):
    """A Parquet file that counts the lives and attempts of one day and namespace in some slices, by hour and histogram bin.

    What later slices add to the day is in further roll-ups. first_at: the first hour in which one of its messages was enqueued;
    last_at: the last one in which one ended.
    """

    content, slice_id = "rollup", None  # as those of ArchiveFile

    day = models.DateField()
    namespace_id = models.BigIntegerField()
    path = models.CharField(max_length=250)
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()
    schema_version = models.PositiveSmallIntegerField()
    checksum = models.CharField(max_length=64)
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    rolled_up_at = models.DateTimeField()

    class Meta:
        db_table = "vitrine_archive_rollup"
        verbose_name = "archive roll-up"
        constraints = [models.UniqueConstraint(fields=["path"], name="vitrine_archive_rollup_path")]
        indexes = [models.Index(fields=["namespace_id", "day"], name="vitrine_archive_rollup_day")]

    def __str__(self):
        return self.path


class ArchiveRolledSlice(models.Model):
    """A slice whose lives and attempts of a day and namespace are counted in a roll-up. At most one counts them."""

    rollup = models.ForeignKey(ArchiveRollup, on_delete=models.CASCADE, related_name="slices")
    slice_id = models.BigIntegerField()
    day = models.DateField()
    namespace_id = models.BigIntegerField()

    class Meta:
        db_table = "vitrine_archive_rolled_slice"
        constraints = [
            models.UniqueConstraint(fields=["namespace_id", "day", "slice_id"], name="vitrine_archive_rolled_slice_once")
        ]
