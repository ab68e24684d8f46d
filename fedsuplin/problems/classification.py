"""Classification data as a bandit: one example per round, one arm per class."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .._shared.array_checks import as_floats, check_array
from .._shared.array_types import AnyArray, Clients, Counts, Floats
from .._shared.checks import check_positive_integer
from .._shared.extras import import_extra
from ..errors import InvalidInput
from .data import DataProblem, DataStream, scale_to_whole_numbers


class ClassificationProblem(DataProblem):
    """Classification data as a bandit: one arm per class, reward 1 for the right one.

    Each round shows a random example. Each arm has a block of its own for the features (the
    disjoint encoding), so θ holds a linear score per class, and dim = classes × features. Features
    are centred and divided by the longest. As the reward is 0 or 1, `noise_scale` is 1/2.

    Parameters
    ----------
    features : array of float, examples × columns
        The features of each example.
    labels : array, examples
        The class of each example, of any type that can be sorted.
    n_clients : int, default 10
        The number of clients.
    n_features : int, optional
        Reduce the columns to this many principal components first; needs scikit-learn.
    constant : bool, default True
        Add a constant feature, so that scores have an intercept. Lengths stay at most 1.
    horizon : int, optional
        The number of pulls. Defaults to as many as a run asks for.
    arrival : str or arrival pattern, optional
        Which client plays when. Defaults to rounds for policies that sync all clients, and
        otherwise to a random client.
    seed : int, default 0
        The seed of everything random.

    Attributes
    ----------
    classes : array
        The label of each arm, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsuplin as fsl
    >>> features = np.random.default_rng(0).normal(size=(200, 3))
    >>> labels = np.where(features[:, 0] > 0, "yes", "no")
    >>> problem = fsl.ClassificationProblem(features, labels, n_clients=2)
    >>> problem.classes.tolist(), problem.dim
    (['no', 'yes'], 8)
    >>> result = fsl.run("async", problem, horizon=2000)
    >>> bool(result.regret[-1] < 0.5 * result.uniform_regret[-1])
    True
    """

    classes: AnyArray

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
        """The number of examples."""
        return len(self._examples)

    def stream(self, horizon: int, arrival: Any) -> ClassificationStream:
        return ClassificationStream(self, horizon, arrival)

    def describe(self) -> str:
        """Describe the data in a few words.

        Returns
        -------
        str
            The numbers of examples and classes, and what pays.
        """
        return f"{self.n_examples} examples of {self.n_arms} classes, reward 1 for the right one"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_examples} examples of {self.n_arms} classes, "
            f"dim={self.dim}, n_clients={self.n_clients}, arrival={self.arrival}, "
            f"horizon={self.horizon}, seed={self.seed})"
        )


class DigitsProblem(ClassificationProblem):
    """The 1797 handwritten digits of scikit-learn as a bandit with ten arms.

    The 8 × 8 pixels are reduced to principal components. Nothing is downloaded, so this is real
    data that is always there: ``fedsuplin run async --problem digits``. The classes are equally
    frequent, so scores have no intercept.

    Parameters
    ----------
    n_clients : int, default 10
        The number of clients.
    n_features : int, default 8
        The number of principal components per class.
    horizon : int, optional
        The number of pulls. Defaults to as many as a run asks for.
    arrival : str or arrival pattern, optional
        Which client plays when. Defaults to rounds for policies that sync all clients, and
        otherwise to a random client.
    seed : int, default 0
        The seed of everything random.

    Examples
    --------
    >>> from fedsuplin import DigitsProblem
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
    """Return pixels and labels of scikit-learn's digits, to classify them."""
    datasets = import_extra("sklearn.datasets", "datasets", "DigitsProblem")
    features, labels = datasets.load_digits(return_X_y=True)
    return features, labels


class ClassificationStream(DataStream):
    """Draw random examples of a ClassificationProblem.

    The blocks of the other arms stay zero, so only K × features numbers per pull are written.
    """

    _problem: ClassificationProblem

    def __init__(self, problem: ClassificationProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival)
        (self._which,) = problem._spawn_generators(1)

    def _draw_rounds(self, clients: Clients) -> tuple[Floats, Counts]:
        """Draw an example per client; the arm of its class pays."""
        n, problem = len(clients), self._problem
        examples = scale_to_whole_numbers(self._which.random(n), problem.n_examples)
        packed = self._reserve_contexts(n)
        blocks = packed.reshape(n, problem.n_arms, -1, problem.n_arms)
        # Block a of arm a.
        np.einsum("nafa->naf", blocks)[...] = problem._examples[examples][:, None]
        return packed, problem._labels[examples]


def check_features(features: Any) -> Floats:
    """Return the features of a classification as a table of finite floats, a row per example."""
    examples = as_floats("features", features)
    if examples.ndim != 2 or 0 in examples.shape:
        raise InvalidInput(
            "features must have the shape (examples, columns), none of them 0, "
            f"not {examples.shape}"
        )
    return check_array("features", examples, examples.shape)


def check_labels(labels: Any, n_examples: int) -> tuple[AnyArray, Counts]:
    """Return the sorted classes of a classification, and the number of each example's class."""
    labels = np.asarray(labels)
    if labels.shape != (n_examples,):
        raise InvalidInput(
            f"labels must be one for each of the {n_examples} examples, not of shape {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidInput(
            f"labels[{int((~np.isfinite(labels)).argmax())}] is not finite: "
            "every example needs a class"
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
    """Return the first principal components of the examples of a classification."""
    n_features, most = check_positive_integer("n_features", n_features), min(examples.shape)
    if n_features > most:
        raise InvalidInput(
            f"n_features={n_features} is more than the {most} components "
            f"that {examples.shape} features have"
        )
    decomposition = import_extra("sklearn.decomposition", "datasets", "n_features")
    found: Floats = decomposition.PCA(n_features, random_state=0).fit_transform(examples)
    return found


def scale_features(examples: Floats, constant: bool) -> Floats:
    """Centre the features of a classification, and scale them to a length of at most 1.

    A constant, if wanted, weighs as much.
    """
    centred: Floats = examples - examples.mean(axis=0)
    longest = float(np.linalg.norm(centred, axis=1).max())
    centred = centred / longest if longest > 0 else centred
    if not constant:
        return np.ascontiguousarray(centred)
    with_constant: Floats = np.hstack([centred, np.ones((len(centred), 1))])
    return with_constant / math.sqrt(2)
