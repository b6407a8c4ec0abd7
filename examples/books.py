"""The worker's own database for the job queue example, here SQLite."""

import sqlite3


class Books:
    """Account balances, and the ids of the messages that have been processed."""

    def __init__(self, path: str = ":memory:"):
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
        self.database.execute("CREATE TABLE IF NOT EXISTS done (message_id TEXT PRIMARY KEY)")

    def pay(self, message_id: str, account: str, cents: int) -> bool:
        """Pay once for each message id. Returns whether this call paid; False if the id was processed before."""
        with self.database:  # one transaction: the id and the payment, or neither
            marked = self.database.execute("INSERT INTO done VALUES (?) ON CONFLICT DO NOTHING", [message_id])
            if marked.rowcount == 0:
                return False
            self.database.execute(
                "INSERT INTO account VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET cents = cents + excluded.cents",
                [account, cents],
            )
        return True

    def balance(self, account: str) -> int:
        row = self.database.execute("SELECT cents FROM account WHERE name = ?", [account]).fetchone()
        return row[0] if row else 0
