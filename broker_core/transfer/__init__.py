"""Configuration and messages out of the database and into it: Vitrine's own lossless files, and the emulator's configuration."""
