"""Django admin for exchanges, bindings and policies, and read-only for connections and consumers.

Exchanges and bindings cannot be changed, only declared and deleted.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin

from broker_core import rabbitmq
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Family
from broker_core.model_admin import EntityPart, ReadOnlyAdmin, UseCaseAdmin, actor_of, entity_parts, to_the_millisecond
from broker_core.models import Binding, Connection, Consumer, Exchange, Namespace, Policy
from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.exchanges import ExchangeType

from .rules import arguments as checks
from .rules import policies as rules
from .rules import table

_TYPES = [(kind.value, kind.value) for kind in ExchangeType]
entity_parts[Family.RABBITMQ] = EntityPart(
    "RabbitMQ queue",
    fields=["configured_settings", "effective_settings"],
    read_only=["configured_settings", "effective_settings"],
)
_FIELDS = {"apply-to": "apply_to"}  # fields of InvalidPolicy that have another name in the form


def vhosts():
    return Namespace.objects.filter(family=Family.RABBITMQ, deleted_at=None)


class ArgumentsField(forms.JSONField):
    """Arguments as plain JSON; stored arguments are shown without their types."""

    def __init__(self, **kwargs):
        super().__init__(required=False, help_text='As JSON: {"alternate-exchange": "others"}. Empty: none.', **kwargs)

    def clean(self, value):
        parsed = super().clean(value)
        if parsed in (None, ""):
            return {}
        if not isinstance(parsed, dict):
            raise forms.ValidationError("must be a JSON object")
        return parsed


class ExchangeForm(forms.ModelForm):
    type = forms.ChoiceField(choices=_TYPES)
    arguments = ArgumentsField()

    class Meta:
        model = Exchange
        fields = ["namespace", "name", "type", "durable", "auto_delete", "internal", "arguments"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "namespace" in self.fields:
            self.fields["namespace"].queryset = vhosts()

    def clean(self):
        cleaned = super().clean()
        if not self.errors:
            _check(self, "name", lambda: checks.check_exchange(
                cleaned["namespace"].name, cleaned["name"], cleaned["type"], cleaned["arguments"], exists=False
            ))  # fmt: skip
        return cleaned


class BindingForm(forms.ModelForm):
    """One destination: a queue, or another exchange of the same virtual host."""

    arguments = ArgumentsField()

    class Meta:
        model = Binding
        fields = ["source", "queue", "exchange", "routing_key", "arguments"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "queue" in self.fields:
            queues = self.fields["queue"].queryset.filter(deleted_at=None, family=Family.RABBITMQ)
            self.fields["queue"].queryset = queues.select_related("namespace")
        for name in {"source", "exchange"} & self.fields.keys():
            self.fields[name].queryset = Exchange.objects.select_related("namespace")

    def clean(self):
        cleaned = super().clean()
        source, queue, exchange = (cleaned.get(name) for name in ("source", "queue", "exchange"))
        if (queue is None) == (exchange is None):
            raise forms.ValidationError("Choose either a queue or an exchange, not both.")
        if source and (queue or exchange).namespace_id != source.namespace_id:
            raise forms.ValidationError("Both ends must be in the same virtual host.")
        if source and not self.errors:
            _check(self, "arguments", lambda: checks.check_binding_arguments(source.type, cleaned["arguments"]))
        return cleaned


class PolicyForm(forms.ModelForm):
    apply_to = forms.ChoiceField(choices=[(name, name) for name in rules.APPLY_TO if name != "streams"], initial="all")
    definition = forms.JSONField(help_text='By RabbitMQ\'s names: {"message-ttl": 60000, "dead-letter-exchange": "dead"}.')

    class Meta:
        model = Policy
        fields = ["namespace", "name", "is_operator", "pattern", "apply_to", "priority", "definition"]
        help_texts = {
            "pattern": "A regular expression, matched anywhere in a name. Empty: all names.",
            "priority": "Only the matching policy with the highest priority applies.",
        }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "namespace" in self.fields:
            self.fields["namespace"].queryset = vhosts()
        self.initial["priority"] = _whole(self.initial.get("priority", 0))

    def clean(self):
        cleaned = super().clean()
        if not self.errors:
            try:
                cleaned["policy"] = rules.check(self._policy(cleaned))
            except InvalidPolicy as refusal:
                field = _FIELDS.get(refusal.field, refusal.field)
                self.add_error(field if field in self.fields else "definition", refusal.reason)
        return cleaned

    def _policy(self, cleaned: dict[str, Any]) -> rules.Policy:
        """The form of an existing policy does not contain its name and kind."""
        name, is_operator = (cleaned.get(field, getattr(self.instance, field)) for field in ("name", "is_operator"))
        priority = _whole(cleaned["priority"])
        return rules.Policy(name, cleaned["pattern"], cleaned["definition"], cleaned["apply_to"], priority, is_operator)


def _whole(priority: float) -> float:
    """A whole priority as int: 1, not 1.0."""
    return int(priority) if priority == int(priority) else priority


def _check(form: forms.ModelForm, field: str, check: Any) -> None:
    """Show RabbitMQ's error at the field it most likely concerns."""
    try:
        check()
    except BrokerError as refusal:
        form.add_error(field, refusal.problem if isinstance(refusal, InvalidArgument) else str(refusal))


