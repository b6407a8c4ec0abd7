"""Administration: people, keys, policies, schedules, background tasks, activity and storage."""
