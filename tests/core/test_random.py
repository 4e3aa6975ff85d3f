"""Random numbers depend on (seed, stream, agent, t) alone, and are as random as they must be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from colme._core import random
from colme._core.random import ASSIGN, GRAPH, JOIN, SKIP, VALUE, VALUE_2, box_muller, ranks, uniform, words, words_numpy
from tests.support.examples import examples

MAX = 0xFFFFFFFF
# Random123, file kat_vectors, lines "philox4x32 10": counter, key, output.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MAX, MAX, MAX, MAX), (MAX, MAX), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
STREAMS = (VALUE, VALUE_2, SKIP, ASSIGN, JOIN, GRAPH)
SEEDS = (0, 1, 2**31, 2**32 - 1, 2**32, 0x0123456789ABCDEF, 2**64 - 1)
FAR = 4.5
"""Standard deviations: two-sided probability 7e-6, so that all tests of this file together fail by chance once in 1000
choices of their seeds (which are fixed)."""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    """Also few words come from the kernel, which `words` else leaves to NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "FEW", 0)
        yield


def philox_by_hand(counter: Sequence[int], key: Sequence[int]) -> tuple[int, ...]:
    """Ten rounds as in the paper, in whole numbers without limits."""
    (a, b, c, d), (k, q) = counter, key
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ k, right & MAX, (left >> 32) ^ d ^ q, left & MAX
        k, q = (k + 0x9E3779B9) & MAX, (q + 0xBB67AE85) & MAX
    return a, b, c, d


