"""Django's router: the models of the broker are read and written in the database of the current operation."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from .connections import current_database


class BrokerRouter:
    """For the setting DATABASE_ROUTERS."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return current_database().alias if model._meta.app_label == "broker_core" else None

    db_for_write = db_for_read
