-- The keys and service properties of storage accounts.

-- name: create_storage_account
-- In the transaction that creates the account's namespace.
INSERT INTO vitrine_storage_account (namespace_id, primary_key, secondary_key, properties)
VALUES (%(namespace_id)s, %(primary_key)s::text, %(secondary_key)s::text, %(properties)s::text::jsonb)
RETURNING namespace_id;

-- name: storage_account
-- No row: there is no such account.
SELECT n.id, n.name, a.primary_key, a.secondary_key, a.properties
  FROM vitrine_namespace AS n JOIN vitrine_storage_account AS a ON a.namespace_id = n.id
 WHERE lower(n.name) = lower(%(account)s::text) AND n.deleted_at IS NULL;

-- name: set_storage_account_keys
-- A key that is NULL stays. No row: there is no such account.
UPDATE vitrine_storage_account AS a
   SET primary_key = coalesce(%(primary_key)s::text, a.primary_key),
       secondary_key = coalesce(%(secondary_key)s::text, a.secondary_key)
  FROM vitrine_namespace AS n
 WHERE n.id = a.namespace_id AND lower(n.name) = lower(%(account)s::text) AND n.deleted_at IS NULL
RETURNING n.id, n.name, a.primary_key, a.secondary_key, a.properties;

-- name: set_storage_account_properties
-- Replaces the parts that are given. No row: there is no such account.
UPDATE vitrine_storage_account AS a
   SET properties = a.properties || %(properties)s::text::jsonb
  FROM vitrine_namespace AS n
 WHERE n.id = a.namespace_id AND lower(n.name) = lower(%(account)s::text) AND n.deleted_at IS NULL
RETURNING a.properties;

-- name: export_storage_account
-- The keys and properties of an account.
SELECT primary_key, secondary_key, properties FROM vitrine_storage_account WHERE namespace_id = %(namespace_id)s;
