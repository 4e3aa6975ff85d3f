"""The comparison with the peers: splits, scores, verdicts and resumption, on made data, without the peers' packages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import jobs, results, tables
from benchmarks.peers.estimators import NORMAL, PEERS, Estimates, Samples
from benchmarks.peers.jobs import Job, Journal, Record, Versions
from benchmarks.peers.page import page
from benchmarks.peers.rows import ratio_words
from benchmarks.peers.trials import Compared, Trial, difference, ratio, trial_of, verdict
from colme.data.read.table import read_table

VERSIONS = Versions("1", {"colme": ""}, 2)
DOCS = Path(__file__).parents[2] / "docs"
PLAIN = ["colme", "local", "grand mean"]


def table_of(n_agents: int, n: int, sigma: float = 2.0):
    """Samples of agents with true means 0, 1, 2, ..., and times."""
    rng = np.random.default_rng(0)
    agent = np.repeat(np.arange(n_agents), n)
    columns = {"a": agent, "v": rng.normal(agent, sigma), "t": np.tile(np.arange(n), n_agents)}
    return read_table(columns, agent="a", value="v", time="t")


def test_a_trial_learns_from_n_samples_and_scores_on_all_others() -> None:
    table = table_of(6, 40)
    value = table.value.reshape(6, 40)
    first = trial_of(table, 5, seed=None, held_out=20)
    assert np.array_equal(first.samples.value.reshape(6, 5), value[:, :5])
    assert np.allclose(first.target, value[:, 5:].mean(1))
    assert np.allclose(first.noise, value[:, 5:].var(1, ddof=1) / 35)
    drawn = trial_of(table, 5, seed=1, held_out=20)
    assert drawn.samples.time is None
    own = drawn.samples.value.reshape(6, 5)
    assert np.allclose(5 * own.mean(1) + 35 * drawn.target, value.sum(1))  # no sample is in both parts, none is lost
    assert all(np.isin(mine, theirs).all() for mine, theirs in zip(own, value, strict=True))


def test_times_that_are_all_equal_are_no_times() -> None:
    rng = np.random.default_rng(0)
    columns = {"a": np.repeat(np.arange(4), 30), "v": rng.normal(size=120), "t": np.tile(np.arange(30) >= 5, 4) + 0}
    table = read_table(columns, agent="a", value="v", time="t")
    assert trial_of(table, 5, seed=None, held_out=20).samples.time is None
    assert trial_of(table, 6, seed=None, held_out=20).samples.time is not None


def test_losses_are_free_of_the_noise_of_the_target() -> None:
    """4000 agents, target noise of variance 1 to 4: the mean loss is the squared error against the truth. Its standard
    error is that of 2 e z + z^2 - 1 scaled, at most sqrt(4 * 9 * 4 + 2 * 16) / sqrt(4000) = .21."""
    rng = np.random.default_rng(2)
    noise = rng.uniform(1.0, 4.0, 4000)
    target = np.sqrt(noise) * rng.standard_normal(4000)  # true means 0
    trial = Trial(Samples(np.arange(4000), target, 4000), target, noise)
    assert trial.losses(np.full(4000, 3.0)).mean() == pytest.approx(9.0, abs=4 * 0.21)
    assert trial.losses(np.zeros(4000)).mean() == pytest.approx(0.0, abs=4 * 0.21)


def test_coverage_allows_for_the_noise_of_the_target() -> None:
    """Right intervals of 20000 agents cover 90 % whatever the noise of the targets; standard error .002."""
    rng = np.random.default_rng(3)
    n = 20_000
    truth, spread, noise = rng.standard_normal(n), rng.uniform(0.5, 2.0, n), rng.uniform(0.0, 4.0, n)
    estimate = truth + spread * rng.standard_normal(n)
    target = truth + np.sqrt(noise) * rng.standard_normal(n)
    trial = Trial(Samples(np.arange(n), target, n), target, noise)
    right = Estimates(estimate, estimate - NORMAL * spread, estimate + NORMAL * spread)
    assert trial.covered(right) == pytest.approx(0.9, abs=0.0085)
    narrow = Estimates(estimate, estimate - 0.5 * NORMAL * spread, estimate + 0.5 * NORMAL * spread)
    assert trial.covered(narrow) < 0.85
    assert trial.covered(Estimates(estimate)) is None


def test_the_ratio_is_that_of_sums_with_the_standard_error_of_its_residuals() -> None:
    local, error = np.array([1.0, 3.0]), np.array([1.0, 1.0])
    found = ratio(error, local)
    assert found.value == 0.5
    # residuals .5 and -.5: standard deviation sqrt(.5), over sqrt(2) draws, in units of the mean local error 2
    assert found.se == pytest.approx(0.25)
    assert ratio(3.0 * local, local) == Compared(3.0, 0.0)
    assert np.isnan(ratio(error[:1], local[:1]).se)


def test_the_standard_error_of_a_difference_is_that_over_repetitions() -> None:
    """2000 repetitions of 30 draws: their spread is known to 1.6 % (1 / sqrt(4000))."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(2000):
        local = rng.gamma(20.0, 0.05, 30)
        found.append(difference(0.6 * local + 0.1 * rng.standard_normal(30), 0.5 * local, local))
    assert np.mean([each.value for each in found]) == pytest.approx(0.1, abs=4 * 0.1 / 30**0.5 / 2000**0.5 + 0.001)
    spread = np.std([each.value for each in found])
    assert np.sqrt(np.mean([each.se**2 for each in found])) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(
    ("value", "se", "words"),
    [
        (0.1, 0.06, "tie"),
        (-0.1, 0.06, "tie"),
        (0.1, 0.04, "worse"),
        (-0.1, 0.04, "better"),
        (0.0, 0.0, "tie"),
        (0.1, np.nan, ""),
    ],
)
def test_a_verdict_needs_two_standard_errors(value: float, se: float, words: str) -> None:
    assert verdict(Compared(value, se)) == words


