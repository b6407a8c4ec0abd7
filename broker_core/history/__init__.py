"""The history beyond the event table: the archive in Parquet files, its manifest, and the retention of events in Postgres."""
