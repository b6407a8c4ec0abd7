"""The pages of Administration, as data. A page names its tab in the context variable `tab`."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse


@dataclass(frozen=True, slots=True)
class Tab:
    """A page of Administration. name: what the page gives as `tab`."""

    name: str
    title: str
    url_name: str

    @property
    def url(self) -> str:
        return reverse(f"explorer:{self.url_name}")


TABS = (
    Tab("overview", "Overview", "administration"),
    Tab("people", "People", "people"),
    Tab("keys", "Keys", "access_keys"),
    Tab("policies", "Policies", "policies"),
    Tab("tasks", "Tasks and schedules", "background_tasks"),
    Tab("activity", "Activity", "audit"),
    Tab("storage", "Storage", "storage"),
)
