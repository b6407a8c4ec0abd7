"""The listeners, which serve network clients: whether they run, on which ports, and what they refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from broker_core.common.types import Actor
from broker_core.listener import status
from broker_core.listener.front_ends import known_ports
from broker_core.listener.status import OpenPort, RunningListener


@dataclass(frozen=True, slots=True)
class Network:
    """running: the listeners, the oldest first. is_on: whether the settings have a port for network clients."""

    running: Sequence[RunningListener]
    is_on: bool

    @property
    def is_missing(self) -> bool:
        """Whether a listener should run, and none does."""
        return self.is_on and not self.running

    @property
    def since(self) -> datetime | None:
        return self.running[0].since if self.running else None

    @property
    def ports(self) -> list[OpenPort]:
        """Those of all listeners, each once."""
        return list(dict.fromkeys(port for one in self.running for port in one.listening.ports))

    @property
    def problems(self) -> list[str]:
        """A sentence for each port that could not be opened."""
        return list(dict.fromkeys(problem for one in self.running for problem in one.listening.problems))

    @property
    def refused(self) -> list[tuple[str, int]]:
        """How many connections were refused or ended since the listeners started, by the reason, the most frequent first."""
        total: Counter[str] = Counter()
        for one in self.running:
            total.update(one.listening.refused)
        return total.most_common()


def network(actor: Actor | None = None) -> Network:
    """The listeners as they are now. Raises BrokerUnavailable."""
    return Network(status.listeners(actor=actor), any(port.number for port in known_ports()))