class DeclaredAdmin(UseCaseAdmin):
    """Objects that are declared and deleted, but not changed."""

    def has_change_permission(self, request, obj=None):
        return False

    @admin.display(description="arguments")
    def arguments_text(self, obj):
        values = table.plain(table.decode(obj.arguments))
        return ", ".join(f"{name}: {value}" for name, value in sorted(values.items()))

    @admin.display(description="virtual host")
    def vhost(self, obj):
        return (obj.source if isinstance(obj, Binding) else obj).namespace.name


@admin.register(Exchange)
class ExchangeAdmin(DeclaredAdmin):
    form = ExchangeForm
    list_display = ["name", "vhost", "type", "durable", "auto_delete", "internal", "arguments_text", "created_at"]
    list_filter = ["type", "namespace"]
    search_fields = ["name"]
    list_select_related = ["namespace"]
    ordering = ["namespace__name", "name"]

    def get_fields(self, request, obj=None):
        about = ["namespace", "name", "type", "durable", "auto_delete", "internal"]
        return [*about, "arguments_text", "effective", "created_at"] if obj else [*about, "arguments"]

    def save_model(self, request, obj, form, change):
        cleaned = form.cleaned_data
        flags = {name: cleaned[name] for name in ("durable", "auto_delete", "internal", "arguments")}
        rabbitmq.declare_exchange(cleaned["namespace"].name, cleaned["name"], cleaned["type"], **flags, actor=actor_of(request))
        obj.pk = Exchange.objects.get(namespace=cleaned["namespace"], name=cleaned["name"]).pk

    def delete_one(self, request, obj):
        rabbitmq.delete_exchange(obj.namespace.name, obj.name, actor=actor_of(request))


