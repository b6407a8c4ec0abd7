"""What the families run on, beneath their rules: the entity cache, waiting and waking, pacing of batches, previews."""
