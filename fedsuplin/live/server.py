"""The server of a live federation, without a network: it adds up uploads and returns its sums."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsuplin_ext.live import Live

from .._shared.array_types import Counts, Floats
from ..algorithm.algorithm import Algorithm
from ..errors import InvalidInput, NumericalError
from .algorithm_checks import check_live_algorithm
from .messages import Download, Upload
from .saving import load_live, save_live
from .uploads import check_upload, select_layers


class Server:
    """The server of a federation, without a network.

    Use :meth:`merge` for policies whose clients sync alone, and :meth:`barrier` for those whose
    clients all sync at once. Methods may be called from any thread. One that raises an error
    changes nothing.

    Parameters
    ----------
    algorithm : Algorithm
        What the clients play, as :func:`fedsuplin.make` returns it.
    kernels : str, optional
        The instruction set of the compiled core. By default the best that the machine has.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("sync", dim=2, n_arms=2, n_clients=2, horizon=1000, D=0.1)
    >>> clients = [fsl.Client(algorithm, client_id=i) for i in range(2)]
    >>> server = fsl.Server(algorithm)
    >>> for client in clients:
    ...     client.observe(client.select([[1, 0], [0, 1]]), reward=0.5)
    >>> answer = server.barrier([client.upload() for client in clients])
    >>> for client in clients:
    ...     client.apply(answer)
    >>> server.n_syncs
    1
    """

    def __init__(self, algorithm: Algorithm, *, kernels: str | None = None) -> None:
        check_live_algorithm(algorithm)
        self.algorithm, self.n_syncs, self.communication = algorithm, 0, 0
        self._engine = Live(algorithm, kernels=kernels)
        self._lock = threading.RLock()

    def merge(self, upload: Upload) -> Download:
        """Add what a client has gathered.

        Parameters
        ----------
        upload : Upload
            What :meth:`Client.upload` returned.

        Returns
        -------
        Download
            The sums of all layers, for :meth:`Client.apply`.

        Raises
        ------
        InvalidInput
            If no client of this algorithm could have gathered this.
        NumericalError
            If a matrix would no longer be positive definite.
        """
        return self.merge_all([upload])

    def merge_all(self, uploads: Sequence[Upload]) -> Download:
        """Add what several clients have gathered, with one factorisation for all.

        The sums are as if :meth:`merge` had been called for one after the other. If one upload is
        refused, all are.

        Parameters
        ----------
        uploads : sequence of Upload
            What :meth:`Client.upload` returned to each.

        Returns
        -------
        Download
            The sums of all layers, for :meth:`Client.apply`.
        """
        if self.algorithm.syncs != "one":
            raise InvalidInput(
                f"the clients of {self.algorithm.name} sync together: use barrier, with the "
                "uploads of all"
            )
        for upload in uploads:
            self.check(upload)
        with self._lock:
            self._add(uploads)
            self.n_syncs += len(uploads)
            self.communication += len(uploads)
            return self.download(range(self.algorithm.n_layers))

    def barrier(self, uploads: Iterable[Upload], *, absent: Iterable[int] = ()) -> Download | None:
        """End a round of clients that sync together.

        If a client asks for a layer, all clients sync it.

        Parameters
        ----------
        uploads : iterable of Upload
            One upload per client.
        absent : iterable of int, optional
            Ids of clients that take no part in this round.

        Returns
        -------
        Download or None
            The sums of the layers that were asked for. None if no client asks for one.
        """
        if self.algorithm.syncs != "all":
            raise InvalidInput(f"the clients of {self.algorithm.name} sync one by one: use merge")
        try:
            uploads = list(uploads)
        except TypeError:
            raise InvalidInput(
                f"a round needs the uploads of all clients, not {type(uploads).__name__}"
            ) from None
        for upload in uploads:
            self.check(upload)
        uploads.sort(key=lambda upload: upload.client_id)
        expected = sorted(set(range(self.algorithm.n_clients)).difference(absent))
        if [upload.client_id for upload in uploads] != expected:
            raise InvalidInput(
                f"a round needs the uploads of all {len(expected)} clients, each once"
            )
        asked = sorted({int(layer) for upload in uploads for layer in upload.asking})
        if not asked:
            return None
        with self._lock:
            self._add([select_layers(upload, asked) for upload in uploads])
            self.n_syncs += 1
            self.communication += len(uploads) * len(asked)
            return self.download(asked)

    def check(self, upload: Upload) -> None:
        """Raise an error if no client of this algorithm could have gathered an upload.

        Parameters
        ----------
        upload : Upload
            What to check.

        Raises
        ------
        InvalidInput
            If it is refused.
        """
        check_upload(upload, self.algorithm)

    def add_checked(self, uploads: Sequence[Upload]) -> None:
        """Add uploads that were checked before, without counting them as syncs.

        Parameters
        ----------
        uploads : sequence of Upload
            What to add. If one cannot be added, none is.

        Raises
        ------
        NumericalError
            If a matrix would no longer be positive definite.
        """
        with self._lock:
            self._add(uploads)

    def _add(self, uploads: Sequence[Upload]) -> None:
        """Add uploads to all of their layers, or to none."""
        layer = self._engine.add([_convert_for_engine(upload) for upload in uploads])
        if layer >= 0:
            raise NumericalError(
                f"with this upload layer {layer} would no longer be positive definite; "
                "it was refused"
            )

    def replace_layer(self, layer: int, gram: Floats, moment: Floats) -> bool:
        """Replace the sums of a layer.

        Parameters
        ----------
        layer : int
            Which layer, from 0.
        gram : array of float, shape (dim, dim)
            The new A. Its upper triangle is read.
        moment : array of float, shape (dim,)
            The new b.

        Returns
        -------
        bool
            False if A is not positive definite. Then nothing has changed.
        """
        with self._lock:
            return bool(self._engine.replace(layer, gram, moment))

    def download(self, layers: Iterable[int]) -> Download:
        """Return the sums of some layers.

        Parameters
        ----------
        layers : iterable of int
            Which layers, from 0.

        Returns
        -------
        Download
            The message for :meth:`Client.apply`.
        """
        grams, moments = self.sums()
        these = np.array(list(layers), np.int64)
        return Download(these, grams[these], moments[these])

    def sums(self) -> tuple[Floats, Floats]:
        """Return the sums of all layers.

        Returns
        -------
        tuple of (array, array)
            A (packed upper triangle) and b, one row per layer.
        """
        with self._lock:
            return self._engine.sums()

    def layer(self, layer: int) -> dict[str, Any]:
        """Return a copy of what the server knows about a layer.

        Parameters
        ----------
        layer : int
            Which layer, from 0.

        Returns
        -------
        dict of str to array
            Its sums and what was computed from them.
        """
        with self._lock:
            return self._engine.server_layer(layer)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save the server to a file.

        Parameters
        ----------
        path : str or path
            The file. It is replaced in one step.

        Returns
        -------
        Path
            The same path.
        """
        with self._lock:
            counts = {"n_syncs": self.n_syncs, "communication": self.communication}
            return save_live(path, "server", self.algorithm, self._engine, counts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], algorithm: Algorithm, *, kernels: str | None = None
    ) -> Server:
        """Load a server that was saved.

        Parameters
        ----------
        path : str or path
            The file that :meth:`save` wrote.
        algorithm : Algorithm
            The algorithm that its clients play.
        kernels : str, optional
            The instruction set of the compiled core. By default the best that the machine has.

        Returns
        -------
        Server
            A server in the same state.

        Raises
        ------
        InvalidInput
            If the file is damaged, or for another algorithm or version.
        """
        server = cls(algorithm, kernels=kernels)
        rest = load_live(path, "server", algorithm, lambda _: server._engine)
        server.n_syncs, server.communication = int(rest["n_syncs"]), int(rest["communication"])
        return server

    def __repr__(self) -> str:
        return (
            f"Server({self.algorithm.name}, {self.algorithm.n_clients} clients, "
            f"{self.n_syncs} syncs)"
        )


def _convert_for_engine(upload: Upload) -> tuple[Counts, Floats, Floats]:
    """Return layers, ΔA and Δb of an upload as the server's engine reads them.

    That is in native byte order, row by row.
    """
    grams, moments = (
        np.array(values, np.float64, order="C") for values in (upload.grams, upload.moments)
    )
    return np.array(upload.layers, np.int64), grams, moments
