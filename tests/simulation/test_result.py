"""RunResult: files, frames, specifications."""

import errno
import json

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, MissingExtra
from fedsuplin_ext.loop import COUNTS, SUMS


@pytest.fixture(scope="module")
def result():
    return fsl.run("async", fsl.SyntheticProblem(4, 5, 3, seed=2), horizon=600, record="all")


def test_a_saved_result_is_loaded_completely(result, tmp_path):
    loaded = fsl.RunResult.load(result.save(tmp_path / "run.npz"))
    for name, value in vars(result).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(loaded, name), value, strict=True)
        else:
            assert getattr(loaded, name) == value
    assert not list(tmp_path.glob("*.part"))


def test_the_cpu_time_of_a_run_is_positive_and_not_longer_than_its_wall_time(result):
    assert 0 < result.cpu_time <= result.wall_time + 0.01  # the two clocks tick apart
    epochs = fsl.make("async", dim=4, n_arms=5, n_clients=3, horizon=None)
    assert fsl.run(epochs, fsl.SyntheticProblem(4, 5, 3, seed=2), horizon=3000).cpu_time > 0


def test_a_result_without_arms_is_loaded_without_them(tmp_path):
    thin = fsl.run("sync", fsl.SyntheticProblem(4, 5, 3, seed=2), horizon=600)
    assert fsl.RunResult.load(thin.save(tmp_path / "thin.npz")).arms is None


def test_a_full_disk_leaves_no_partial_file(result, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        result.save(tmp_path / "run.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_survives_a_failed_save(result, tmp_path, monkeypatch):
    path = result.save(tmp_path / "run.npz")
    before = path.read_bytes()

    def interrupted(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        result.save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def damaged_files(result, folder):
    whole = result.save(folder / "whole.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "text.npz").write_text("not a result")
    np.savez(folder / "foreign.npz", a=np.zeros(3))
    np.savez(folder / "other.npz", json=np.frombuffer(b'{"format": "other"}', np.uint8))
    np.save(folder / "pickle.npz", np.array([object()]), allow_pickle=True)
    return ["cut.npz", "text.npz", "foreign.npz", "other.npz", "pickle.npz.npy"]


def test_damaged_and_foreign_files_are_refused(result, tmp_path):
    for name in damaged_files(result, tmp_path):
        with pytest.raises(InvalidInput, match=f"{name} is not a") as raised:
            fsl.RunResult.load(tmp_path / name)
        assert "unsafe" not in str(raised.value) and "trust" not in str(raised.value)
    with pytest.raises(FileNotFoundError):
        fsl.RunResult.load(tmp_path / "absent.npz")


def test_a_future_format_is_refused_with_its_number(tmp_path):
    future = json.dumps({"format": "fedsuplin-result", "format_version": 99}).encode()
    np.savez(tmp_path / "future.npz", json=np.frombuffer(future, np.uint8))
    with pytest.raises(InvalidInput, match="format version 99"):
        fsl.RunResult.load(tmp_path / "future.npz")


def test_a_frame_has_one_row_per_recorded_pull(result):
    frame = result.to_frame()
    assert list(frame.columns) == ["pulls", *SUMS, *COUNTS, "arm", "layer", "client"]
    assert len(frame) == 600 and frame["regret"].iloc[-1] == result.regret[-1]


def test_a_missing_extra_is_named(result, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"fedsuplin\[frame\]"):
        result.to_frame()


@pytest.mark.parametrize("variant", ["async", "sync", "variance", "robust", "oful"])
def test_a_result_can_rebuild_its_run(variant):
    noise = {
        "variance": {"noise": "bounded", "R": 0.5},
        "robust": {"noise": "corrupted", "corruption": 3.0},
    }
    problem = fsl.SyntheticProblem(4, 5, 3, seed=2, contexts="ball", **noise.get(variant, {}))
    first = fsl.run(variant, problem, horizon=600, record="all", ridge=0.3)
    again = fsl.run(*first.rebuild(), horizon=600, record="all")
    np.testing.assert_array_equal(again.arms, first.arms)
    np.testing.assert_array_equal(again.regret, first.regret)
    assert again.spec == first.spec and again.departures == first.departures


def test_objects_that_are_not_in_the_spec_cannot_be_rebuilt():
    arrays = fsl.run(
        "async", fsl.ArrayProblem(np.full((4, 2, 2), 0.1), [0, 1, 0, 1], theta=[0.1, 0.2])
    )
    with pytest.raises(InvalidInput, match="'array' can't be made again"):
        arrays.rebuild()

    class Custom:
        def fires(self, gain, elapsed):
            return elapsed > 3

    custom = fsl.run("async", fsl.SyntheticProblem(4, 5, 3), horizon=60, trigger=Custom())
    with pytest.raises(InvalidInput, match="the trigger was passed as an object of type .*Custom"):
        custom.rebuild()


def test_the_repr_of_a_result_is_a_summary(result):
    assert repr(result).startswith("RunResult(async, 600 pulls: regret ") and "µs per pull" in repr(
        result
    )
    assert result.versions["fedsuplin"] == fsl.__version__ and result.seed == 2


def test_a_result_notes_that_its_algorithm_assumes_too_much_noise():
    sizes = {"dim": 4, "n_arms": 5, "n_clients": 2, "horizon": 300}
    problem = fsl.SyntheticProblem(4, 5, 2, noise_scale=0.1)
    wide, given = (
        fsl.run(fsl.make("async", **sizes), problem),
        fsl.run(fsl.make("async", **sizes, noise_scale=0.1), problem),
    )
    assert "assumes a noise scale of 1, the problem's is 0.1" in repr(wide) and "\n" not in repr(
        given
    )
    assert given.regret[-1] == fsl.run("async", problem, horizon=300).regret[-1] < wide.regret[-1]
    assert "noise scale" not in repr(fsl.run(fsl.make("async", **sizes, preset="theory"), problem))
    narrow = fsl.run(fsl.make("async", **sizes, noise_scale=0.01), problem)
    assert "the problem's noise scale is 0.1, the algorithm assumes 0.01" in narrow.departures
