"""History beyond the event table: its archive in Parquet, who reads that, and how long events stay in Postgres."""
