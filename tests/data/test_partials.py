"""Moments of parts: merged in any order they are those of the whole table; what does not fit together is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from colme.data.estimate import estimate
from colme.data.partials import as_moments, merge_moments, partial_moments, written_moments
from colme.errors import ColmeError


def rows(seed: int = 0, n_agents: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    agent = rng.integers(0, n_agents, 20 * n_agents)
    value = rng.normal(size=len(agent)) + 1e3 + agent % 2 * 5.0
    return {"agent": np.array([f"u{a}" for a in agent]), "x": value, "w": rng.uniform(0.5, 2.0, len(agent))}


def pieces(table: dict[str, Any], n: int) -> list[dict[str, Any]]:
    return [{name: column[k::n] for name, column in table.items()} for k in range(n)]


@pytest.mark.parametrize("weight", [None, "w"])
def test_merged_parts_are_the_whole(weight: str | None) -> None:
    table = rows()
    whole = as_moments(partial_moments(table, agent="agent", value="x", weight=weight))
    parts = [partial_moments(each, agent="agent", value="x", weight=weight) for each in pieces(table, 4)]
    for order in itertools.islice(itertools.permutations(range(4)), 0, 24, 5):
        a, b, c, d = (parts[k] for k in order)
        nested = as_moments(merge_moments([merge_moments([a, b]), merge_moments([c, d])]))
        flat = as_moments(merge_moments([a, b, c, d]))
        for found in (nested, flat):
            found = found.select(np.argsort(found.labels))
            known = whole.select(np.argsort(whole.labels))
            assert found.labels.tolist() == known.labels.tolist()
            one, other = found.folds.merged(slice(None)), known.folds.merged(slice(None))
            assert np.array_equal(one.n, other.n)
            np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
            np.testing.assert_allclose(one.square, other.square, rtol=1e-9)
            np.testing.assert_allclose(one.worth, other.worth)
            assert np.array_equal(found.low, known.low) and np.array_equal(found.high, known.high)


def test_the_folds_of_many_small_parts_are_balanced() -> None:
    """One sample per part and agent: parts draw their own seeds, so the samples of an agent fall into all folds."""
    parts = [partial_moments({"agent": np.arange(50), "x": np.arange(50.0)}, agent="agent", value="x", seed=k)
             for k in range(40)]  # fmt: skip
    folds = as_moments(merge_moments(parts)).folds
    assert (folds.n.sum(axis=1) == 40).all()
    # 8 on average; a binomial variable with 40 trials is above 25 with probability 4e-8
    assert folds.n.max() < 25 and folds.n.std() < 2 * (40 * 0.2 * 0.8) ** 0.5


def test_estimates_from_parts_are_those_of_the_rows(tmp_path: Path) -> None:
    table = rows()
    parts = [partial_moments(each, agent="agent", value="x", seed=k) for k, each in enumerate(pieces(table, 3))]
    expected = estimate(table, agent="agent", value="x", method="census")
    files = []
    for k, part in enumerate(parts):
        files.append(tmp_path / f"site{k}.arrow")
        files[-1].write_bytes(written_moments(part))
    for source in (merge_moments(parts), parts, files):
        found = estimate(source, method="census")
        order, known = np.argsort(found.agent), np.argsort(expected.agent)
        np.testing.assert_allclose(found.estimate[order], expected.estimate[known], rtol=1e-9)
        assert found.summary.n_samples == expected.summary.n_samples
        assert abs(found.summary.gain - expected.summary.gain) < 0.05


def test_two_columns_and_very_large_values() -> None:
    table = {"a": ["x", "x", "y"], "b": [1, 2, 1], "v": [1e200, 3e200, 2e200]}
    small = {"a": ["x"], "b": [1], "v": [3.0]}
    merged = merge_moments([partial_moments(each, agent=["a", "b"], value="v") for each in (table, small)])
    found = estimate(merged)
    assert found.agent.tolist() == ["x / 1", "x / 2", "y / 1"] and found.n.tolist() == [2, 1, 1]
    np.testing.assert_allclose(found.mean, [0.5e200, 3e200, 2e200])


def test_names_of_columns_that_moments_do_not_have_are_refused() -> None:
    part = partial_moments(rows(), agent="agent", value="x")
    assert estimate(part, agent="agent", value="x").summary.n_agents == 200
    for given in ({"time": "t"}, {"value": "w"}, {"covariates": "w"}, {"half_life": 3.0}, {"se": "w"}):
        with pytest.raises(ColmeError, match="but the source holds moments of agent='agent', value='x'"):
            estimate(part, **given)  # type: ignore[arg-type]


def changed(table: Any, **about: Any) -> Any:
    (key, old) = next(iter(table.schema.metadata.items()))
    return table.replace_schema_metadata({key: msgspec.json.encode(msgspec.json.decode(old) | about)})


def test_parts_that_do_not_fit_are_refused_in_a_sentence() -> None:
    one = partial_moments(rows(), agent="agent", value="x")
    with pytest.raises(ColmeError, match="no moments to merge"):
        merge_moments([])
    with pytest.raises(ColmeError, match="is not a table of moments"):
        merge_moments([one, pa.table({"agent": ["a"]})])
    with pytest.raises(ColmeError, match=r"moments of value='x' and of value='w': parts must be of the same columns"):
        merge_moments([one, partial_moments(rows(), agent="agent", value="w")])
    with pytest.raises(ColmeError, match="the moments cannot be read"):
        merge_moments([changed(one, unit="far")])
    with pytest.raises(ColmeError, match="holds text and then numbers: all labels must be of one kind"):
        merge_moments([one, partial_moments({"agent": [1], "x": [2.0]}, agent="agent", value="x")])


def test_partitions_of_dask_are_parts() -> None:
    """The example of docs/engines.md."""
    dask, dd = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    import pandas as pd

    table = rows()
    frame = dd.from_pandas(pd.DataFrame(table), npartitions=3)
    parts = [dask.delayed(partial_moments)(part, agent="agent", value="x") for part in frame.to_delayed()]
    with dask.config.set(scheduler="synchronous"):
        found = estimate(merge_moments(dask.compute(*parts)))
    rowwise = estimate(table, agent="agent", value="x")
    one, other = (dict(zip(each.agent, zip(each.n, each.mean, strict=True), strict=True)) for each in (found, rowwise))
    assert one.keys() == other.keys() and found.summary.gain > 0.5
    for name in one:
        assert one[name] == pytest.approx(other[name], rel=1e-12)
