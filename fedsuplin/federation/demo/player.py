"""A client's process in the demo: it notes every reward in a file before it observes it."""

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
from ..connection import Connection, connect
from .world import World

REPORT_SECONDS, PATIENCE_SECONDS = 0.1, 60.0
RECENT_PULLS = 100  # over which the recent regret is averaged


@dataclass(frozen=True)
class PlayerOptions:
    """The options of a client's process. Its token is in a file that others cannot read."""

    world: World
    client_id: int
    address: str
    folder: str
    parent: int
    seconds: float
    """In which it should finish."""

    def to_json(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PlayerOptions:
        """Read what `to_json` returned."""
        options = json.loads(text)
        return cls(**options | {"world": World(**options["world"])})

    def path(self, kind: str) -> Path:
        """Return the client's file of a kind: token, db or notes."""
        return Path(self.folder) / f"client-{self.client_id}.{kind}"


class Player:
    """A client of the federation, and one on its own for comparison."""

    def __init__(self, options: PlayerOptions) -> None:
        self._options, self._world, self._theta = options, options.world, options.world.theta
        self._alone = Client(options.world.make_lone_algorithm())
        self._regrets: deque[float] = deque(maxlen=RECENT_PULLS)
        self._sums = {"regret": 0.0, "uniform": 0.0, "alone": 0.0}
        self._notes = read_notes(options.path("notes"))
        for note in self._notes:
            self._count(note["pull"], note["arm"])
        self._next_report = 0.0

    def play(self) -> None:
        """Play all pulls that are left, and flush."""
        options, was_here = self._options, self._options.path("db").exists()
        token = options.path("token").read_text().strip()
        began = time.monotonic()
        with connect(
            options.address,
            client_id=options.client_id,
            token=token,
            store=options.path("db"),
            wait=PATIENCE_SECONDS,
            timeout=2.0,
        ) as client:
            self._settle(client)
            print_event(
                event="back" if was_here else "started",
                pulls=len(self._notes),
                known=client.n_observed,
            )
            with options.path("notes").open("a") as file:
                while len(self._notes) < self._world.n_pulls:
                    self._pull(client, file)
                    self._report(client)
                    left = options.seconds - (time.monotonic() - began)
                    time.sleep(max(0.0, left / max(1, self._world.n_pulls - len(self._notes))))
            client.flush(PATIENCE_SECONDS)
            self._next_report = 0.0
            self._report(client)

    def _settle(self, client: Connection) -> None:
        """Observe the noted rewards of open decisions, and drop the decisions without one."""
        noted = {note["id"]: note["reward"] for note in self._notes}
        for number in client.open:
            if number in noted:
                client.observe(number, noted[number])
            else:
                client.drop(number)

    def _pull(self, client: Connection, file: Any) -> None:
        """Choose an arm, note its reward in the file, and observe it."""
        pull = len(self._notes)
        contexts, noise = self._world.draw_pull(self._options.client_id, pull)
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
        """Add a pull to the regrets, and let the lone client play it too."""
        contexts, noise = self._world.draw_pull(self._options.client_id, pull)
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

    def _report(self, client: Connection) -> None:
        """Print the status, if it is time."""
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
    """Return a player's notes. A last line that a kill cut was not observed: it is removed."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def print_event(**fields: Any) -> None:
    """Print an event of a player as a line of JSON, for the demo to read."""
    print(json.dumps(fields), flush=True)


def main(arguments: list[str]) -> None:
    """Run the process of a player, whose options are the first argument."""
    options = PlayerOptions.from_json(arguments[0])
    end_with_parent(options.parent)
    Player(options).play()


if __name__ == "__main__":
    main(sys.argv[1:])
