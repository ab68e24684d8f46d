"""A client process of the demo, which notes every reward before it observes it."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..._shared.child_processes import end_with_parent
from ...live.client import Client
from .world import World

REPORT_SECONDS, PATIENCE_SECONDS = 0.1, 60.0
RECENT_PULLS = 100  # pulls


@dataclass(frozen=True)
class PlayerOptions:
    """All that a client process needs to know. The token is in a file, where others do not see it."""

    world: World
    client_id: int
    address: str
    folder: str
    parent: int
    seconds: float
    """In which it shall be through."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PlayerOptions:
        told = json.loads(text)
        return cls(**told | {"world": World(**told["world"])})

    def path(self, kind: str) -> Path:
        return Path(self.folder) / f"client-{self.client_id}.{kind}"


class Player:
    """A client of the federation, and beside it, for comparison, one that is alone."""

    def __init__(self, told: PlayerOptions) -> None:
        self._told, self._world, self._theta = told, told.world, told.world.theta
        self._alone = Client(told.world.alone())
        self._regrets: deque[float] = deque(maxlen=RECENT_PULLS)
        self._sums = {"regret": 0.0, "uniform": 0.0, "alone": 0.0}
        self._notes = read_notes(told.path("notes"))
        for note in self._notes:
            self._count(note["pull"], note["arm"])
        self._next_report = 0.0

    def play(self) -> None:
        from ..connection import connect

        told, was_here = self._told, self._told.path("db").exists()
        token = told.path("token").read_text().strip()
        began = time.monotonic()
        with connect(
            told.address,
            client_id=told.client_id,
            token=token,
            store=told.path("db"),
            wait=PATIENCE_SECONDS,
            timeout=2.0,
        ) as client:
            self._settle(client)
            print_event(
                event="back" if was_here else "started",
                pulls=len(self._notes),
                known=client.n_observed,
            )
            with told.path("notes").open("a") as file:
                while len(self._notes) < self._world.n_pulls:
                    self._pull(client, file)
                    self._report(client)
                    left = told.seconds - (time.monotonic() - began)
                    time.sleep(max(0.0, left / max(1, self._world.n_pulls - len(self._notes))))
            client.flush(PATIENCE_SECONDS)
            self._next_report = 0.0
            self._report(client)

    def _settle(self, client: Any) -> None:
        """What was under way when this client was killed: a reward that was noted is observed, a decision without one dropped."""
        noted = {note["id"]: note["reward"] for note in self._notes}
        for number in client.open:
            if number in noted:
                client.observe(number, noted[number])
            else:
                client.drop(number)

    def _pull(self, client: Any, file: Any) -> None:
        pull = len(self._notes)
        contexts, noise = self._world.drawn(self._told.client_id, pull)
        decision = client.select(contexts)
        reward = float(contexts[decision.arm] @ self._theta + noise)
        note = {
            "pull": pull,
            "id": decision.id,
            "arm": decision.arm,
            "layer": decision.layer,
            "reward": reward,
        }
        file.write(json.dumps(note) + "\n")
        file.flush()
        client.observe(decision, reward)
        self._notes.append(note)
        self._count(pull, decision.arm)

    def _count(self, pull: int, arm: int) -> None:
        contexts, noise = self._world.drawn(self._told.client_id, pull)
        means = contexts @ self._theta
        decision = self._alone.select(contexts)
        self._alone.observe(decision, means[decision.arm] + noise)
        self._regrets.append(float(means.max() - means[arm]))
        for name, lost in (
            ("regret", means[arm]),
            ("uniform", means.mean()),
            ("alone", means[decision.arm]),
        ):
            self._sums[name] += float(means.max() - lost)

    def _report(self, client: Any) -> None:
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + REPORT_SECONDS
            lately = sum(self._regrets) / max(1, len(self._regrets))
            print_event(
                event="status",
                pulls=len(self._notes),
                **self._sums,
                lately=lately,
                **client.stats(),
            )


def read_notes(path: Path) -> list[dict[str, Any]]:
    """Whole lines; a kill may have cut the last one, which then was not observed either."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def print_event(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def main(arguments: list[str]) -> None:
    told = PlayerOptions.from_json(arguments[0])
    end_with_parent(told.parent)
    Player(told).play()


if __name__ == "__main__":
    main(sys.argv[1:])
