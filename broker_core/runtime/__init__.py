"""Shared by the operations of all families: the entity cache, waiting and waking, pacing of batches, previews."""
