"""How the twin's clients and server communicate: when they sync, and what is sent."""

from __future__ import annotations

import numpy as np

from .decisions import compute_log_det
from .pulls import Traffic
from .state import Federation, Layers, ReferenceClient, list_state_slots


def communicate_async(federation: Federation, client: ReferenceClient, layer: int, n: int) -> None:
    """Communicate as in Async: if det(A_s + ΔA_s)/det(A_s) > 1 + C, sync all layers of client i.

    That is Sync(s, server, client i) for each s ∈ [0:S]. It costs 1.
    """
    elapsed = float(client.observations.sum())  # pulls since the client's last sync, with this one
    if federation.trigger.fires(
        compute_gain(client, layer), elapsed, *list_state_slots(client, "trigger")
    ):
        federation.traffic.communication += 1
        sync_layers(range(len(client.gram)), federation.server, [client], federation.traffic)


def communicate_sync(federation: Federation, client: ReferenceClient, layer: int, n: int) -> None:
    """Communicate as in Sync: at the end of a round all clients sync the layers that one asked for.

    If (t − t_last)·ln(det(A_s + ΔA_s)/det(A_s)) > D, add s to CommLayers. When all M clients have
    played round t, Sync(s, server, clients [M]) for each s ∈ CommLayers, t_last ← t. It costs M
    per layer.
    """
    round_, turn = divmod(n, len(federation.clients))
    t, comm_layers = round_ + 1, federation.comm_layers
    elapsed = float(t - federation.t_last[layer])
    if federation.trigger.fires(
        compute_gain(client, layer), elapsed, *list_state_slots(client, "trigger")
    ):
        comm_layers.add(layer)
    if turn == len(federation.clients) - 1 and comm_layers:
        federation.traffic.communication += len(federation.clients) * len(comm_layers)
        sync_layers(comm_layers, federation.server, federation.clients, federation.traffic)
        for s in comm_layers:
            federation.t_last[s] = t
        comm_layers.clear()


def sync_layers(
    layers: range | set[int], server: Layers, clients: list[ReferenceClient], traffic: Traffic
) -> None:
    """Sync layers between the twin's server and clients: Sync(s, server, client 1..n) for each s.

    A_s ← A_s + ΣΔA_s, b_s ← b_s + ΣΔb_s at the server; each client downloads them and clears its Δ.
    A message holds only the layers with something new in them.
    """
    payload = count_payload_bytes(server.moment.shape[1])
    traffic.messages_up += len(clients)
    traffic.messages_down += len(clients)
    for s in layers:
        for client in clients:
            if client.observations[s]:
                server.gram[s] += client.delta_gram[s]
                server.moment[s] += client.delta_moment[s]
                server.version[s] += 1
                traffic.bytes_up += payload
        for client in clients:
            if client.version[s] != server.version[s]:
                client.gram[s], client.moment[s] = server.gram[s], server.moment[s]
                client.version[s] = server.version[s]
                traffic.bytes_down += payload
            client.delta_gram[s], client.delta_moment[s], client.observations[s] = 0, 0, 0


def communicate_by_push(
    federation: Federation, client: ReferenceClient, layer: int, n: int
) -> None:
    """Communicate as in Async-LinUCB: a client uploads, and the server pushes to others.

    If det(A_i)/det(A_i − ΔA_i) > γ_U, where A_i = A_s + ΔA_s is all that client i has, it uploads.
    Then the server sends each client j, i included, what j lacks in each s where
    det(A_s)/det(A_s − pending_j) > γ_D. It costs 1 for the upload and 1 for each client that is
    sent something.
    """
    elapsed = float(client.observations.sum())  # pulls since its last upload, with this one
    if federation.trigger.fires(
        compute_gain(client, layer), elapsed, *list_state_slots(client, "trigger")
    ):
        upload_deltas(federation, client)
        for j in range(len(federation.clients)):
            download_pending(federation, j)


def upload_deltas(federation: Federation, client: ReferenceClient) -> None:
    """Upload ΔA_s and Δb_s of a twin's client to its server, for each s with something in it.

    They are added to the server's A_s and b_s, to pending_j of every other client j, and to the
    client's own A_s and b_s, since it keeps what it has learnt.
    """
    waiting = [
        pending
        for j, pending in zip(federation.clients, federation.pending, strict=True)
        if j is not client
    ]
    federation.traffic.communication += 1
    federation.traffic.messages_up += 1
    for s in np.flatnonzero(client.observations):
        for sums in (federation.server, client, *waiting):
            sums.gram[s] += client.delta_gram[s]
            sums.moment[s] += client.delta_moment[s]
        client.delta_gram[s], client.delta_moment[s], client.observations[s] = 0, 0, 0
        federation.traffic.bytes_up += count_payload_bytes(client.moment.shape[1])


def download_pending(federation: Federation, j: int) -> None:
    """Download to the twin's client j each layer in which enough is pending; j's own Δ stays.

    A_s ← A_s + pending_j, and likewise b_s.
    """
    client, pending, server = federation.clients[j], federation.pending[j], federation.server
    lacks = [
        compute_log_det(whole) - compute_log_det(whole - part)
        for whole, part in zip(server.gram, pending.gram, strict=True)
    ]
    sent = np.flatnonzero(np.array(lacks) > federation.trigger.push_threshold)
    for s in sent:
        client.gram[s] += pending.gram[s]
        client.moment[s] += pending.moment[s]
        pending.gram[s], pending.moment[s] = 0, 0
    federation.traffic.bytes_down += len(sent) * count_payload_bytes(client.moment.shape[1])
    federation.traffic.communication += bool(len(sent))
    federation.traffic.messages_down += bool(len(sent))


def compute_gain(client: ReferenceClient, layer: int) -> float:
    """Return ln(det(A_s + ΔA_s)/det(A_s)), which decides whether a twin's client communicates."""
    return compute_log_det(client.gram[layer] + client.delta_gram[layer]) - compute_log_det(
        client.gram[layer]
    )


def count_payload_bytes(dim: int) -> int:
    """Return the bytes of one layer that the twin communicates: a symmetric A, packed, and a b."""
    return 8 * (dim * (dim + 1) // 2 + dim)
