"""Storage queues in Django's admin: metadata and options of a queue."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from django import forms

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Family
from broker_core.model_admin import EntityPart, address_of, entity_parts
from broker_core.models import Entity

from .forms import QueueOptionsForm, as_lines
from .queues import update_queue
from .rules import options as storage_options


class StorageQueueForm(QueueOptionsForm, forms.ModelForm):
    """The metadata and options of an existing storage queue."""

    class Meta:
        model = Entity
        fields = ["history_level"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        stored = storage_options.from_json(self.instance.options or {})
        self.initial |= {field.name: getattr(stored, field.name) for field in fields(stored)}
        self.initial["metadata"] = as_lines(stored.metadata)

    def clean(self):
        cleaned = super().clean()
        if not self.errors:
            try:
                storage_options.changed(self.instance.path, storage_options.from_json(self.instance.options), self.changes())
            except InvalidArgument as exc:
                self.add_error(exc.name if exc.name in self.fields else None, exc.problem)
        return cleaned

    def changes(self) -> dict[str, Any]:
        """The changed options, by their names in QueueOptions."""
        options = self.options()
        return {name: options[name] for name in self.changed_data if name != "history_level"}


def _change(queue: Entity, form: Any, actor: Actor) -> None:
    level = {"history_level": form.cleaned_data["history_level"]} if "history_level" in form.changed_data else {}
    if changes := form.changes() | level:
        update_queue(address_of(queue), actor=actor, **changes)


entity_parts[Family.QUEUE_STORAGE] = EntityPart(
    title="Storage queue",
    fields=["metadata", "max_dequeue_count", "poison_queue", "expiry_grace", "strict_visibility", "history_level"],
    form=StorageQueueForm,
    change=_change,
)
