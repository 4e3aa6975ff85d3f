"""CL-colME by flow updating: nothing is lost, whatever is cut, missing or never delivered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme._core.edges import CUT
from colme.consensus import agreed_flow, next_flow, stable_step
from colme.graphs import Graph, gnp_random_graph, random_regular_graph
from colme.methods import Place
from colme.methods.consensus import PARTED, FlowAgent
from colme.metrics import oracle_variance
from colme.testing import lockstep
from tests.support.edges import BLOCK, CHUNK, slots_of
from tests.support.recordings import recording_like_a_scenario
from tests.support.runs import run_of

SIGMA = 0.5
FLOW = colme.CLColME(delta=0.1, consensus="flow")


def draw(n_agents: int, n_steps: int, *, gaps: bool = False) -> NDArray[np.float64]:
    """Two classes 1.25 apart; gaps: some agents come late or never, and samples are missing."""
    rng = np.random.default_rng(1)
    samples = 1.25 * (np.arange(n_agents) % 2) + SIGMA * rng.standard_normal((n_steps, n_agents))
    if gaps:
        begins = rng.integers(0, 30, n_agents)
        begins[::9] = n_steps
        samples[np.arange(n_steps)[:, None] < begins] = np.nan
        samples[rng.random(samples.shape) < 0.2] = np.nan
    return samples


def recording(samples: NDArray[np.float64]) -> colme.Recording:
    return recording_like_a_scenario(samples, np.arange(samples.shape[1]) % 2, sigma=SIGMA)


def matrix_of(state: Any) -> NDArray[np.float64]:
    """F as a matrix, by the formula of the layout; the flow of a dead slot stands on the diagonal."""
    edges, n = state.edges, len(state.estimate)
    flows = np.zeros((n, n))
    for a in range(n):
        block, lane = divmod(a // CHUNK * CHUNK + int(edges.row_of[a]), BLOCK)
        row = state.flows[edges.offsets[block] + lane : edges.offsets[block + 1] : BLOCK]
        np.add.at(flows[a], slots_of(edges, a), row)
    return flows


# In the array


@pytest.mark.parametrize("gaps", [False, True])
def test_what_one_end_has_the_other_lacks_and_the_mean_stays(gaps: bool) -> None:
    """To the bit for every edge, and to the rounding of a sum for all together, while edges are cut and rows move."""
    n, n_steps = 150, 120
    samples = draw(n, n_steps, gaps=gaps)
    run = run_of([FLOW], recording(samples), graph=gnp_random_graph(n, 8 / n, rng=3), steps=n_steps)
    state: Any = run.states[0]
    cuts, first_order = 0, state.edges.order.copy()
    for t in range(1, n_steps + 1):
        run.step(t)
        flows, there = matrix_of(state), ~np.isnan(run.world.mean)
        assert np.array_equal(flows, -flows.T), "not antisymmetric, or there is a flow on a dead slot"
        assert not flows[~state.edges.graph().adjacency()].any() and not flows[~there].any()
        assert np.array_equal(there, ~np.isnan(state.estimate))
        off = state.estimate[there].sum() - run.world.mean[there].sum()
        assert (
            abs(off) < n * 8 * 2.0**-53 * np.abs(flows).max() + n * 2.0**-52
        )  # roundings of 8 flows each, and of sums
        cuts += state.edges.tally[CUT] > 0
    assert cuts > 10 and state.edges.wrong_share < 0.3 and np.abs(flows).max() > 0.01
    assert not np.array_equal(state.edges.order, first_order), "rows never moved"


def test_agents_agree_where_rows_move() -> None:
    """Three blocks of all degrees, tightened from the start, agents late or never there: the same bits."""
    samples, graph = draw(150, 60, gaps=True), gnp_random_graph(150, 8 / 150, rng=3)
    source = recording(samples)
    run = run_of([FLOW], source, graph=graph, steps=len(samples))
    alone = lockstep(FLOW, samples - source.origin, graph, sigma=SIGMA)
    for t, wanted in enumerate(alone, start=1):
        run.step(t)
        np.testing.assert_array_equal(run.states[0].estimate, wanted, f"step {t}")


def test_flows_move_with_their_slots_over_several_chunks() -> None:
    """Tightening never, or whenever it pays, gives the same bits."""
    n, n_steps = 2500, 150
    graph, scenario = gnp_random_graph(n, 8 / n, rng=1), colme.Scenario(n_agents=n, means=(0.0, 1.25), sigma=SIGMA)
    tight = colme.simulate(FLOW, scenario, graph=graph, steps=n_steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colme._core.edges.KeptEdges.tighten", lambda self, flows=None: False)
        loose = colme.simulate(FLOW, scenario, graph=graph, steps=n_steps)
    assert tight.wrong_edges[-1] < 0.1
    assert tight.final.estimate.tobytes() == loose.final.estimate.tobytes()
    assert tight.mse.tobytes() == loose.mse.tobytes()


# After the separation


def test_it_reaches_the_oracle_where_a_clock_remembers() -> None:
    """Components are classes of 60. Mass is conserved, so the squared error is exactly the oracle's and the variance
    around it; that of the newest samples, sigma^2 / t^2, times c = mean over modes of 1 / (1 - (1 - b lambda)^2) for
    those that are not yet spread. A clock averages over all class means since the restart instead: with
    Cov(X(s), X(t)) = sigma^2 / max(s, t), that is twice the oracle's error in the end.
    """
    n, t, n_seeds, step = 120, 2000, 40, 0.06
    scenario = colme.Scenario(n_agents=n, means=(0.0, 3.0), sigma=1.0)
    methods = [colme.CLColME(step=step, consensus="flow"), colme.CLColME(step=step, clock="global"), colme.Oracle()]
    flow, clocked, oracle, expected = np.zeros((4, n_seeds))
    for seed in range(n_seeds):
        traces = colme.simulate(methods, scenario, degree=16, steps=t, seed=seed, record=[1, t])
        final = traces[0].final
        assert np.array_equal(final.groups == final.groups[0], final.class_ == final.class_[0])
        laplacian = np.diag(final.graph.degrees) - final.graph.adjacency().astype(float)
        modes = np.linalg.eigvalsh(laplacian)[2:]  # the first two are the classes themselves
        expected[seed] = (1.0 / (1.0 - (1.0 - step * modes) ** 2)).sum() / n / t**2
        flow[seed], clocked[seed], oracle[seed] = (trace.mse[-1] for trace in traces)
        around = final.estimate - traces[2].final.estimate
        assert flow[seed] - oracle[seed] == pytest.approx((around**2).mean(), rel=1e-6)
    # chi squares: n agents per seed around the class mean (a few modes weigh more: half of them count), two classes
    # per seed for the oracle; four standard deviations
    spread = 4.0 * np.sqrt(2.0 / (n * n_seeds / 2))
    assert (flow - oracle).mean() == pytest.approx(expected.mean(), rel=spread)
    assert flow.mean() < 1.1 * oracle.mean()  # c n_class / t = 1.5 * 60 / 2000
    assert oracle.mean() == pytest.approx(oracle_variance(1.0, t, n // 2), rel=4.0 / np.sqrt(n_seeds))
    # the part that the clock adds has variance one and is independent of the oracle's error: 1 + 1 +- sqrt(6 / 80)
    assert clocked.mean() / oracle.mean() == pytest.approx(2.0, abs=4.0 * np.sqrt(6.0 / (2 * n_seeds)))
    assert clocked.mean() > 1.25 * flow.mean()


# On a network that loses messages


def test_the_ends_of_an_edge_agree_exactly_or_by_halves() -> None:
    rng = np.random.default_rng(0)
    for mine, other, step in rng.standard_normal((200, 3)) * 10.0 ** rng.integers(-8, 8, (200, 3)):
        assert agreed_flow(mine, -mine) == mine
        assert agreed_flow(mine, other) == -agreed_flow(other, mine)
        assert agreed_flow(mine, other) + other == pytest.approx((mine + other) / 2, abs=1e-15 * abs(mine - other))
        y, z = np.float32(mine), np.float32(other)
        assert next_flow(mine, y, z, step, None) == -next_flow(-mine, z, y, step, None)
        assert next_flow(mine, y, np.float32(np.nan), step, True) == mine


class Lossy:
    """Agents in lockstep on a network that delivers each message with some probability."""

    def __init__(self, graph: Graph, seed: int):
        self.rng = np.random.default_rng(seed)
        self.agents = []
        for a in range(graph.n_agents):
            place = Place(agent=a, neighbors=tuple(graph.neighbors(a).tolist()), n_agents=graph.n_agents,
                          n_edges=graph.n_edges, auto_step=stable_step(graph), sigma=SIGMA)  # fmt: skip
            agent = FLOW.agent(place)
            assert isinstance(agent, FlowAgent)
            self.agents.append(agent)
        self.sent = self.lost = self.goodbyes = 0

    def step(self, samples: NDArray[np.float64], loss: float) -> None:
        rounds = [agent.step(float(x)) for agent, x in zip(self.agents, samples, strict=True)]
        inboxes: list[dict[Any, Any]] = [{} for _ in rounds]
        for a, each in enumerate(rounds):
            for b, message in next(each).items():
                self.sent += 1
                self.goodbyes += message is PARTED
                if self.rng.random() < loss:
                    self.lost += 1
                else:
                    inboxes[b][a] = message  # type: ignore[call-overload]
        for each, inbox in zip(rounds, inboxes, strict=True):
            with pytest.raises(StopIteration):
                each.send(inbox)

    @property
    def imbalance(self) -> float:
        """Mean of all estimates, less the mean of all local means."""
        return float(np.nanmean([agent.estimate - agent.mean for agent in self.agents]))

    @property
    def one_sided(self) -> int:
        """Edges that only one end has cut."""
        links = {(a, b) for a, agent in enumerate(self.agents) for b in agent.flows}
        return len({(a, b) for a, b in links if (b, a) not in links})


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("loss", [0.05, 0.5])
def test_after_loss_nothing_is_missing(loss: float, gaps: bool) -> None:
    """Edges are cut, some by one end only, while messages are lost. With the first exchange in which nothing is lost
    the ends of an edge agree; with the second everybody knows who cut it."""
    n, lossy_steps = 40, 60
    samples = draw(n, 2 * lossy_steps, gaps=gaps)
    network = Lossy(random_regular_graph(n, 6, rng=2), seed=4)
    imbalances, one_sided = [], 0
    for row in samples[:lossy_steps]:
        network.step(row, loss)
        imbalances.append(abs(network.imbalance))
        one_sided = max(one_sided, network.one_sided)
    assert max(imbalances) > 1e-3 and one_sided > 0 and network.lost > 0.8 * loss * network.sent
    assert max(imbalances) < 1.0, "what is out of balance must not grow"
    for k, row in enumerate(samples[lossy_steps:]):
        network.step(row, 0.0)
        if k >= 1:
            assert abs(network.imbalance) < 1e-15 * n and network.one_sided == 0
    assert network.goodbyes > 0
    links = [(a, b) for a, agent in enumerate(network.agents) for b in agent.flows]
    assert all(network.agents[a].flows[b] == -network.agents[b].flows[a] for a, b in links)  # type: ignore[index, call-overload]
    assert 0 < len(links) < 6 * n


def test_loss_costs_little_in_the_end() -> None:
    """A fifth of all messages never arrives: once the classes are apart, errors are what they are without loss, within
    the flows that one step moves (b times the difference of neighbors, about sigma / t)."""
    n, n_steps = 40, 400
    samples, graph = draw(n, n_steps), random_regular_graph(n, 6, rng=2)
    perfect, lossy = Lossy(graph, seed=4), Lossy(graph, seed=4)
    for row in samples:
        perfect.step(row, 0.0)
        lossy.step(row, 0.2)
        assert abs(perfect.imbalance) < 1e-13 and perfect.one_sided == 0
    assert perfect.goodbyes == perfect.lost == 0 and min(len(agent.flows) for agent in perfect.agents) < 6
    estimates = [np.array([agent.estimate for agent in each.agents]) for each in (perfect, lossy)]
    assert [set(agent.flows) for agent in perfect.agents] == [set(agent.flows) for agent in lossy.agents]
    assert np.abs(estimates[0] - estimates[1]).max() < 5 * SIGMA / n_steps
    local = np.array([agent.mean for agent in perfect.agents])
    truth = 1.25 * (np.arange(n) % 2)
    assert ((estimates[1] - truth) ** 2).mean() < 0.3 * ((local - truth) ** 2).mean()
