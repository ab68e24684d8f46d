"""What each exit code means."""

import pytest

import fedsuplin.__main__ as start
from fedsuplin.cli import bench, output, tokens, variants
from fedsuplin.cli.exit_codes import INTERRUPTED
from fedsuplin.errors import FederationError
from fedsuplin.federation.demo import demo

SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")


def test_0_means_done(call):
    assert call("run", *SMALL).exit_code == 0


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_1_means_that_something_outside_went_wrong(call, tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(output.tempfile, "TemporaryFile", full)
        call("run", *SMALL, "--out", tmp_path, code=1)
    call("run", "--horizon", "1e14", "--record", "all", code=1)

    def unavailable(*_, **__):
        raise FederationError("no answer")

    monkeypatch.setattr(demo, "run_demo", unavailable)
    assert call("demo", "federation", code=1).stderr == "Error: no answer\n"


def test_1_also_means_that_a_run_failed_or_that_sums_are_wrong(call, folder, monkeypatch):
    plan = (folder / "grid.toml").read_text().replace("'oful'", "'oful'\nalpha_scale = -1")
    (folder / "grid.toml").write_text(plan)
    call("sweep", "grid.toml", code=1)
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: False)
    call("demo", "federation", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("walk",),
        ("run", "asinc"),
        ("run", "--dim", "x"),
        ("compare", "--seeds", "0"),
        ("sweep",),
        ("sweep", "nowhere.toml"),
        ("reproduce", "everything"),
        ("variants", "synk"),
        ("plugins", "new", "θ"),
        ("completion", "tcsh"),
        ("serve", "--store", "new.db"),
        ("tokens", "t.json"),
        ("demo", "federation", "--variant", "robust"),
        ("bench", "--fast"),
    ],
)
def test_2_means_wrong_usage_or_input(call, arguments, folder):
    assert call(*arguments, code=2).stdout == ""


def test_130_means_ctrl_c_whenever_it_comes(call, monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    for module, name, arguments in (
        (bench, "measure_all", ["bench"]),
        (variants, "make_variants_table", ["variants"]),
        (tokens, "make_tokens", ["tokens", "new.json", "--clients", "1"]),
        (demo, "run_demo", ["demo", "federation"]),
    ):
        with monkeypatch.context() as context:
            context.setattr(module, name, pressed)
            assert call(*arguments, code=130).stderr == "stopped\n"
    assert start.INTERRUPTED == INTERRUPTED == 130
