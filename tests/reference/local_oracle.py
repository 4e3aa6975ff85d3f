"""The two ends of the scale: no collaboration, and one that knows the classes (METHODS section 3)."""

import numpy as np

from .common import Array, Result, running_means


def local(samples: Array) -> Result:
    """y_a = X_a. No graph: every adjacency is False."""
    mean, count = running_means(samples)
    steps, agents = samples.shape
    return Result(mean, count, mean.copy(), np.zeros((steps, agents, agents), dtype=bool))


def oracle(samples: Array, classes: Array) -> Result:
    """y_a = sum of n_b X_b / sum of n_b over the agents b in the class of a that have a sample.

    The adjacency is "same class", without the diagonal. The estimate of an agent without a sample is NaN.
    """
    mean, count = running_means(samples)
    steps, agents = samples.shape
    same = np.zeros((agents, agents), dtype=bool)
    for a in range(agents):
        for b in range(agents):
            same[a, b] = a != b and classes[a] == classes[b]

    estimate = np.full((steps, agents), np.nan)
    for i in range(steps):
        for a in range(agents):
            if count[i, a] == 0:
                continue
            numerator = 0.0
            denominator = 0.0
            for b in range(agents):
                if (b == a or same[a, b]) and count[i, b] > 0:
                    numerator += count[i, b] * mean[i, b]
                    denominator += count[i, b]
            estimate[i, a] = numerator / denominator
    return Result(mean, count, estimate, np.array([same] * steps))