def test_colme_answers_in_the_order_of_the_agents() -> None:
    """Agents far apart, numbered against the order of their means and of their rows."""
    rng = np.random.default_rng(0)
    agent = np.repeat(np.arange(30)[::-1], 10)
    samples = Samples(agent, rng.normal(-1000.0 * agent, 1.0), 30)
    found = PEERS["colme"].fit(samples)
    assert np.abs(found.estimate + 1000.0 * np.arange(30)).max() < 3.0
    assert found.lower is not None and found.upper is not None
    assert ((found.lower < found.estimate) & (found.estimate < found.upper)).all()


class FakeTable:
    """Two draws of a normal world."""

    def counts(self, order: str) -> list[int]:
        return [3, 5] if order == tables.SHUFFLED else [3]

    def trial(self, order: str, n: int, seed: int) -> Trial:
        rng = np.random.default_rng(seed)
        truth, agent = rng.standard_normal(40), np.repeat(np.arange(40), n)
        return Trial(Samples(agent, rng.normal(truth[agent], 2.0), 40), truth, np.zeros(40))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """One table, and peers without packages: a pooled mean stands in for colme."""
    monkeypatch.setitem(tables.TABLES, "fake", FakeTable())  # type: ignore[arg-type]
    monkeypatch.setitem(PEERS, "colme", PEERS["grand mean"])
    monkeypatch.setattr(jobs, "warm_up", lambda peers: None)


def run(path: Path) -> list[str]:
    """What was done, in words."""
    said: list[str] = []
    jobs.run(Journal(path, VERSIONS, Record), ["fake"], PLAIN, 2, said.append)
    return said


def test_an_interrupted_run_goes_on(fake: None, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert len(run(path)) == 1 + 5  # compiling, then two seeds with two n each, and one split in time order
    whole = path.read_bytes().split(b"\n")
    assert len(whole) == 1 + 15 + 1
    path.write_bytes(b"\n".join(whole[:9]) + b"\n" + whole[9][:20])  # eight records, and a part of the ninth
    said = run(path)
    assert [each.split(" (")[0] for each in said[1:]] == [
        "fake, shuffled, 3 samples each, seed 1", "fake, shuffled, 5 samples each, seed 1",
        "fake, time order, 3 samples each, seed 0",
    ]  # fmt: skip
    again = Journal(path, VERSIONS, Record).done
    assert len({each.job for each in again}) == len(again) == 15
    assert run(path) == []


def test_records_of_other_versions_are_not_continued(tmp_path: Path) -> None:
    Journal(tmp_path / "a.jsonl", VERSIONS, Record)
    with pytest.raises(SystemExit, match=r"made with colme 1, 2 seeds, no peers, but here is colme 2.*--fresh"):
        Journal(tmp_path / "a.jsonl", Versions("2", {}, 2), Record)


def test_a_peer_that_fails_is_recorded_and_one_that_is_slow_gets_no_more_seeds(
    fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(samples: Samples) -> Estimates:
        raise ValueError("Singular matrix")

    monkeypatch.setitem(PEERS, "grand mean", PEERS["local"]._replace(fit=fails))
    monkeypatch.setattr(jobs, "BUDGET", 1e-12)
    journal = Journal(tmp_path / "a.jsonl", VERSIONS, Record)
    jobs.run(journal, ["fake"], PLAIN, 2, lambda words: None)
    assert {(each.job.order, each.job.n, each.job.seed) for each in journal.done} == {
        ("shuffled", 3, 0),
        ("time order", 3, 0),
    }
    cell = results.cells_of(journal.done)[0]
    entry = cell.peers["grand mean"]
    assert (entry.failures, entry.ratio, entry.failure) == (1, None, "ValueError: Singular matrix")


def test_cells_compare_the_same_draws() -> None:
    def record(peer: str, seed: int, error: float) -> Record:
        return Record(Job("fake", tables.SHUFFLED, 3, seed, peer), 40, "", error, cpu=1.0)

    records = [record("local", seed, 2.0) for seed in range(3)] + [
        record("colme", seed, 1.0 + seed) for seed in range(3)
    ]
    cell = results.cells_of([*records, record("grand mean", 0, 3.0), record("grand mean", 1, 2.0)])[0]
    entry = cell.peers["grand mean"]
    assert entry.ratio == pytest.approx(5.0 / 4.0)
    assert entry.difference == pytest.approx((3.0 + 2.0 - 1.0 - 2.0) / 4.0)  # colme on seeds 0 and 1 only
    assert entry.seeds == 2
    assert cell.peers["colme"].ratio == pytest.approx(1.0)


def test_the_page_is_that_of_the_results() -> None:
    """Remedy: python -m benchmarks.peers --draw."""
    assert (DOCS / "peers.md").read_text(encoding="utf-8") == page(results.read())


def test_the_tables_of_mixed_models_are_those_of_the_results() -> None:
    cells = {(cell.table, cell.n): cell for cell in results.read().cells if cell.order == tables.SHUFFLED}
    found = 0
    for line in (DOCS / "mixed_models.md").read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| ([\w ]+?)(?:, n = (\d+)|: [^|]*)? \| ([^|]+) \| ([^|]+) \|", line)
        if row and (row[1], int(row[2] or 0)) in cells:
            cell = cells[row[1], int(row[2] or 0)]
            assert (row[3], row[4]) == (ratio_words(cell.peers["colme"]), ratio_words(cell.peers["lme4"])), line
            found += 1
    assert found == 14
