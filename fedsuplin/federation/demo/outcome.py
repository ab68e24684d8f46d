"""Compare the server's sums with the clients' notes, and print how the demo ended."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console

from ..ledger import Ledger
from .player import read_notes
from .screen import describe_totals, format_times, join_totals
from .standing import add_up_clients
from .world import DIM, World

if TYPE_CHECKING:
    from .demo import Demo


class Reconciliation(NamedTuple):
    """The server's sums compared with the clients' notes."""

    noted: int
    merged: int
    worst: float
    """The largest difference, relative to the largest entry of its matrix or vector."""
    communication: int

    @property
    def is_right(self) -> bool:
        """Whether the outcome is right: every reward is in the sums exactly once."""
        return self.noted == self.merged and self.worst <= 1e-9


def reconcile(world: World, folder: Path) -> Reconciliation:
    """Compare the server's sums with those of all notes, layer by layer, for the outcome."""
    with contextlib.closing(Ledger(folder / "server.db")) as ledger:
        algorithm, noted, worst = ledger.algorithm, 0, 0.0
        grams = np.tile(algorithm.setting.ridge * np.eye(DIM), (algorithm.n_layers, 1, 1))
        moments = np.zeros((algorithm.n_layers, DIM))
        for number in range(world.n_clients):
            for note in read_notes(folder / f"client-{number}.notes"):
                x = world.draw_pull(number, note["pull"])[0][note["arm"]]
                grams[note["layer"]] += np.outer(x, x)
                moments[note["layer"]] += note["reward"] * x
                noted += 1
        for layer in range(algorithm.n_layers):
            known = ledger.server.layer(layer)
            for mine, theirs in ((grams[layer], known["gram"]), (moments[layer], known["moment"])):
                worst = max(
                    worst, float(np.abs(mine - theirs).max() / max(1.0, np.abs(mine).max()))
                )
        return Reconciliation(noted, ledger.total_pulls, worst, ledger.communication)


def summarize_outcome(demo: Demo, found: Reconciliation) -> dict[str, Any]:
    """Return the outcome of the demo as plain data."""
    kills = {
        "client_kills": sum(client.kills for client in demo.clients),
        "server_kills": demo.server_kills,
    }
    world = {
        "variant": demo.world.variant,
        "clients": demo.world.n_clients,
        "pulls_each": demo.world.n_pulls,
    }
    return world | add_up_clients(demo) | kills | found._asdict() | {"right": found.is_right}


def print_outcome(demo: Demo, found: Reconciliation, console: Console) -> None:
    """Print the outcome of the demo."""
    kills = sum(client.kills for client in demo.clients)
    whole = not console.is_terminal  # lines are folded in a terminal only
    totals = join_totals(describe_totals(demo)[:2])
    console.print(
        f"\n{totals}; communication {found.communication:,} (the paper's count)", soft_wrap=whole
    )
    console.print(
        f"clients were killed {format_times(kills)}, the server {format_times(demo.server_kills)}"
    )
    both = (
        f"{found.noted:,} rewards were observed, {found.merged:,} are in the server's sums, "
        f"which are right to {found.worst:.0e}"
    )
    if found.is_right:
        console.print(
            f"{both}: nothing was lost, nothing counted twice", style="bold green", soft_wrap=whole
        )
    else:
        console.print(f"{both}: THIS IS WRONG", style="bold red", soft_wrap=whole)
