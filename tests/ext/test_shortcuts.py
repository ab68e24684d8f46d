"""The engine's shortcuts change no decision; bench/checks/shortcuts.py plays many more settings."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "bench/checks/shortcuts.py"
shortcuts = importlib.util.module_from_spec(
    importlib.util.spec_from_file_location("shortcuts", FILE)
)
shortcuts.__spec__.loader.exec_module(shortcuts)


def test_runs_are_the_same_with_every_combination_of_shortcuts(capsys):
    """And each shortcut is used: the check fails if one spares nothing."""
    assert shortcuts.main(first=0, settings=12) == 0, capsys.readouterr().out
    assert "12 settings, " in capsys.readouterr().out


@pytest.mark.parametrize("seed", [15, 28, 33, 83])
def test_settings_in_which_the_proof_of_another_download_would_change_a_decision(seed):
    """Found with the faults of bench/checks/mutants.py: clients hold old downloads there."""
    assert shortcuts.check_setting(seed).differences == []


def test_a_difference_and_a_shortcut_that_is_not_used_are_reported(capsys, monkeypatch):
    outcome = shortcuts.Outcome("d = 2", 3, 10, ["fresh: counts differs"], 5, {"fresh": 1})
    monkeypatch.setattr(shortcuts, "check_setting", lambda seed: outcome)
    assert shortcuts.main(first=7, settings=1) == 1
    out = capsys.readouterr().out
    assert "seed 7: d = 2\n    fresh: counts differs\n" in out
    assert "1 settings differ; never used: spikes, proofs, fused" in out


def test_the_calls_of_one_engine_are_counted_at_a_time():
    engine = shortcuts.Engine(shortcuts.fsl.make("async", dim=2, n_arms=2, n_clients=1, horizon=9))
    with (
        shortcuts.CallCounter(engine),
        pytest.raises(RuntimeError, match="another engine"),
        shortcuts.CallCounter(engine),
    ):
        pass
