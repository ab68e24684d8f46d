"""Classification data as a bandit: one example per round, one arm per class."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_floats
from .._shared.arrays import AnyArray, Clients, Counts, Floats
from .._shared.checks import check_positive_integer
from .._shared.extras import import_extra
from ..errors import InvalidInput
from .data import DataProblem, DataStream, scale_to_whole_numbers


class ClassificationProblem(DataProblem):
    """Features (examples × columns) and a label for each example: every round a random example, reward 1 for its class.

    Each arm has a block of its own for the features (the disjoint encoding), so θ holds a linear score for each class and
    dim = classes × features. `n_features` reduces the columns to so many principal components first, which needs
    scikit-learn. Features are centred and divided by the longest; with `constant`, a constant feature is added, so that
    scores have an intercept, and both are scaled to a length of at most 1. As the reward is 0 or 1, `noise_scale` is 1/2.

    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(200, 3))
    >>> problem = ClassificationProblem(features, np.where(features[:, 0] > 0, "yes", "no"), n_clients=2)
    >>> problem.classes.tolist(), problem.dim
    (['no', 'yes'], 8)
    >>> from fedsuplin import run
    >>> result = run("async", problem, horizon=2000)
    >>> bool(result.regret[-1] < 0.5 * result.uniform_regret[-1])
    True
    """

    classes: AnyArray
    """The label of each arm, sorted."""

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        n_clients: int = 10,
        n_features: int | None = None,
        constant: bool = True,
        horizon: int | None = None,
        arrival: Any = None,
        seed: int = 0,
    ) -> None:
        examples = check_features(features)
        self.classes, self._labels = check_labels(labels, len(examples))
        self._examples = scale_features(
            examples if n_features is None else reduce_to_components(examples, n_features),
            bool(constant),
        )
        n_classes = len(self.classes)
        dim = n_classes * self._examples.shape[1]
        super().__init__(dim, n_classes, n_clients, horizon=horizon, arrival=arrival, seed=seed)

    @property
    def n_examples(self) -> int:
        return len(self._examples)

    def stream(self, horizon: int, arrival: Any) -> ClassificationStream:
        return ClassificationStream(self, horizon, arrival)

    def in_words(self) -> str:
        return f"{self.n_examples} examples of {self.n_arms} classes, reward 1 for the right one"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_examples} examples of {self.n_arms} classes, dim={self.dim}, "
            f"n_clients={self.n_clients}, arrival={self.arrival}, horizon={self.horizon}, seed={self.seed})"
        )


class DigitsProblem(ClassificationProblem):
    """The 1797 handwritten digits that come with scikit-learn (8 × 8 pixels, ten classes), reduced to principal components.

    Nothing is downloaded, so it is real data that is always there: `fedsuplin run async --problem digits`. The classes are
    equally frequent, so scores have no intercept.

    >>> problem = DigitsProblem(n_clients=5)
    >>> problem.n_examples, problem.n_arms, problem.dim
    (1797, 10, 80)
    """

    def __init__(
        self,
        *,
        n_clients: int = 10,
        n_features: int = 8,
        horizon: int | None = None,
        arrival: Any = None,
        seed: int = 0,
    ) -> None:
        given = {
            "n_clients": n_clients,
            "n_features": n_features,
            "horizon": horizon,
            "arrival": arrival,
            "seed": seed,
        }
        super().__init__(*load_digits(), constant=False, **given)
        self._parameters = given


@functools.cache
def load_digits() -> tuple[Floats, Counts]:
    features, labels = import_extra("sklearn.datasets", "datasets", "DigitsProblem").load_digits(
        return_X_y=True
    )
    return features, labels


class ClassificationStream(DataStream):
    """Random examples, whoever plays; the blocks of the other arms stay zero, so only K × features numbers a pull are written."""

    _problem: ClassificationProblem

    def __init__(self, problem: ClassificationProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival)
        (self._which,) = problem._generators(1)

    def _drawn(self, clients: Clients) -> tuple[Floats, Counts]:
        n, problem = len(clients), self._problem
        examples = scale_to_whole_numbers(self._which.random(n), problem.n_examples)
        packed = self._room(n)
        blocks = packed.reshape(n, problem.n_arms, -1, norms.pad(problem.n_arms))[
            ..., : problem.n_arms
        ]
        np.einsum("nafa->naf", blocks)[...] = problem._examples[examples][
            :, None
        ]  # block a of arm a
        return packed, problem._labels[examples]


def check_features(features: Any) -> Floats:
    examples = as_floats("features", features)
    if examples.ndim != 2 or 0 in examples.shape:
        raise InvalidInput(
            f"features must have the shape (examples, columns), none of them 0, not {examples.shape}"
        )
    if not np.isfinite(examples).all():
        row, column = np.argwhere(~np.isfinite(examples))[0]
        raise InvalidInput(
            f"features[{row}, {column}] is {examples[row, column]}: every entry must be finite"
        )
    return examples


def check_labels(labels: Any, n_examples: int) -> tuple[AnyArray, Counts]:
    """The classes, sorted, and which of them each example has."""
    labels = np.asarray(labels)
    if labels.shape != (n_examples,):
        raise InvalidInput(
            f"labels must be one for each of the {n_examples} examples, not of shape {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidInput(
            f"labels[{int((~np.isfinite(labels)).argmax())}] is not finite: every example needs a class"
        )
    try:
        classes, which = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InvalidInput(f"labels can't be sorted into classes: {error}") from None
    if len(classes) < 2:
        raise InvalidInput(
            f"labels hold one class only, {classes[0]!r}: there is nothing to choose"
        )
    return classes, which


def reduce_to_components(examples: Floats, n_features: int) -> Floats:
    """The examples in their first principal components."""
    n_features, most = check_positive_integer("n_features", n_features), min(examples.shape)
    if n_features > most:
        raise InvalidInput(
            f"n_features={n_features} is more than the {most} components that {examples.shape} features have"
        )
    decomposition = import_extra("sklearn.decomposition", "datasets", "n_features")
    found: Floats = decomposition.PCA(n_features, random_state=0).fit_transform(examples)
    return found


def scale_features(examples: Floats, constant: bool) -> Floats:
    """Centred, with a length of at most 1; with a constant, both parts weigh the same."""
    centred: Floats = examples - examples.mean(axis=0)
    longest = float(np.linalg.norm(centred, axis=1).max())
    centred = centred / longest if longest > 0 else centred
    if not constant:
        return np.ascontiguousarray(centred)
    with_constant: Floats = np.hstack([centred, np.ones((len(centred), 1))])
    return with_constant / math.sqrt(2)
