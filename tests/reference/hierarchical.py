"""Agents with normal means, or with rates, by brute force: every integral is a sum over a dense grid.

The true means are N(mu, tau^2), and mu and tau have uniform priors. Given mu and tau, agents are independent; nothing
is approximated but the integrals. So dependence between agents through mu and tau is included."""

from __future__ import annotations

import math

import numpy as np


def normal_density(x, mean, variance):
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2.0 * math.pi * variance)


def hyper_grid(mean, noise, n_mu=15, n_tau=30):
    """(mu, tau, probability) of every point of the grid."""
    width = np.sqrt(np.var(mean) + np.mean(noise))
    mus = np.mean(mean) + np.linspace(-5.0, 5.0, n_mu) * width / math.sqrt(len(mean))
    taus = (np.arange(n_tau) + 0.5) / n_tau * 3.0 * width
    points = []
    for mu in mus:
        for tau in taus:
            log = 0.0
            for x, v in zip(mean, noise, strict=True):
                log += -0.5 * math.log(tau**2 + v) - 0.5 * (x - mu) ** 2 / (tau**2 + v)
            points.append((mu, tau, log))
    mu, tau, log = np.array(points).T
    probability = np.exp(log - log.max())
    return mu, tau, probability / probability.sum()


def conditional(grid, x, v, mu, tau):
    """The posterior probability of each point of the grid, for one agent, given mu and tau."""
    density = normal_density(grid, mu, tau**2) * normal_density(x, grid, v)
    return density / density.sum()


def questions(mean, noise, value, k, n_theta=250):
    """(P(mean > value) by agent, expected rank by agent, P(among the k largest) by agent, P(a > b) by pair, the
    distribution of a new agent's mean as (grid, probabilities))."""
    n = len(mean)
    width = np.sqrt(np.var(mean) + np.mean(noise))
    grid = np.linspace(np.min(mean) - 3.0 * width, np.max(mean) + 3.0 * width, n_theta)
    above, expected, among = np.zeros(n), np.zeros(n), np.zeros(n)
    larger, new = np.zeros((n, n)), np.zeros(n_theta)
    for mu, tau, probability in zip(*hyper_grid(mean, noise), strict=True):
        if probability < 1e-6:
            continue
        p = np.array([conditional(grid, mean[a], noise[a], mu, tau) for a in range(n)])
        beyond = 1.0 - np.cumsum(p, axis=1) + 0.5 * p  # each agent's probability of being beyond a point
        above += probability * (p * (grid > value)).sum(axis=1)
        larger += probability * (p @ beyond.T).T
        own = normal_density(grid, mu, tau**2)
        new += probability * own / own.sum()
        for a in range(n):
            # how many of the others are larger: one agent after the other
            count = np.zeros((k + 1, n_theta))
            count[0] = 1.0
            for b in range(n):
                if b != a:
                    count[1:] = count[1:] * (1.0 - beyond[b]) + count[:-1] * beyond[b]
                    count[0] = count[0] * (1.0 - beyond[b])
            among[a] += probability * (p[a] * count[:k].sum(axis=0)).sum()
    for a in range(n):
        expected[a] = 1.0 + sum(larger[b, a] for b in range(n) if b != a)
    return above, expected, among, larger, (grid, new)


def rates_above(y, n, value, n_theta=401):
    """P(rate > value) by agent: rates are Beta(s m, s (1 - m)); m is uniform below 1/2, and m (1 - m) / s below .05."""
    grid = (np.arange(n_theta) + 0.5) / n_theta
    ms, spreads = (np.arange(20) + 0.5) / 40.0, (np.arange(25) + 0.5) / 25.0 * 0.05
    total, found = [], []
    for m in ms:
        for spread in spreads:
            s = m * (1.0 - m) / spread
            log_prior = (s * m - 1.0) * np.log(grid) + (s * (1.0 - m) - 1.0) * np.log1p(-grid)
            prior = np.exp(log_prior - log_prior.max())
            prior /= prior.sum()
            log, above = 0.0, []
            for yes, trials in zip(y, n, strict=True):
                like = prior * np.exp(yes * np.log(grid) + (trials - yes) * np.log1p(-grid))
                log += math.log(like.sum())
                above.append(like[grid > value].sum() / like.sum())
            total.append(log)
            found.append(above)
    weight = np.exp(np.array(total) - max(total))
    return weight @ np.array(found) / weight.sum()