def uncorrelated(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """z-test of the product of two arrays of mean 0 and deviation 1."""
    return bool(abs(float(np.mean(x * y))) * math.sqrt(x.size) < FAR)


def unit(array: NDArray[Any]) -> NDArray[np.float64]:
    """Words as uniform noise of mean 0 and deviation 1 (sqrt(12) because a uniform has variance 1/12)."""
    return (uniform(array) - 0.5) * math.sqrt(12.0)


def normals(n: int, *, seed: int, t: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n pairs of standard normals."""
    pair = box_muller(words(seed, VALUE, t, n=n), words(seed, VALUE_2, t, n=n))
    return pair[0].astype(float), pair[1].astype(float)


# Philox


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers_of_random123(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    assert tuple(map(int, random.philox(*counter, *key))) == answer
    arrays = [np.full(3, c, np.uint64) for c in counter]
    assert [word.tolist() for word in random.philox(*arrays, *key)] == [[word] * 3 for word in answer]


def test_compiled_philox_gives_the_known_answers_of_random123() -> None:
    import numba

    @numba.njit
    def compiled(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
        return random.philox(c0, c1, c2, c3, k0, k1)

    for counter, key, answer in KNOWN_ANSWERS:
        assert tuple(map(int, compiled(*counter, *key))) == answer


@pytest.mark.parametrize("seed", SEEDS)
def test_agent_64B_16k_l_owns_word_k_of_counter_16B_l(seed: int) -> None:
    t, first = 77, 192
    got = words(seed, SKIP, t, first=first, n=200)
    for i, word in enumerate(got.tolist()):
        block, (k, lane) = (first + i) // 64, divmod((first + i) % 64, 16)
        counter = (16 * block + lane, t, SKIP, 0)
        assert word == philox_by_hand(counter, (seed & MAX, seed >> 32))[k], f"agent {first + i}"


# Words: two forms, any shard


@examples(30)
@given(
    n=st.integers(1, 400), block=st.integers(0, 2**26 - 8), t=st.integers(0, 2**31 - 1),
    stream=st.sampled_from(STREAMS), seed=st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_kernel_and_numpy_agree_anywhere(n: int, block: int, t: int, stream: int, seed: int) -> None:
    np.testing.assert_array_equal(
        words(seed, stream, t, first=64 * block, n=n), words_numpy(seed, stream, t, first=64 * block, n=n)
    )


@pytest.mark.parametrize("form", [words, words_numpy])
@pytest.mark.parametrize("width", [64, 128, 320])
def test_shards_equal_the_whole(form: Any, width: int) -> None:
    n = 1003
    whole = form(5, VALUE, 9, first=0, n=n)
    shards = [form(5, VALUE, 9, first=first, n=min(width, n - first)) for first in range(0, n, width)]
    np.testing.assert_array_equal(np.concatenate(shards), whole)


def test_more_agents_do_not_change_the_words_of_the_first() -> None:
    np.testing.assert_array_equal(words(5, VALUE, 9, n=70), words(5, VALUE, 9, n=7000)[:70])


# Quality


def test_every_bit_of_a_word_is_fair() -> None:
    n = 2**18
    drawn = words(11, VALUE, 3, n=n)
    for bit in range(32):
        ones = int(np.count_nonzero(drawn >> np.uint32(bit) & np.uint32(1)))
        assert abs(ones - n / 2) < FAR * math.sqrt(n) / 2, f"bit {bit}"


@pytest.mark.parametrize("seed", [0, 2**40 + 1])
def test_uniform_is_uniform(seed: int) -> None:
    assert stats.kstest(uniform(words(seed, VALUE, 1, n=2**18)), "uniform").pvalue > 1e-4


def test_uniform_is_never_0_or_1() -> None:
    ends = uniform(np.array([0, MAX], np.uint32))
    assert ends.tolist() == [2.0**-33, 1.0 - 2.0**-33]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(STREAMS, 2)))
def test_streams_are_uncorrelated(one: int, other: int) -> None:
    n = 2**17
    assert uncorrelated(unit(words(3, one, 5, n=n)), unit(words(3, other, 5, n=n)))


@pytest.mark.parametrize("lag", [1, 2, 16, 64, 1000])
def test_steps_and_agents_are_uncorrelated(lag: int) -> None:
    n, t = 2**17, 500
    now = unit(words(8, VALUE, t, n=n))
    assert uncorrelated(now, unit(words(8, VALUE, t + lag, n=n)))
    assert uncorrelated(now[:-lag], now[lag:])
    assert uncorrelated(now, unit(words(8, VALUE, t, first=64 * lag, n=n)))


@pytest.mark.parametrize("other", [9, 8 + 2**32, 8 << 32])
def test_seeds_are_uncorrelated(other: int) -> None:
    n = 2**17
    assert uncorrelated(unit(words(8, VALUE, 1, n=n)), unit(words(other, VALUE, 1, n=n)))


# Normals


def test_minus_two_log_and_circle_point_are_right_to_float32() -> None:
    rng = np.random.default_rng(0)
    ends = np.arange(2**12, dtype=np.uint32)
    sample = np.concatenate([ends, MAX - ends, rng.integers(0, 2**32, 10**5, dtype=np.uint32)])
    exact = -2.0 * np.log(((sample >> np.uint32(1)) + 0.5) / 2.0**31)
    # 2^-23 is the relative spacing of float32; half of it is lost when u is rounded, near u = 1 as an absolute error
    np.testing.assert_allclose(random.minus_two_log(sample), exact, rtol=3 * 2.0**-23, atol=3 * 2.0**-23)
    cos, sin = random.circle_point(sample)
    np.testing.assert_allclose(cos.astype(float) ** 2 + sin.astype(float) ** 2, 1.0, rtol=0, atol=4 * 2.0**-23)


def test_circle_points_are_uniform_on_the_circle() -> None:
    cos, sin = random.circle_point(words(4, VALUE, 1, n=2**17))
    turns = np.arctan2(sin.astype(float), cos.astype(float)) / (2 * math.pi) + 0.5
    assert stats.kstest(turns, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("seed", [0, 7, 2**50 + 3])
def test_moments_of_the_normals(seed: int) -> None:
    z = np.concatenate(normals(2**19, seed=seed))
    n = z.size
    # Standard deviations of the mean of z^k: sqrt((E z^2k - (E z^k)^2) / n)
    for k, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(float(np.mean(z**k)) - expected) < 4.0 * math.sqrt(variance / n), f"moment {k}"


@pytest.mark.parametrize("seed", [0, 7, 2**50 + 3])
def test_normals_pass_kolmogorov_smirnov(seed: int) -> None:
    for z in normals(2**17, seed=seed):
        assert stats.kstest(z, "norm").pvalue > 1e-4


def test_tails_of_the_normals() -> None:
    z = np.abs(np.concatenate(normals(2**20, seed=1)))
    for limit in (2.0, 3.0, 4.0):
        expected = z.size * 2 * stats.norm.sf(limit)
        assert abs(np.count_nonzero(z > limit) - expected) < FAR * math.sqrt(expected), f"|z| > {limit}"


def test_the_two_normals_of_a_pair_are_uncorrelated_in_value_and_in_size() -> None:
    x, y = normals(2**19, seed=2)
    assert uncorrelated(x, y)
    assert uncorrelated((x * x - 1) / math.sqrt(2), (y * y - 1) / math.sqrt(2))


def test_normals_reach_the_square_root_of_64_ln_2_and_no_further() -> None:
    """The smallest u is 2^-32: |z| <= 6.66."""
    longest = float(np.sqrt(random.minus_two_log(np.zeros(1, np.uint32)))[0])
    assert longest == pytest.approx(math.sqrt(64 * math.log(2)), rel=1e-6)
    rng = np.random.default_rng(1)
    angles = np.concatenate([rng.integers(0, 2**32, 10**5, dtype=np.uint32), np.array([0, 2**28, MAX], np.uint32)])
    z = np.concatenate(box_muller(np.zeros_like(angles), angles))
    assert 6.65 < np.abs(z).max() <= longest < 6.6605


# Permutations


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 5000])
def test_ranks_is_a_permutation_that_the_seed_decides(n: int) -> None:
    first = ranks(12, ASSIGN, n)
    np.testing.assert_array_equal(np.sort(first), np.arange(n))
    np.testing.assert_array_equal(first, ranks(12, ASSIGN, n))
    if n > 60:
        assert not np.array_equal(first, ranks(13, ASSIGN, n))
        assert not np.array_equal(first, ranks(12, JOIN, n))


@pytest.mark.parametrize("n", [1, 65, 5000, 300_001])
def test_ranks_are_the_order_of_keys_of_64_bits(n: int) -> None:
    keys = words(12, ASSIGN, 0, n=n).astype(np.uint64) << np.uint64(32) | words(12, ASSIGN, 1, n=n)
    expected = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(ranks(12, ASSIGN, n), expected)
    cuts = sorted([0, 0, n // 3, min(n, n // 3 + 1), n // 2, n, n])
    parts = [ranks(12, ASSIGN, n, first=first, end=end) for first, end in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("bits", [0, 1, 5])
def test_ranks_of_equal_words_go_by_the_second_word_and_then_by_number(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of few bits."""
    honest, n = random.words, 3000
    few = lambda *args, **kwargs: honest(*args, **kwargs) >> np.uint32(32 - bits) << np.uint32(31 - bits)  # noqa: E731
    monkeypatch.setattr(random, "words", few)
    expected = np.lexsort((few(12, ASSIGN, 1, n=n), few(12, ASSIGN, 0, n=n)))
    np.testing.assert_array_equal(ranks(12, ASSIGN, n), expected)
    np.testing.assert_array_equal(ranks(12, ASSIGN, n, first=700, end=1900), expected[700:1900])


def test_all_permutations_are_equally_likely() -> None:
    seen = np.zeros((3, 3, 3))
    for seed in range(3000):
        seen[tuple(ranks(seed, ASSIGN, 3))] += 1
    counts = seen[seen > 0]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4
