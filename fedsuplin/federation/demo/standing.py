"""What the demo knows of each client and of all together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .demo import Demo


@dataclass
class ClientStanding:
    """A client, as far as it has told."""

    state: str = "starting"
    pulls: int = 0
    kills: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    earlier: dict[str, float] = field(default_factory=dict)
    """Counts of the processes before this one."""

    COUNTS = ("syncs", "bytes_up", "bytes_down")

    def update(self, told: dict[str, Any]) -> None:
        self.pulls, self.numbers = told["pulls"], told
        self.state = "offline" if told["last_failure"] and not told["online"] else "playing"

    def killed(self) -> None:
        self.state, self.kills = "killed", self.kills + 1
        self.earlier = {name: self.count(name) for name in self.COUNTS}
        self.numbers = {
            name: value for name, value in self.numbers.items() if name not in self.COUNTS
        }

    def count(self, name: str) -> float:
        return self.earlier.get(name, 0) + self.numbers.get(name, 0)


def add_up_clients(demo: Demo) -> dict[str, float]:
    """What all clients together have come to."""
    regrets = {
        name: sum(client.numbers.get(name, 0.0) for client in demo.clients)
        for name in ("regret", "uniform", "alone")
    }
    counts = {
        name: sum(client.count(name) for client in demo.clients) for name in ClientStanding.COUNTS
    }
    return {"pulls": sum(client.pulls for client in demo.clients)} | regrets | counts
