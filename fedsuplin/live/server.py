"""The server that adds up uploads and answers with its sums."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsuplin_ext.live import Live

from .._shared.arrays import Counts, Floats
from ..algorithm.algorithm import Algorithm
from ..errors import InvalidInput, NumericalError
from .algorithms import check_live_algorithm
from .messages import Download, Upload
from .saving import load_live, save_live
from .uploads import check_upload, select_layers


class Server:
    """Sums of all uploads. `merge` is for policies whose clients sync alone, `barrier` for those that sync all at once.

    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("sync", dim=2, n_arms=2, n_clients=2, horizon=1000, D=0.1)
    >>> server, clients = Server(algorithm), [fsl.Client(algorithm, client_id=i) for i in range(2)]
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
        """Add what a client has gathered; the answer is all that the server knows. An upload that is refused changes nothing."""
        return self.merge_all([upload])

    def merge_all(self, uploads: Sequence[Upload]) -> Download:
        """As if they were merged one after the other, with one factorisation for all. One that is refused refuses all."""
        if self.algorithm.syncs != "one":
            raise InvalidInput(
                f"the clients of {self.algorithm.name} sync together: use barrier, with the uploads of all"
            )
        for upload in uploads:
            self.check(upload)
        with self._lock:
            self._add(uploads)
            self.n_syncs, self.communication = (
                self.n_syncs + len(uploads),
                self.communication + len(uploads),
            )
            return self.download(range(self.algorithm.n_layers))

    def barrier(self, uploads: Iterable[Upload], *, absent: Iterable[int] = ()) -> Download | None:
        """The end of a round: if a client asks for a layer, all sync it, except those who are `absent`. None says that nobody
        asks."""
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
        """Refuse what no client of this algorithm could have gathered."""
        check_upload(upload, self.algorithm)

    def _add(self, uploads: Sequence[Upload]) -> None:
        """All layers or none."""
        layer = self._engine.add([_convert_for_engine(upload) for upload in uploads])
        if layer >= 0:
            raise NumericalError(
                f"with this upload layer {layer} is not positive definite any more; it was refused"
            )

    def add(self, uploads: Sequence[Upload]) -> None:
        """Add what was looked at before to the sums, and count nothing."""
        with self._lock:
            self._add(uploads)

    def put(self, layer: int, gram: Floats, moment: Floats) -> bool:
        """A and b of a layer in place of what was known. False if A is not positive definite; then nothing has changed."""
        with self._lock:
            return bool(self._engine.receive(layer, gram, moment, False))

    def download(self, layers: Iterable[int]) -> Download:
        """What the server knows of these layers."""
        grams, moments = self.sums()
        these = np.array(list(layers), np.int64)
        return Download(these, grams[these], moments[these])

    def sums(self) -> tuple[Floats, Floats]:
        """A (packed upper triangle) and b, a row for each layer."""
        with self._lock:
            return self._engine.sums()

    def layer(self, layer: int) -> dict[str, Any]:
        """A copy of what the server knows of a layer."""
        with self._lock:
            return self._engine.server_layer(layer)

    def save(self, path: str | os.PathLike[str]) -> Path:
        with self._lock:
            counts = {"n_syncs": self.n_syncs, "communication": self.communication}
            return save_live(path, "server", self.algorithm, self._engine, counts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], algorithm: Algorithm, *, kernels: str | None = None
    ) -> Server:
        """A server as it was saved. The algorithm must be the same."""
        server = cls(algorithm, kernels=kernels)
        rest = load_live(path, "server", algorithm, lambda _: server._engine)
        server.n_syncs, server.communication = int(rest["n_syncs"]), int(rest["communication"])
        return server

    def __repr__(self) -> str:
        return f"Server({self.algorithm.name}, {self.algorithm.n_clients} clients, {self.n_syncs} syncs)"


def _convert_for_engine(upload: Upload) -> tuple[Counts, Floats, Floats]:
    """Layers, ΔA and Δb as the engine takes them; a message may have them in any order of bytes or axes."""
    grams, moments = (
        np.array(values, np.float64, order="C") for values in (upload.grams, upload.moments)
    )
    return np.array(upload.layers, np.int64), grams, moments
