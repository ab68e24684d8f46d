"""The server's JSON log and its Prometheus metrics."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from typing import Any

from .._shared.extras import import_extra
from ..errors import InvalidInput
from .addresses import format_url, parse_address

LOGGER = logging.getLogger("fedsuplin.federation")
SECONDS_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
UPLOADS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def log_event(
    event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any
) -> None:
    """Log an event with its fields as telemetry. An unexpected `error` comes with its traceback."""
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=error)


class JsonLinesFormatter(logging.Formatter):
    """One JSON object per line: time, level, event, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record of the server's log as JSON."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class Throttle:
    """Lets at most one line per client and `every` seconds through.

    >>> throttle = Throttle(every=60)
    >>> [throttle.count_left_out(7) for _ in range(3)], throttle.count_left_out(8)
    ([0, None, None], 0)
    """

    def __init__(self, every: float = 1.0) -> None:
        self._every = every
        self._last: dict[Any, tuple[float, int]] = {}  # by key: when it was, and how many since

    def count_left_out(self, key: Any) -> int | None:
        """Return how many lines of the log were left out since the last; None: omit this too."""
        now = time.monotonic()
        when, since = self._last.get(key, (-self._every, 0))
        if now - when < self._every:
            self._last[key] = when, since + 1
            return None
        self._last[key] = now, 0
        return since


class Metrics:
    """Prometheus counters in their own registry, served over HTTP on request."""

    def __init__(self) -> None:
        prometheus = import_extra("prometheus_client", "federation", "fedsuplin serve")
        self._prometheus, self.registry = prometheus, prometheus.CollectorRegistry()
        made: dict[str, Any] = {"namespace": "fedsuplin", "registry": self.registry}
        self.syncs = prometheus.Counter("syncs", "Uploads that were merged", **made)
        self.duplicates = prometheus.Counter(
            "duplicates", "Uploads that had been merged before, and were answered again", **made
        )
        self.refused = prometheus.Counter(
            "refused", "Calls that were refused, by reason", ["reason"], **made
        )
        self.commits = prometheus.Counter("commits", "Commits of uploads", **made)
        self.uploads = prometheus.Histogram(
            "uploads_per_commit", "Uploads in a commit", buckets=UPLOADS_BUCKETS, **made
        )
        self.seconds = prometheus.Histogram(
            "call_seconds",
            "Seconds from a call to its answer",
            ["method"],
            buckets=SECONDS_BUCKETS,
            **made,
        )
        self.round = prometheus.Gauge("round", "The round, where all sync together", **made)
        self.epoch = prometheus.Gauge("epoch", "The epoch, where the horizon is unknown", **made)
        self.clients = prometheus.Gauge("clients_seen", "Clients that have joined, ever", **made)
        self.received = prometheus.Counter("received_bytes", "Bytes of requests", **made)
        self.sent = prometheus.Counter("sent_bytes", "Bytes of answers", **made)
        self._http: tuple[Any, Any] | None = None

    def start_http(self, address: str) -> str:
        """Serve the metrics on HTTP, and return their URL."""
        host, port = parse_address(address)
        try:
            self._http = self._prometheus.start_http_server(port, host, registry=self.registry)
        except OSError as error:
            raise InvalidInput(
                f"can't serve metrics on {address}: {error.strerror or error}"
            ) from None
        return format_url("http", host, self._http[0].server_port) + "/metrics"

    def close(self) -> None:
        """Stop the HTTP server, if there is one."""
        if self._http is not None:
            server, thread = self._http
            server.shutdown()
            server.server_close()
            thread.join()
            self._http = None
