-- What must never be in a row of vitrine_message. A constraint is parsed by the server for each statement that inserts or updates.
-- Together they cost a send or receive about 10 % of the server's processor time, of one message and of a batch (13 % of a single
-- one on an idle machine): so the tests have them, and no one else.
ALTER TABLE vitrine_message
    ADD CONSTRAINT vitrine_message_scheduled CHECK (state <> 2 OR scheduled_enqueue_at IS NOT NULL),
    ADD CONSTRAINT vitrine_message_dead CHECK (subqueue <> 1 OR dead_lettered_at IS NOT NULL),
    ADD CONSTRAINT vitrine_message_life CHECK (expires_at IS NULL OR expires_at >= enqueued_at),
    ADD CONSTRAINT vitrine_message_out_of_range CHECK (
        subqueue BETWEEN 0 AND 3 AND state BETWEEN 0 AND 2 AND delivery_count >= 0),
    -- A token together with one of the three columns of a family's lock, or none of them.
    ADD CONSTRAINT vitrine_message_ready_priority CHECK (
        ready_priority IS NOT DISTINCT FROM CASE WHEN owner_id IS NULL THEN priority END),
    ADD CONSTRAINT vitrine_message_half_locked CHECK (num_nonnulls(lock_token) = num_nonnulls(locked_until, visible_at, owner_id))