@admin.register(Binding)
class BindingAdmin(DeclaredAdmin):
    form = BindingForm
    list_display = ["source", "destination", "routing_key", "arguments_text", "vhost", "created_at"]
    list_display_links = ["source"]
    list_filter = ["source__namespace"]
    search_fields = ["source__name", "queue__path", "exchange__name", "routing_key"]
    list_select_related = ["source__namespace", "queue__namespace", "exchange__namespace"]
    ordering = ["source__namespace__name", "source__name", "pk"]

    def get_fields(self, request, obj=None):
        about = ["source", "queue", "exchange", "routing_key"]
        return [*about, "arguments_text", "created_at"] if obj else [*about, "arguments"]

    @admin.display
    def destination(self, obj):
        return f"queue {obj.queue.path}" if obj.queue else f"exchange {obj.exchange.name}"

    def save_model(self, request, obj, form, change):
        cleaned, actor = form.cleaned_data, actor_of(request)
        source, vhost = cleaned["source"], cleaned["source"].namespace.name
        key = {"routing_key": cleaned["routing_key"], "arguments": cleaned["arguments"], "actor": actor}
        if cleaned["queue"]:
            rabbitmq.bind_queue(vhost, cleaned["queue"].path, source.name, **key)
        else:
            rabbitmq.bind_exchange(vhost, cleaned["exchange"].name, source.name, **key)
        bindings = Binding.objects.filter(
            source=source, queue=cleaned["queue"], exchange=cleaned["exchange"], routing_key=cleaned["routing_key"]
        )
        obj.pk = bindings.order_by("-pk").values_list("pk", flat=True)[0]

    def delete_one(self, request, obj):
        vhost, key = obj.source.namespace.name, {"routing_key": obj.routing_key, "arguments": table.decode(obj.arguments)}
        if obj.queue:
            rabbitmq.unbind_queue(vhost, obj.queue.path, obj.source.name, **key, actor=actor_of(request))
        else:
            rabbitmq.unbind_exchange(vhost, obj.exchange.name, obj.source.name, **key, actor=actor_of(request))


@admin.register(Policy)
class PolicyAdmin(UseCaseAdmin):
    form = PolicyForm
    list_display = ["name", "vhost", "is_operator", "level", "pattern", "apply_to", "definition"]
    list_filter = ["is_operator", "apply_to", "namespace"]
    search_fields = ["name", "pattern"]
    list_select_related = ["namespace"]
    ordering = ["namespace__name", "is_operator", "-priority", "name"]

    def get_fields(self, request, obj=None):
        return ["namespace", "name", "is_operator", "pattern", "apply_to", "priority", "definition"]

    def get_readonly_fields(self, request, obj=None):
        return ["namespace", "name", "is_operator"] if obj else []

    @admin.display(description="priority", ordering="priority")
    def level(self, obj):
        return _whole(obj.priority)

    @admin.display(description="virtual host", ordering="namespace__name")
    def vhost(self, obj):
        return obj.namespace.name

    def save_model(self, request, obj, form, change):
        policy = form.cleaned_data["policy"]
        rabbitmq.set_policy(obj.namespace.name, policy, actor=actor_of(request))
        obj.pk = Policy.objects.get(namespace=obj.namespace, name=policy.name, is_operator=policy.is_operator).pk

    def delete_one(self, request, obj):
        rabbitmq.delete_policy(obj.namespace.name, obj.name, obj.is_operator, actor=actor_of(request))


@admin.register(Connection)
class ConnectionAdmin(ReadOnlyAdmin):
    list_display = ["name", "vhost", "process_label", "epoch", "opened", "lease"]
    list_filter = ["namespace"]
    search_fields = ["name", "process__label"]
    list_select_related = ["namespace", "process"]
    sortable_by: list[str] = []
    ordering = ["-pk"]

    @admin.display(description="virtual host")
    def vhost(self, obj):
        return obj.namespace.name

    @admin.display(description="process")
    def process_label(self, obj):
        return obj.process.label

    @admin.display
    def epoch(self, obj):
        return obj.process_id

    @admin.display(description="opened, on the virtual host's clock")
    def opened(self, obj):
        return to_the_millisecond(obj.opened_at)

    @admin.display(description="lease until")
    def lease(self, obj):
        return to_the_millisecond(obj.process.lease_until)


@admin.register(Consumer)
class ConsumerAdmin(ReadOnlyAdmin):
    list_display = ["tag", "queue", "connection", "channel", "no_ack", "exclusive", "priority", "prefetch", "began"]
    list_filter = ["queue__namespace"]
    search_fields = ["tag", "queue__path", "connection__name"]
    list_select_related = ["queue__namespace", "connection"]
    sortable_by: list[str] = []
    ordering = ["queue__namespace__name", "queue__path", "pk"]

    @admin.display(description="began, on the virtual host's clock")
    def began(self, obj):
        return to_the_millisecond(obj.began_at)
