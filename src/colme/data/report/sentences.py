"""What a result says, in sentences: the same ones on the screen, in the report and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from colme.data.report.result import Result

NAMED = 5
"""Agents that a sentence names."""
VAGUE = 0.5
"""A standard error with which a gain may be nothing or everything."""
WEAK = 0.1
"""A correlation that nobody needs to care about."""


def headline(result: Result) -> str:
    """The result in a sentence or two."""
    summary = result.summary
    if summary.why == "local was asked for":
        return "Every agent keeps its own mean: local was asked for."
    if summary.method == "local":
        return f"Collaboration does not help here: every agent keeps its own mean. {said(summary.why)}"
    groups = said(summary.groups_sentence)
    if not summary.candidates:
        return f"Whether collaboration helps is not known: too few agents have two samples. {groups}"
    if summary.gain_se > VAGUE and summary.gain > 0:
        vague = "Collaboration seems to help, but how much cannot be told: the standard error of the gain is "
        return f"{vague}{percent(summary.gain_se)}. {groups}"
    sure = abs(summary.gain) > summary.gain_se
    verdict = ("helps" if summary.gain > 0 else "harms") if sure else "hardly matters"
    than = f"{_less(summary.gain)} error than the agents' own means (standard error {percent(summary.gain_se)})"
    return f"Collaboration {verdict}: {than}. {groups}"


def sentences(result: Result) -> dict[str, str]:
    """What was found, topic by topic; topics that have nothing to say are left out."""
    summary = result.summary
    found = {
        "Table": f"{_count(summary.n_samples, 'sample')} of {_count(summary.n_agents, 'agent')}{_counts(result)}.",
        "Method": said(summary.why if summary.method in summary.why else f"{summary.method}: {summary.why}"),
        "Gain": _gain(result),
        "Groups": said(summary.groups_sentence),
        "n_half": _n_half(result),
        "Autocorrelation": _autocorrelation(summary.autocorrelation, summary.effective_share),
        "Drift": _drift(summary.drift, summary.half_life),
        "Counts": _informative(summary.count_correlation, summary.n_agents),
        "Faulty-looking": _named(summary.faulty, summary.flagged.get("faulty", 0), "looks", "look", "faulty"),
        "Zero variance": _many(summary.zero_variance, "has samples that are all the same",
                               "have samples that are all the same"),
        "Dominant samples": _named(summary.dominant, summary.flagged.get("dominant sample", 0), "owes its mean",
                                   "owe their means", "to a single sample"),
    }  # fmt: skip
    return {topic: words for topic, words in found.items() if words}


def said(words: str) -> str:
    """As a sentence: a capital and a full stop."""
    words = words.strip().rstrip(".")
    return words[:1].upper() + words[1:] + "." if words else ""


def percent(share: float) -> str:
    if not math.isfinite(share):
        return "an unknown share"
    fine = abs(share) < 0.1 or 0.9 < abs(share) < 1.0
    return f"{100 * share:.1f} %" if fine else f"{100 * share:.0f} %"


def decimals(result: Result) -> int:
    """Digits after the point with which estimates are worth printing: two of a typical radius."""
    radius = (result.upper - result.lower) / 2
    radius = radius[np.isfinite(radius) & (radius > 0)]
    return int(np.clip(1 - math.floor(math.log10(np.median(radius))), 0, 9)) if len(radius) else 3


def most_changed(result: Result, n: int) -> list[int]:
    """The agents whose estimates differ most from their own means."""
    change = np.nan_to_num(np.abs(result.estimate - result.mean), nan=-1.0)
    return [int(a) for a in np.argsort(-change, kind="stable")[:n]]


def _counts(result: Result) -> str:
    low, middle, high = np.quantile(result.n, [0.0, 0.5, 1.0], method="nearest")
    if len(result.n) == 1:
        return ""
    return f", {low:,} each" if low == high else f", {low:,} to {high:,} each, half of them at most {middle:,}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + "s" * (n != 1)


def _gain(result: Result) -> str:
    summary = result.summary
    if summary.method == "local" or not summary.candidates:
        return ""
    folds = "predicting later samples from earlier ones" if summary.folds == "forward" else "in random folds"
    return (
        f"{_less(summary.gain)} error than local means, standard error {percent(summary.gain_se)}, cross-validated "
        f"within each agent's samples, {folds}."
    )


def _less(gain: float) -> str:
    """In cross-validation a gain may seem to be more than everything, by chance."""
    gain = min(gain, 1.0)
    return f"{percent(abs(gain))} {'less' if gain >= 0 else 'more'}"


def _n_half(result: Result) -> str:
    n_half = result.summary.n_half
    if math.isnan(n_half):
        return ""
    if not math.isfinite(n_half):
        return "Agents do not differ beyond noise: the others tell as much as any number of own samples."
    if n_half < 1.0:
        return f"Agents differ so much that one own sample tells more than the crowd does (n_half = {n_half:.2g})."
    below = float(np.mean(result.n < n_half))
    return (
        f"An agent's own mean is as good as what the others tell from {n_half:,.3g} samples on; "
        f"{percent(below)} of the agents have fewer."
    )


def _autocorrelation(value: float, worth: float) -> str:
    if not math.isfinite(value):
        return ""
    if abs(value) < WEAK:
        return f"Consecutive samples hardly resemble each other ({value:.2f})."
    alike = "resemble each other" if value > 0 else "alternate"
    return f"Consecutive samples {alike} ({value:.2f}): a sample is worth {worth:.2g} independent ones."


def _drift(share: float, half_life: float | None) -> str:
    if not math.isfinite(share):
        return ""
    if share < 0.01:
        return "Early and late samples of an agent agree up to chance."
    remedy = "" if half_life is not None else " A half-life would forget the past."
    return f"About {percent(share)} of the agents drift: early and late samples differ beyond chance.{remedy}"


def _informative(value: float, n_agents: int) -> str:
    if not math.isfinite(value) or abs(value) < max(WEAK, 2.0 / math.sqrt(n_agents)):
        return ""
    more = "larger" if value > 0 else "smaller"
    return f"Agents with more samples have {more} means (correlation {value:.2f}): the covariate 'log n' may help."


def _many(n: int, one: str, several: str) -> str:
    return "" if n == 0 else f"{n:,} agent {one}." if n == 1 else f"{n:,} agents {several}."


def _named(agents: Sequence[str], n: int, one: str, several: str, what: str) -> str:
    n = max(n, len(agents))
    named = agents[:NAMED]
    words = ", ".join(named) + (f" and {n - len(named):,} more" if n > len(named) else "")
    return _many(n, f"{one} {what}: {words}", f"{several} {what}: {words}")
