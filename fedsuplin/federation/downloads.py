"""Compare a download with what a client holds."""

from __future__ import annotations

import numpy as np

from ..algorithm.algorithm import Algorithm
from ..live.client import Client
from ..live.messages import Download
from ..live.triangles import pack_upper
from ..live.uploads import check_message


def is_fresh_download(download: Download, algorithm: Algorithm) -> bool:
    """Return whether a download is of a server without observations: a new client has its sums."""
    empty = pack_upper(algorithm.setting.ridge * np.eye(algorithm.dim))
    return not download.moments.any() and bool((download.grams == empty).all())


def select_changed_layers(download: Download, client: Client) -> Download:
    """Return the layers of a download that differ from the client's last download.

    If only an answer was lost there are none, and the client continues as if it had arrived.
    """
    check_message(download, Download, client.algorithm.dim, client.algorithm.n_layers)
    held = [client.layer(int(layer)) for layer in download.layers]
    parts = zip(held, download.grams, download.moments, strict=True)
    differs = [
        not (
            np.array_equal(pack_upper(own["gram"]), gram) and np.array_equal(own["moment"], moment)
        )
        for own, gram, moment in parts
    ]
    keep = np.array(differs, bool)
    return Download(download.layers[keep], download.grams[keep], download.moments[keep])
