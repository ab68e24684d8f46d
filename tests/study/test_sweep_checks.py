"""Names in a sweep that do not exist are reported before anything runs."""

import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, UnknownName
from fedsuplin.study import sweeps

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}


def swept(policies="async", problems=PROBLEM, seeds=2, **keywords):
    return fsl.sweep(policies, problems, seeds=seeds, **keywords)


def a_problem(seed, dim=3, horizon=None):
    return fsl.SyntheticProblem(dim, 4, 2, seed=seed)


class Nameless:
    def fires(self, gain, elapsed):
        return True


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"policies": "asinc"}, "unknown variant 'asinc'. Did you mean 'async'"),
        (
            {"policies": {"name": "async", "alpha_scal": 1}},
            "unknown keyword for 'async' 'alpha_scal'. Did you mean 'alpha_scale'",
        ),
        (
            {"policies": {"name": "async", "trigger": "periodik"}},
            "unknown trigger 'periodik'. Did you mean 'periodic'",
        ),
        (
            {"policies": {"name": "async", "preset": "theorie"}},
            "unknown preset 'theorie'. Did you mean 'theory'",
        ),
        ({"policies": {"name": "async", "syncs": "al"}}, "unknown syncs 'al'. Did you mean 'all'"),
        ({"policies": {"name": "async", "horizon": 5}}, "unknown keyword for 'async' 'horizon'"),
        ({"policies": {"C": 1}}, "must say which policy: add name"),
        ({"policies": [3]}, "must be a grid or several"),
        ({"policies": 3}, "must be a grid or several"),
        ({"policies": []}, "nothing to run: policies are missing"),
        ({"policies": {"name": "async", "C": []}}, "the axis C of policies has no values"),
        ({"policies": ["oful", "oful"]}, "in the sweep twice"),
        ({"policies": {"name": "async", "C": [1, 1.0]}}, "in the sweep twice"),
        (
            {"policies": {"name": "async", "trigger": Nameless()}},
            "has no name by which its runs could be found again",
        ),
        (
            {"policies": {"name": "async", "trigger": lambda gain, elapsed: True}},
            "has no name by which its runs could be found again",
        ),
        ({"problems": "synthetic"}, "must be a grid or several"),
        (
            {"problems": {"name": "fixed-arm", **PROBLEM}},
            "unknown problem 'fixed-arm'. Did you mean 'fixed-arms'",
        ),
        (
            {"problems": {**PROBLEM, "n_armz": 5}},
            "unknown keyword for problem 'synthetic' 'n_armz'. Did you mean 'n_arms'",
        ),
        (
            {"problems": {"dim": 3, "n_arm": 4, "n_clients": 2, "horizon": 60}},
            "unknown keyword for problem 'synthetic' 'n_arm'. Did you mean 'n_arms'",
        ),
        (
            {"problems": {"dim": 3, "R": 1.0, "noise": "bounded", "horizon": 60}},
            "problem 'synthetic' needs n_arms, n_clients",
        ),
        (
            {"problems": {"name": "array", "kontexts": 5}},
            "unknown keyword for problem 'array' 'kontexts'. Did you mean 'contexts'",
        ),
        ({"problems": {"name": "fixed-arms", **PROBLEM, "own_armz": True}}, "'own_armz'"),
        (
            {"problems": {**PROBLEM, "noise": "gausian"}},
            "problem 'synthetic': unknown noise model 'gausian'. Did you mean 'gaussian'",
        ),
        ({"problems": {**PROBLEM, "seed": 5}}, "give seeds="),
        (
            {"problems": {**PROBLEM, "name": 5}},
            "must be a name or a function that makes one, not 5",
        ),
        ({"problems": {"name": a_problem, "dimm": 2}}, "a_problem' 'dimm'. Did you mean 'dim'"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1"),
        ({"seeds": []}, "give at least one seed"),
        ({"seeds": [1.5]}, "whole numbers of at least 0, not 1.5"),
        ({"seeds": [-1]}, "whole numbers of at least 0, not -1"),
        ({"seeds": "ten"}, "whole numbers of at least 0, not 't'"),
        ({"record": "all"}, "is for a single run"),
        ({"record": "logg"}, "record must be"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"backend": "thread"}, "unknown backend 'thread'. Did you mean 'threads'"),
        ({"backend": "dask://nowhere"}, "is not the address of a Dask scheduler"),
        ({"backend": "dask://host:port"}, "is not the address of a Dask scheduler"),
        ({"backend": "dask://"}, "is not the address of a Dask scheduler"),
    ],
)
def test_what_can_not_be_a_sweep_is_refused_before_anything_runs(
    plan, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(sweeps, "run", None)
    with pytest.raises((InvalidInput, UnknownName)) as caught:
        swept(**{"folder": tmp_path / "new", **plan})
    assert message in str(caught.value)
    assert not (tmp_path / "new").exists()
