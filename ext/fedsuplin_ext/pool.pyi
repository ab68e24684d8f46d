"""Memory of the engine, for cimport; Python can make a pool and see its size."""

from typing import Self

class Pool:
    def __new__(
        cls, d: int, ld: int, keep: int, n_clients: int, n_layers: int, pending: int
    ) -> Self: ...
    @property
    def bytes(self) -> int: ...
