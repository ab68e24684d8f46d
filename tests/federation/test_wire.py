"""The binary form of messages: read back as it was written, and refused if it is damaged."""

import dataclasses
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput
from fedsuplin.federation.wire import (
    JoinAnswer,
    JoinRequest,
    RoundAnswer,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
)
from fedsuplin.live.messages import HEAD, VERSION, Download, Upload
from fedsuplin.live.triangles import unpack_upper
from fedsuplin.live.uploads import check_upload

NUMBERS = st.integers(0, 2**63 - 1)
FLOATS = st.floats(-1e100, 1e100)
ID = st.integers(0, 2**31 - 1)


@st.composite
def draw_bodies(draw):
    """Draw the arrays of an upload or a download."""
    dim, layers = (
        draw(st.integers(1, 5)),
        draw(st.lists(st.integers(0, 40), unique=True, max_size=4)),
    )
    n = len(layers)
    values = np.array(
        draw(st.lists(FLOATS, min_size=n * dim * (dim + 3) // 2, max_size=n * dim * (dim + 3) // 2))
    )
    cut = n * dim * (dim + 1) // 2
    return (
        np.array(layers, np.int64),
        values[:cut].reshape(n, -1 if n else dim * (dim + 1) // 2),
        values[cut:].reshape(n, dim),
    )


@st.composite
def draw_uploads(draw):
    layers, grams, moments = draw(draw_bodies())
    pulls = np.array([draw(NUMBERS) for _ in layers], np.int64)
    return Upload(
        draw(ID),
        layers,
        grams,
        moments,
        pulls,
        tuple(draw(st.lists(st.integers(0, 40), max_size=3))),
    )


downloads = draw_bodies().map(lambda each: Download(*each))
fingerprints, sessions = st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16)
specs = st.dictionaries(
    st.text(max_size=3), st.one_of(st.integers(-9, 9), st.text(max_size=3)), max_size=3
)
MESSAGES = {
    Upload: draw_uploads(),
    Download: downloads,
    JoinRequest: st.builds(JoinRequest, ID, sessions, fingerprints, NUMBERS),
    JoinAnswer: st.builds(JoinAnswer, specs, NUMBERS, NUMBERS, NUMBERS, NUMBERS, downloads),
    SyncRequest: st.builds(
        SyncRequest,
        fingerprints,
        sessions,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.booleans(),
        draw_uploads(),
    ),
    SyncAnswer: st.builds(SyncAnswer, NUMBERS, NUMBERS, st.booleans(), downloads),
    RoundRequest: st.builds(
        RoundRequest,
        fingerprints,
        sessions,
        ID,
        NUMBERS,
        NUMBERS,
        st.lists(st.integers(0, 99), max_size=4).map(tuple),
    ),
    RoundAnswer: st.builds(RoundAnswer, NUMBERS, NUMBERS, st.booleans(), st.none() | downloads),
}
messages = st.one_of(*MESSAGES.values())


def to_plain_data(message):
    """Return all fields, with nested arrays and messages, as plain data."""
    if isinstance(message, np.ndarray):
        return message.dtype.kind, message.shape, message.tolist()
    if dataclasses.is_dataclass(message):
        return {
            field.name: to_plain_data(getattr(message, field.name))
            for field in dataclasses.fields(message)
        }
    return message


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_messages_are_read_back_as_they_were_written(kind, data):
    message = data.draw(MESSAGES[kind])
    written = message.to_bytes()
    assert to_plain_data(kind.from_bytes(written)) == to_plain_data(message)
    assert kind.from_bytes(written).to_bytes() == written


@settings(max_examples=200, deadline=None)
@given(message=messages, data=st.data())
def test_messages_that_are_cut_short_or_too_long_are_refused(message, data):
    written = message.to_bytes()
    cut = data.draw(st.integers(0, len(written) - 1))
    for wrong in (written[:cut], written + b"\0"):
        with pytest.raises(
            InvalidInput,
            match="cut short|bytes too many|not a message of fedsuplin|not JSON|bytes of",
        ):
            type(message).from_bytes(wrong)


@settings(max_examples=300, deadline=None)
@given(message=messages, data=st.data())
def test_damaged_bytes_are_read_as_a_message_or_raise_invalid_input(message, data):
    written = bytearray(message.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = type(message).from_bytes(bytes(written))
    except InvalidInput:
        return
    assert isinstance(read, type(message))


def test_errors_distinguish_other_versions_other_kinds_and_other_bytes():
    written = JoinRequest(3, bytes(16)).to_bytes()
    with pytest.raises(
        InvalidInput, match="has version 7 of the messages, this fedsuplin reads version 1: upgrade"
    ):
        JoinRequest.from_bytes(HEAD.pack(b"FSLM", 7, 10) + written[HEAD.size :])
    with pytest.raises(
        InvalidInput, match=r"a message of kind 10: SyncRequest \(12\) was expected"
    ):
        SyncRequest.from_bytes(written)
    with pytest.raises(InvalidInput, match="not a message of fedsuplin: Upload was expected"):
        Upload.from_bytes(b"GET / HTTP/1.1")


def test_a_message_cannot_declare_sizes_beyond_its_content():
    head = HEAD.pack(b"FSLM", VERSION, Upload.kind)
    with pytest.raises(InvalidInput, match="dimension 4294967295 and 65535 layers: at most"):
        Upload.from_bytes(head + struct.pack("<IIHH", 0, 2**32 - 1, 65535, 0))
    with pytest.raises(InvalidInput, match="cut short"):
        Upload.from_bytes(head + struct.pack("<IIHH", 0, 1 << 15, 1 << 10, 0))


def test_a_specification_that_is_not_an_object_is_refused():
    download = Download(np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros((0, 1)))
    for spec, words in (
        (b"[1]", "that is not a JSON object"),
        (b"{oh", "that is not JSON"),
        (b"[" * 100_000, "that is not JSON"),
    ):
        body = (
            struct.pack("<QQQQI", 0, 0, 0, 1, len(spec)) + spec + download.to_bytes()[HEAD.size :]
        )
        with pytest.raises(InvalidInput, match=words):
            JoinAnswer.from_bytes(HEAD.pack(b"FSLM", VERSION, JoinAnswer.kind) + body)
    with pytest.raises(InvalidInput, match="more than 1048576"):
        JoinAnswer.from_bytes(
            HEAD.pack(b"FSLM", VERSION, 11) + struct.pack("<QQQQI", 0, 0, 0, 1, 2**31)
        )
    with pytest.raises(InvalidInput, match="0 or 1 for leaving, not 2"):
        SyncRequest.from_bytes(
            HEAD.pack(b"FSLM", VERSION, 12) + bytes(48) + struct.pack("<QQQB", 1, 0, 0, 2)
        )


def test_an_upload_of_a_real_client_survives_the_round_trip():
    algorithm = fsl.make("async", dim=3, n_arms=4, n_clients=2, horizon=500)
    client, rng = fsl.Client(algorithm, client_id=1), np.random.default_rng(0)
    for _ in range(30):
        contexts = rng.standard_normal((4, 3))
        client.observe(
            client.select(contexts / np.linalg.norm(contexts, axis=1, keepdims=True)), rng.random()
        )
    upload = client.upload()
    written = upload.to_bytes()
    assert (
        to_plain_data(Upload.from_bytes(written)) == to_plain_data(upload)
        and upload.pulls.sum() == 30
    )
    n = len(upload.layers)
    assert len(written) == HEAD.size + 12 + n * (2 + 8 + 8 * (6 + 3)) + 2 * len(
        upload.asking
    )  # symmetric: six of nine entries are sent
    server, other = fsl.Server(algorithm), fsl.Server(algorithm)
    one, two = server.merge(upload), other.merge(Upload.from_bytes(written))
    assert to_plain_data(one) == to_plain_data(Download.from_bytes(two.to_bytes()))


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["async", "variance", "robust", "sync", "fedlinucb"]),
    dim=st.sampled_from([1, 2, 7, 25]),
    ridge=st.sampled_from([1e-6, 1.0, 1e6]),
    length=st.sampled_from([1.0, 1 + 9e-7, 1e-8, 1e-120, 1e-155, 1e-170, 0.0]),
    pulls=st.sampled_from([1, 3, 40]),
    spread=st.sampled_from([1.0, 1e-9, 0.0]),
    seed=st.integers(0, 999),
)
def test_every_upload_of_an_honest_client_is_accepted(
    name, dim, ridge, length, pulls, spread, seed
):
    rng = np.random.default_rng(seed)
    algorithm = fsl.make(name, dim=dim, n_arms=2, n_clients=2, horizon=1000, ridge=ridge)
    client, middle = fsl.Client(algorithm), rng.standard_normal((2, dim))
    for _ in range(pulls):
        contexts = middle + spread * rng.standard_normal((2, dim))
        contexts *= length / np.linalg.norm(contexts, axis=1, keepdims=True)
        client.observe(
            client.select(contexts),
            rng.standard_normal(),
            sigma=float(rng.choice([0, 1e-6, 1, 1e6])),
        )
    check_upload(
        Upload.from_bytes(client.upload().to_bytes()), algorithm
    )  # test_ledger.py has uploads that are refused
    assert client.upload().pulls.sum() == pulls


def test_an_upload_of_very_many_pulls_of_one_arm_is_accepted():
    """Every pull rounds in the same direction, so the errors add up."""
    algorithm = fsl.make("async", dim=10, n_arms=1, n_clients=2, horizon=10**6, trigger="never")
    client, x = fsl.Client(algorithm), np.random.default_rng(3).standard_normal(10)
    client.observe(client.select(x[None] / np.linalg.norm(x)), 0.1)
    layer, x = 0, x / np.linalg.norm(x)
    for _ in range(400_000):
        client._engine.learn_from(x, layer, 0.1, 0.1)
    upload = dataclasses.replace(client.upload(), pulls=np.array([400_001]))
    check_upload(upload, algorithm)
    lowest = np.linalg.eigvalsh(unpack_upper(upload.grams[0], 10), UPLO="U")[0]
    assert lowest / 400_001 < -1e-12  # so large is the rounding error


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_contexts_of_the_greatest_length_are_accepted(dim):
    algorithm = fsl.make("async", dim=dim, n_arms=1, n_clients=2, horizon=1000, trigger="never")
    client, rng = fsl.Client(algorithm), np.random.default_rng(0)
    for _ in range(1000):
        x = rng.standard_normal((1, dim))
        client.observe(client.select((1 + 1e-6) * (1 - 1e-15) * x / np.linalg.norm(x)), 0.1)
    upload = client.upload()
    check_upload(upload, algorithm)
    assert upload.pulls.sum() == 1000


@pytest.mark.parametrize("dtype", [">f8", "f4", "f2", "g"])
@pytest.mark.parametrize("whole", ["i1", "u1", ">i8", "u8"])
@pytest.mark.parametrize("form", ["C", "F", "strided", "matrix"])
def test_arrays_of_any_dtype_and_memory_order_give_the_same_sums(dtype, whole, form):
    """The dimension is one at which 8 d does not fit into a byte."""
    algorithm = fsl.make("async", dim=40, n_arms=2, n_clients=2, horizon=100)
    grams, moments = np.zeros((2, 820)), np.full((2, 40), 0.5)
    grams[:, 0] = 1.0
    forms = {
        "C": np.asarray,
        "F": np.asfortranarray,
        "strided": lambda a: np.stack([a, a], -1)[..., 0],
    }
    as_given = forms.get(form, lambda values: values.view(np.matrix))
    plain = Upload(1, np.array([1, 0]), grams, moments, np.array([3, 100]), asking=(1,))
    other = Upload(
        1,
        np.array([1, 0], whole),
        as_given(grams.astype(dtype)),
        as_given(moments.astype(dtype)),
        np.array([3, 100], whole),
        (1,),
    )
    one, two = fsl.Server(algorithm), fsl.Server(algorithm)
    assert to_plain_data(one.merge(plain)) == to_plain_data(two.merge(other))


def test_long_doubles_beyond_the_range_of_doubles_are_refused():
    algorithm = fsl.make("async", dim=1, n_arms=2, n_clients=2, horizon=100)
    upload = Upload(0, np.array([0]), np.array([["1e400"]], "g"), np.zeros((1, 1)), np.array([1]))
    if np.isfinite(upload.grams).all():  # where long doubles have a larger range
        with pytest.raises(InvalidInput, match="numbers beyond 1e\\+150"):
            check_upload(upload, algorithm)
    else:
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            check_upload(upload, algorithm)
