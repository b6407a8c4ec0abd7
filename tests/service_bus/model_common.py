"""What the models of messages and of sessions have in common."""

from dataclasses import replace

from broker_core.common.types import MessageState, SubQueue

from . import specification as sb
from .specification import MakeAvailable, MoveToDeadLetter, Remove


class Fates:
    """Applies what the specification decides to the model's `messages`, by its `now` and `settings`."""

    def _fate_of_deferred(self, m):
        if sb.is_locked(m.facts, self.now):
            return None
        if sb.has_expired(m.facts, self.now, self.settings):
            return sb.expire(self.settings)
        return sb.after_failed_delivery(m.facts, sb.failures(m.facts, self.now), self.now, self.settings)

    def _apply(self, modelled, outcome):
        match outcome:
            case Remove():
                self.messages.remove(modelled)
            case MakeAvailable(count):
                facts = replace(modelled.facts, locked_until=None, delivery_count=count)
                self._replace(modelled, replace(modelled, facts=facts, token=None))
            case sb.SetAside():
                facts = replace(modelled.facts, locked_until=None, state=MessageState.DEFERRED)
                self._replace(modelled, replace(modelled, facts=facts, token=None))
            case MoveToDeadLetter(reason):
                facts = replace(
                    modelled.facts, subqueue=SubQueue.DEAD_LETTER, state=MessageState.ACTIVE, locked_until=None, delivery_count=0
                )
                self._replace(modelled, replace(modelled, facts=facts, token=None, reason=reason))
            case sb.KeepLocked(until):
                self._replace(modelled, replace(modelled, facts=replace(modelled.facts, locked_until=until)))

    def _replace(self, old, new):
        self.messages[self.messages.index(old)] = new
