"""`headline` and `sentences`: a result in words, the same on the screen, on the page and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from colme.data.report.result import Result, Summary
from colme.support.tables import NAME_LENGTH, safe_name

NAMED = 5
"""Agents that a sentence lists by name."""
VAGUE = 0.5
"""A gain with a larger standard error is not quantified."""
CLEAR = 2.0
"""A gain of so many standard errors is stated without reserve."""
NOTHING = 0.0005
"""A gain below it, which would be printed as 0.0%, is no gain."""
WEAK = 0.1
"""Correlations below this are not worth mentioning."""
DOUBLE_DIGITS = 15
"""Significant digits that a double precision number always holds."""


def headline(result: Result) -> str:
    """The result in one or two sentences."""
    summary = result.summary
    if summary.method == "local" and (summary.why == "local was requested" or not summary.candidates):
        return f"Every agent keeps its own mean: {summary.why}."
    if summary.method == "local":
        return f"Collaboration does not help here: every agent keeps its own mean. {as_sentence(summary.why)}"
    groups = as_sentence(summary.groups_sentence)
    if not summary.candidates:
        return f"Whether collaboration helps is unknown: comparing methods takes more agents with two samples. {groups}"
    if summary.gain_se > VAGUE and summary.gain > 0:
        vague = "Collaboration seems to help, but the gain is too uncertain to quantify: its standard error is "
        return f"{vague}{percent(summary.gain_se)}. {groups}"
    if max(abs(summary.gain), summary.gain_se) < NOTHING:
        verdict = "does not help here"
    elif abs(summary.gain) > CLEAR * summary.gain_se:
        verdict = "helps" if summary.gain > 0 else "hurts"
    elif abs(summary.gain) > summary.gain_se:
        verdict = "seems to help" if summary.gain > 0 else "seems to hurt"
    else:
        verdict = "makes little difference" if summary.gain_se <= WEAK else "may help or not"
    than = f"{_less_error(summary.gain)} the agents' own means (standard error {percent(summary.gain_se)})"
    return f"Collaboration {verdict}: {than}. {groups}"


def sentences(result: Result) -> dict[str, str]:
    """What was found, topic by topic; topics with nothing to report are left out."""
    summary = result.summary
    stuck = summary.zero_variance
    found = {
        "Table": f"{count(summary.n_samples, 'sample')} from {count(summary.n_agents, 'agent')}{_counts(result)}.",
        "Method": as_sentence(summary.why if summary.method in summary.why else f"{summary.method}: {summary.why}"),
        "Gain": _gain(summary),
        "Groups": as_sentence(summary.groups_sentence),
        "n_half": _n_half(result),
        "Autocorrelation": _autocorrelation(summary),
        "Drift": _drift(summary),
        "Covariates": _covariates(result),
        "Counts": _counts_tell(summary),
        "Faulty-looking": _listed(summary.faulty, summary.flagged.get("faulty", 0), "1 agent looks faulty",
                          "{n} agents look faulty"),
        "Zero variance": f"{count(stuck, 'agent')} {'has' if stuck == 1 else 'have'} samples that are all equal."
                         if stuck else "",
        "Dominant samples": _listed(summary.dominant, summary.flagged.get("dominant sample", 0),
                                    "One sample dominates the mean of 1 agent",
                                    "One sample dominates the mean of each of {n} agents"),
    }  # fmt: skip
    return {topic: text for topic, text in found.items() if text}


def explanation(result: Result, place: int) -> str:
    """The estimate of one agent: what its own samples say, what the other agents say, and how both were weighted."""
    name, style, law = safe_name(result.agent[place]), number_format(result), _law(result)
    mean, lower, upper = (float(each[place]) for each in (result.mean, result.lower, result.upper))
    if math.isnan(mean):
        return f"{name} has no samples, so it has no estimate."
    counted = {"binomial": "trial", "Poisson": "event"}.get(law, "sample")
    own = f"{name} has {count(int(result.n[place]), counted)} with a mean of {mean:{style}}"
    error = result.posterior.standard_error(place)
    if error > 0.0 and math.isfinite(error):
        own += f" (standard error {error:{style}})"
    if not math.isfinite(upper) or (error == 0.0 and result.borrowed[place] == 0.0):
        return f"{own}. It keeps this mean: {result.summary.why}."
    found = [own + ".", _others(result, place, law, style)]
    group = int(result.group[place])
    if group >= 0:
        sure = "" if result.group_names else f", with probability {_probability(float(result.probability[place]))}"
        found.append(f"It belongs to group {group_name(result, group)}{sure}.")
    found.append(f"The estimate is {result.estimate[place]:{style}}, and the {100 * result.summary.level:.3g}% "
                 f"interval goes from {lower:{style}} to {upper:{style}}.")  # fmt: skip
    return " ".join(found)


def _others(result: Result, place: int, law: str, style: str) -> str:
    """What the other agents say, and the weights of both."""
    mean, estimate, borrowed = (float(each[place]) for each in (result.mean, result.estimate, result.borrowed))
    kept = 1.0 - borrowed
    if kept >= 1.0 - NOTHING and f"{mean:{style}}" == f"{estimate:{style}}":
        why = result.summary.why if result.summary.method == "local" else "other agents have hardly any weight"
        return f"It keeps its own mean: {why}."
    if kept >= 1.0 - NOTHING:  # in a mixture of rates, an agent between two of them
        return f"Other agents move it from {mean:{style}} to {estimate:{style}}."
    said = (estimate - kept * mean) / (1.0 - kept)
    if kept <= NOTHING:
        return f"Its own samples hardly count beside the other agents, which suggest {said:{style}} for it."
    weights = f"its own samples count for {percent(kept)} and other agents for {percent(1.0 - kept)}"
    if law and result.summary.method == "census":  # the weight is only that of a small change
        return f"Other agents move it to {estimate:{style}}: {weights}."
    return f"Other agents suggest {said:{style}} for it: {weights}."


def _law(result: Result) -> str:
    """The law of rates or counts; they are bounded."""
    if math.isinf(result.posterior.low):
        return ""
    return "Poisson" if math.isinf(result.posterior.high) else "binomial"


def _probability(value: float) -> str:
    """Not 0 or 1 unless it is that."""
    return "above .999" if 0.999 < value < 1.0 else "below .001" if 0.0 < value < 0.001 else f"{value:.3g}"


def as_sentence(text: str) -> str:
    """The text with a capital letter at the beginning and a full stop at the end."""
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + "." if text else ""


def percent(share: float) -> str:
    if not math.isfinite(share):
        return "an unknown share"
    fine = abs(share) < 0.1 or 0.9 < abs(share) < 1.0
    return f"{100 * share:.1f}%" if fine else f"{100 * share:.0f}%"


def number_format(result: Result) -> str:
    """The format of means and estimates: two significant digits of the median of the finite radii above zero; very
    large and very small numbers have an exponent and the digits that show these in the largest number."""
    radii = (result.upper - result.lower) / 2
    radii = radii[np.isfinite(radii) & (radii > 0)]
    place = math.floor(math.log10(np.median(radii))) if len(radii) else None
    finite = np.abs(np.concatenate([result.mean, result.estimate]))
    largest = float(finite.max(initial=0.0, where=np.isfinite(finite)))
    exponent = math.floor(math.log10(largest)) if largest > 0 else 0
    if -6 <= exponent < 12:
        decimals = 3 if place is None else min(max(1 - place, 0), 9)
        return f",.{min(decimals, DOUBLE_DIGITS - 1 - max(exponent, 0))}f"
    digits = 5 if place is None else exponent - place + 2
    return f".{min(max(digits, 3), DOUBLE_DIGITS) - 1}e"


def most_changed(result: Result, n: int) -> list[int]:
    """The agents whose estimates differ most from their own means."""
    change = np.nan_to_num(np.abs(result.estimate - result.mean), nan=-1.0)
    return [int(a) for a in np.argsort(-change, kind="stable")[:n]]


def any_changed(result: Result) -> bool:
    """Whether an estimate differs from the agent's own mean."""
    return bool(np.nan_to_num(result.estimate - result.mean).any())


