"""Error messages that no other test provokes; `bench/checks/unprovoked.py` finds missing ones."""

import re
import types

import numpy as np
import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput, MissingExtra, NumericalError, PluginError, UnknownName
from fedsuplin.plugin import Problem, Setting, Stream, hookimpl
from fedsuplin.registry import Registry, Source
from fedsuplin.reproduce.experiment import Measured
from fedsuplin.simulation.recorder import Recorder
from fedsuplin_ext.loop import Engine
from fedsuplin_plugins.baselines import DisLinUCBTrigger, FedLinUCBNoise, UploadDownload
from fedsuplin_plugins.triggers import Determinant, TimedDeterminant
from fedsuplin_plugins.weightings import VarianceWeight

SIZES = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 100}


def raises(words, error=InvalidInput):
    return pytest.raises(error, match=words)


def test_a_variant_with_a_preset_that_does_not_exist():
    with raises("unknown preset 'practicle'. Did you mean 'practical'", UnknownName):
        fsl.Variant(presets={"practicle": {}})


def test_a_name_that_could_not_be_typed():
    module = types.ModuleType("plugin")
    module.fedsuplin_register_variants = hookimpl(lambda register: register("a+b", fsl.Variant()))
    module.fedsuplin_register_variants.__name__ = "fedsuplin_register_variants"
    registry, source = Registry(lambda: []), Source("plugin", "a-package", "1.0")
    with raises(re.escape("a name must not contain + or blanks"), PluginError):
        registry.add(module, source)


def test_parts_that_are_not_ready():
    for use in (lambda: VarianceWeight().weight(0.5, 0.1), VarianceWeight().compiled):
        with raises("has no gamma or rho yet: call bind"):
            use()
    setting = Setting(dim=4, n_arms=5, n_clients=2, horizon=100)
    for part, lacks, use in (
        (Determinant(), "C", lambda part: part.fires(1.0, 1.0)),
        (Determinant(), "C", lambda part: part.compiled()),
        (TimedDeterminant(), "D", lambda part: part.fires(1.0, 1.0)),
        (DisLinUCBTrigger(), "D", lambda part: part.compiled()),
        (UploadDownload(), "gamma_u", lambda part: part.fires(1.0, 1.0)),
        (UploadDownload(gamma_u=2.0), "gamma_d", lambda part: part.push_threshold),
        (FedLinUCBNoise(), "C", lambda part: part.radii(setting)),
    ):
        with raises(f"this {type(part).__name__} has no {lacks} yet: call bind"):
            use(part)
        use(part.bind(setting))
    with raises("radius must be 'theorem' or 'self-normalised', not 'round'"):
        FedLinUCBNoise(radius="round")


def test_an_option_that_a_problem_has_no_use_for():
    done = CliRunner().invoke(
        root_command, ["run", "async", "--problem", "digits", "--contexts", "ball"]
    )
    assert done.exit_code == 2 and "digits does not take --contexts; it takes" in " ".join(
        done.output.split()
    )


def test_a_parquet_file_without_pyarrow(tmp_path, monkeypatch):
    import pandas

    def missing(*_, **__):
        raise ImportError("Unable to find a usable engine")

    (tmp_path / "table.parquet").write_bytes(b"")
    monkeypatch.setattr(pandas, "read_parquet", missing)
    with raises(r"a Parquet file needs pyarrow: pip install 'fedsuplin\[datasets\]'", MissingExtra):
        fsl.problem_from_table(tmp_path / "table.parquet")


def test_streams_and_problems_that_say_too_little():
    class Silent(Stream):
        pass

    class Nowhere(Problem):
        dim, n_arms, n_clients, horizon = 2, 2, 1, 10

    with raises("Silent does not define how to take pulls: add take", TypeError):
        Silent().take(3)
    with raises("Silent has a position but does not define how to resume it", TypeError):
        Silent().resume({})
    with raises("Nowhere does not define how to play it: add stream", TypeError):
        fsl.run("async", Nowhere())


def test_an_arrival_that_gives_no_clients():
    class Late:
        in_rounds = False

        def clients(self, start, stop, *, n_clients, horizon, seed):
            return np.zeros(stop - start)

    with raises("must give 50 whole numbers, not float64", PluginError):
        fsl.run("async", fsl.SyntheticProblem(3, 4, 2, arrival=Late()), horizon=50)


def test_a_corruption_that_is_not_finite():
    class Wild:
        noise_scale, budget, corruption = 0.1, 5.0, 5.0

        def n_layers(self, setting):
            return 1

        def radii(self, setting):
            return [1.0]

        def target_widths(self, setting):
            return [1.0]

        def draw(self, rng, n):
            return np.zeros(n), np.zeros(n)

        def corrupt(self, rng, means, best):
            return np.full(means.shape, np.nan)

    with raises("corrupt must give finite numbers of shape", PluginError):
        fsl.run("oful", fsl.SyntheticProblem(3, 4, 2, noise=Wild()), horizon=50)


def test_a_client_whose_numbers_overflow():
    client = fsl.Client(fsl.make("oful", **SIZES))
    context = np.tile([1.0, 0.0, 0.0], (4, 1))
    with raises("no longer", NumericalError):
        for _ in range(20):
            client.observe(client.select(context), 1e308)


def test_a_client_whose_matrix_is_nearly_singular():
    heavy = fsl.make(
        "async",
        **SIZES,
        ridge=1e-6,
        weighting=lambda norm, sigma: 1e12,
        trigger="never",
        lazy=False,
    )
    client = fsl.Client(heavy)
    context = np.full((4, 3), 0.5)
    with raises("no longer positive definite, or hardly", NumericalError):
        for _ in range(600):
            client.observe(client.select(context), 0.1)


def test_what_was_observed_after_an_upload_must_fit_the_download():
    client = fsl.Client(fsl.make("async", **SIZES))
    decisions = [client.select(np.tile([0.6, 0.7, 0.1], (4, 1))) for _ in range(2)]
    client.observe(decisions[0], 0.1)
    client.upload()
    client.observe(decisions[1], 0.1)
    client._since = [
        (layer, x, 1e200, reward) for layer, x, _, reward in client._since
    ]  # a weight that no rule gives
    download = fsl.Server(client.algorithm).download(range(client.algorithm.n_layers))
    with raises("no longer positive definite, or hardly", NumericalError):
        client.apply(download)


def test_an_experiment_that_asks_for_runs_that_are_not_there():
    with pytest.raises(KeyError, match="no run has"):
        Measured([{"M": 1, "seed": 0, "regret": 1.0}], [None], ["M"]).values("regret", M=2)


def test_rows_that_are_more_than_there_can_be():
    algorithm = fsl.make("async", **SIZES)
    engine = Engine(algorithm)
    recorder = Recorder(engine, algorithm, "log", 100)
    with raises("it is at pull 101 of 100", ValueError):
        recorder.resume({"totals": np.array([101, 0, 0, 0, 0, 0])})


def test_a_record_that_is_neither_word_nor_number():
    with raises('record must be "log", "all" or a whole number'):
        fsl.run("async", fsl.SyntheticProblem(3, 4, 2), horizon=50, record="some")
