"""The rules: standard library only. No Django, no SQL, no clock, no randomness; the time is an argument."""