def group_name(result: Result, group: int, length: int = NAME_LENGTH) -> str:
    """The name of a known group, or the number of one that was found."""
    return safe_name(result.group_names[group], length) if result.group_names else str(group)


def _counts(result: Result) -> str:
    if len(result.n) == 1:
        return ""
    low, high = result.n.min(), result.n.max()
    middle = f"{np.median(result.n):,.1f}".removesuffix(".0")
    return f", {low:,} each" if low == high else f", {low:,} to {high:,} each (median {middle})"


def count(n: int, what: str) -> str:
    """A number of things in words."""
    return f"{n:,} {what}" + "s" * (n != 1)


def _gain(summary: Summary) -> str:
    if summary.method == "local" or not summary.candidates:
        return ""
    folds = "predicting later samples from earlier ones" if summary.folds == "forward" else "in random folds"
    return as_sentence(
        f"{_less_error(summary.gain)} the local means (standard error {percent(summary.gain_se)}), by cross-validation "
        f"within each agent's samples, {folds}"
    )


def _less_error(gain: float) -> str:
    """How the error compares, up to "than" or "as"."""
    if abs(gain) < NOTHING:
        return "the same error as"
    gain = min(gain, 1.0)  # no error is less than none
    return f"{percent(abs(gain))} {'less' if gain >= 0 else 'more'} error than"


