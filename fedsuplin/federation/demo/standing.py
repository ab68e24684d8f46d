"""What the demo knows about each client, and the totals of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .demo import Demo


@dataclass
class ClientStanding:
    """The last known state of a client."""

    state: str = "starting"
    pulls: int = 0
    kills: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    earlier: dict[str, float] = field(default_factory=dict)
    """Counts of the processes before this one."""

    COUNTS = ("syncs", "bytes_up", "bytes_down")

    def update(self, status: dict[str, Any]) -> None:
        """Take a status that the client printed."""
        self.pulls, self.numbers = status["pulls"], status
        self.state = "offline" if status["last_failure"] and not status["online"] else "playing"

    def mark_killed(self) -> None:
        """Note that the process was killed, and keep its counts."""
        self.state, self.kills = "killed", self.kills + 1
        self.earlier = {name: self.count(name) for name in self.COUNTS}
        self.numbers = {
            name: value for name, value in self.numbers.items() if name not in self.COUNTS
        }

    def count(self, name: str) -> float:
        """Return a count over all processes of this client."""
        return self.earlier.get(name, 0) + self.numbers.get(name, 0)


def add_up_clients(demo: Demo) -> dict[str, float]:
    """Add up the standings of all clients of the demo, and return the totals."""
    regrets = {
        name: sum(client.numbers.get(name, 0.0) for client in demo.clients)
        for name in ("regret", "uniform", "alone")
    }
    counts = {
        name: sum(client.count(name) for client in demo.clients) for name in ClientStanding.COUNTS
    }
    return {"pulls": sum(client.pulls for client in demo.clients)} | regrets | counts
