"""ConnectionStatus: the properties of both kinds of connection, which do not wait for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..algorithm.algorithm import Algorithm
from ..errors import FederationError

if TYPE_CHECKING:
    from .calls import Calls
    from .link import Link


class ConnectionStatus:
    """The properties of a connection that do not wait for anything."""

    _link: Link
    _calls: Calls

    @property
    def client_id(self) -> int:
        """Which client of the federation this is."""
        return self._link.client_id

    @property
    def algorithm(self) -> Algorithm:
        """The server's algorithm; that of the current epoch, if the horizon is unknown."""
        return self._link.started_client.algorithm

    @property
    def epoch(self) -> int:
        """The epoch that the client is in; 0 if the horizon is known."""
        return self._link.epoch

    @property
    def n_observed(self) -> int:
        """How many rewards this client observed, in all epochs and before restarts."""
        return self._link.n_observed

    @property
    def n_open(self) -> int:
        """How many decisions wait for their reward."""
        return self._link.started_client.n_open

    @property
    def open(self) -> tuple[int, ...]:
        """The ids of the decisions that wait for their reward."""
        with self._link.changed:
            return self._link.started_client.open_ids

    @property
    def wants_sync(self) -> bool:
        """Whether a call to the server is under way or due."""
        return self._link.busy

    @property
    def is_online(self) -> bool:
        """Whether the server answered the last call."""
        return self._link.is_online

    @property
    def error(self) -> FederationError | None:
        """Why this client no longer calls the server, or None."""
        return self._link.error

    def layer(self, layer: int) -> dict[str, Any]:
        """Return a copy of what the client knows about a layer.

        Parameters
        ----------
        layer : int
            Which layer, from 0.

        Returns
        -------
        dict of str to array
            The sums of the last download, and what was gathered since.
        """
        return self._link.started_client.layer(layer)

    def stats(self) -> dict[str, Any]:
        """Return counts of what was observed, synced, sent and received, and of failures.

        Returns
        -------
        dict
            Numbers by name; also ``online`` (bool) and ``last_failure`` (str).
        """
        return self._link.stats()

    def __repr__(self) -> str:
        name = "nothing yet" if self._link.client is None else self._link.client.algorithm.name
        state = (
            "closed"
            if self._link.stopped
            else "refused"
            if self.error
            else "online"
            if self.is_online
            else "offline"
        )
        return (
            f"{type(self).__name__}({name}, client_id={self.client_id}, "
            f"{self.n_observed} observed, {state})"
        )

    def _make_unreachable_error(self, wait: float) -> FederationError:
        """Return the error for a server that did not answer in time."""
        why = self._link.why or "no answer"
        return FederationError(
            f"the server at {self._calls.target} can't be reached within {wait:g} seconds ({why})"
        )

    def _make_unmerged_error(self, timeout: float | None) -> FederationError:
        """Return the error for observations that were not merged in time."""
        kept = (
            "they are kept in the store"
            if self._link.has_store
            else "they are lost with this process: pass a store to keep them"
        )
        why = f" ({self._link.why})" if self._link.why else ""
        when = (
            "before this connection was closed"
            if timeout is None
            else f"within {timeout:g} seconds"
        )
        return FederationError(f"some observations were not merged {when}{why}; {kept}")

    def _is_begun(self) -> bool:
        """Return whether the client can play, and the server was tried once."""
        link = self._link
        return link.error is not None or (
            link.client is not None and (link.is_online or link.away or not link.busy)
        )
