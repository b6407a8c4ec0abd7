"""URLs of the pages that only Service Bus has. Those that all families share are in explorer.urls."""

from functools import partial

from django.urls import path

from broker_core.common.types import Family
from explorer.addresses import ENTITY
from explorer.frames.by_family import only_of

from . import behaviour, keys, names, release_locks, rules, settings

_own = partial(only_of, Family.SERVICE_BUS)

urlpatterns = [
    path("names/<slug:of>/", names.names, name="names"),
    path("behaviour/<namespace:namespace>/", behaviour.change, name="namespace_behaviour"),
    path("administration/new-access-policy/", keys.create, name="access_policy_new"),
    path("administration/keys/<str:name>/<namespace:namespace>/", keys.policy, name="access_policy"),
    path(f"administration/keys/<str:name>/{ENTITY}", keys.policy, name="entity_access_policy"),
    path("new/<slug:kind>/", settings.create, name="entity_new"),
    path(f"new-rule/{ENTITY}", _own(rules.new_rule), name="rule_new"),
    path(f"rules/<str:rule>/{ENTITY}", _own(rules.rule), name="rule"),
    path(f"delete-rule/<str:rule>/{ENTITY}", _own(rules.delete_rule), name="rule_delete"),
    path(f"test-rules/{ENTITY}", _own(rules.test_rules), name="test_rules"),
    path(f"release-locks/{ENTITY}", _own(release_locks.release_locks), name="release_locks"),
]