def _n_half(result: Result) -> str:
    n_half = result.summary.n_half
    if math.isnan(n_half):
        return ""
    if not math.isfinite(n_half):
        return "As far as these samples show, agents do not differ beyond noise: the common mean predicts each of them."
    if n_half < 1.0:
        return (
            "Agents differ so much that one sample of its own says more about an agent than the overall mean does "
            f"(n_half = {n_half:.2g})."
        )
    about = round(n_half, 1 if n_half < 9.95 else None)
    below = float(np.mean(result.n < about))
    shown = f"{about:,.1f}".removesuffix(".0")
    fewer = f"{percent(below)} of the agents have" if below > 0 else "no agent has"
    return (
        f"From about {shown} {'sample' if about == 1 else 'samples'} on, an agent's own mean is as accurate as what "
        f"the population predicts for it; {fewer} fewer."
    )


def _autocorrelation(summary: Summary) -> str:
    value = summary.autocorrelation
    if not math.isfinite(value):
        return ""
    if abs(value) < WEAK:
        return f"Consecutive samples are hardly correlated ({value:.2f})."
    how = "correlated" if value > 0 else "negatively correlated"
    worth = f"{summary.effective_share:.2g}"
    return f"Consecutive samples are {how} ({value:.2f}): one sample is worth {worth} independent ones."


def _drift(summary: Summary) -> str:
    if not math.isfinite(summary.drift):
        return ""
    if summary.drift < 0.01:
        return "Early and late samples of the agents agree within chance."
    remedy = "" if summary.half_life is not None else " A half-life would give recent samples more weight."
    return f"About {percent(summary.drift)} of the agents drift: early and late samples differ beyond chance.{remedy}"


def _covariates(result: Result) -> str:
    """Which of the given covariates are used."""
    used = [safe_name(name) for name in result.summary.covariates]
    others = [safe_name(name) for name in result.names.covariates if name not in result.summary.covariates]
    if result.summary.method == "local" or not (used or others):
        return ""
    does, are = ("does", "is") if len(others) == 1 else ("do", "are")
    unused = f"{enumerated(others)} {does} not tell the mean beyond chance" if others else ""
    if not used:
        return f"{unused}, and {are} not used."
    return "; ".join(filter(None, (f"What is expected of an agent depends on {enumerated(used)}", unused))) + "."


def enumerated(names: Sequence[str]) -> str:
    """The first few names, with "and" before the last."""
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _counts_tell(summary: Summary) -> str:
    found, value = [], summary.count_correlation
    if math.isfinite(value) and abs(value) >= max(WEAK, 2.0 / math.sqrt(summary.n_agents)):
        more = "larger" if value > 0 else "smaller"
        used = ", so what is expected of an agent depends on log n" if summary.log_n else ""
        found.append(f"Agents with more samples have {more} means (correlation {value:.2f}){used}.")
    if summary.method == "close":
        found.append(f"How much agents differ depends on log n{', too' if found else ''}.")
    return " ".join(found)


def _listed(agents: Sequence[str], n: int, one: str, several: str) -> str:
    """A sentence that lists the first few of n agents; empty if there are none."""
    n = max(n, len(agents))
    if n == 0:
        return ""
    named = [safe_name(each) for each in agents[:NAMED]]
    names = ", ".join(named) + (f" and {n - len(named):,} more" if n > len(named) else "")
    return f"{one if n == 1 else several.format(n=f'{n:,}')}: {names}."
