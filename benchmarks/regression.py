"""Has a ratio dropped? What is measured now is compared with what was accepted, ratios only, never seconds.

Noise comes and goes, a slower kernel stays: what seems to have dropped is measured again before it counts.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import machine
from benchmarks.goals import GOALS
from benchmarks.measuring import Measured
from benchmarks.results import BASELINE, Baseline, checked_ratios, read_results, write
from benchmarks.table import Part, part_with

TOLERANCE = 0.25
TRIES = 2
"""Times that a part is measured again if one of its ratios seems to have dropped."""


def worth(key: str, now: float, then: float) -> float:
    """How good it is now, relative to then: more is better."""
    return then / now if GOALS[key].less_is_better else now / then


def dropped(ratios: dict[str, float], baseline: Baseline) -> list[str]:
    """Rows that lost more than a quarter."""
    return [
        key
        for key, then in baseline.ratios.items()
        if key in ratios and worth(key, ratios[key], then) < 1.0 - TOLERANCE
    ]


def sentence(key: str, now: float, then: float) -> str:
    """One clear sentence for a row."""
    goal, change = GOALS[key], worth(key, now, then) - 1.0
    verb = "dropped" if change < -TOLERANCE else "is better" if change > TOLERANCE else "holds"
    return f"{goal.what}: {verb}, {goal.words(now)} now, {goal.words(then)} in the baseline ({change:+.0%})."


def compare(
    table: dict[str, Measured], baseline: Baseline, again: Callable[[Part], dict[str, Measured]]
) -> tuple[list[str], list[str]]:
    """(sentences on what dropped, on all the rest). `again` measures a part once more."""
    ratios = checked_ratios(table)
    for _ in range(TRIES):
        for part in dict.fromkeys(part_with(key) for key in dropped(ratios, baseline)):
            for key, now in checked_ratios(again(part)).items():
                ratios[key] = now if worth(key, now, ratios.get(key, now)) >= 1.0 else ratios[key]
    lost = dropped(ratios, baseline)
    said = {key: sentence(key, ratios[key], then) for key, then in baseline.ratios.items() if key in ratios}
    rest = [words for key, words in said.items() if key not in lost]
    rest += [f"{GOALS[key].what}: not measured here." for key in baseline.ratios if key not in ratios]
    return [said[key] for key in lost], rest


def same_processor(baseline: Baseline) -> bool:
    """Ratios of different processors differ, and say nothing of each other."""
    return baseline.machine.get("processor") == machine.processor()


def accept() -> str:
    """Take the ratios of the last whole run as those to compare with."""
    results = read_results()
    write(BASELINE, Baseline(results.machine, checked_ratios(results.table)))
    words = f"benchmarks/{BASELINE.name} now holds the ratios of the last run, on {results.machine['processor']}."
    return words if results.quiet else f"{words} But the machine was busy then: better measure again, and accept that."


def verdict(lost: list[str], baseline: Baseline) -> tuple[str, int]:
    """The last words, and the exit code."""
    where = baseline.machine.get("processor", "an unknown processor")
    remedy = "If that is meant, accept it: python -m benchmarks, then python -m benchmarks --accept."
    if not lost:
        return f"No ratio dropped by more than {TOLERANCE:.0%} (baseline: {where}).", 0
    count = "One ratio" if len(lost) == 1 else f"{len(lost)} ratios"
    words = f"{count} dropped by more than {TOLERANCE:.0%}. The baseline is from {where}. {remedy}"
    if same_processor(baseline):
        return words, 1
    return f"{words} This is a warning only, for here is another processor: {machine.processor()}.", 0
