"""Messages: what is packed is what is unpacked, and codes are as close to their numbers as they promise."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from colme.live.messages import join, pack, to_codes
from tests.support.live_messages import from_codes, split, unpack

NUMBERS = hnp.arrays(
    np.float64, st.integers(0, 40), elements=st.floats(-1e300, 1e300) | st.sampled_from([np.nan, np.inf])
)


@given(NUMBERS, st.sampled_from([1, 2]))
def test_a_code_is_within_half_a_step_of_its_number(numbers: np.ndarray, n_bytes: int) -> None:
    codes = to_codes(numbers, n_bytes=n_bytes)
    back = from_codes(codes)
    known = np.isfinite(numbers)
    assert np.array_equal(np.isnan(back), ~known)
    if known.any():
        half = 0.5 * (codes.high / 2 - codes.low / 2) / (256**n_bytes - 2) * 2
        rounding = 1e-12 * np.abs(numbers[known]).max()
        assert (np.abs(back[known] - numbers[known]) <= half * (1 + 1e-9) + rounding).all()


def test_a_message_survives_its_bytes() -> None:
    head = {"kind": "frame", "t": 3, "panels": [{"mse": np.nan, "radius": np.float64(0.5), "text": "</script>"}]}
    arrays = {
        "0/estimate": to_codes([1.0, 2.0, np.nan]),
        "edges": np.arange(5, dtype=np.uint32),
        "bits": np.array([7], np.uint8),
        "plain": np.array([1.5, np.nan]),
    }
    message = pack(head, arrays)
    assert len(message) % 8 == 0
    found, columns = unpack(message)
    assert found == {"kind": "frame", "t": 3, "panels": [{"mse": None, "radius": 0.5, "text": "</script>"}]}
    assert columns["edges"].tolist() == [0, 1, 2, 3, 4] and columns["bits"].tolist() == [7]
    assert columns["0/estimate"][:2].tolist() == [1.0, 2.0] and np.isnan(columns["0/estimate"][2])
    assert np.array_equal(columns["plain"], arrays["plain"], equal_nan=True)


@given(st.lists(st.binary(max_size=40)))
def test_a_recording_is_its_messages(messages: list[bytes]) -> None:
    assert list(split(join(messages))) == messages
