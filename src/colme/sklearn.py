"""`MeanEncoder`: keys of high cardinality become the estimated mean of the target, in scikit-learn's pipelines.

A key (user, store, sensor, postal code) is an agent, and its rows are the agent's samples of the target. The estimates
are those of `colme.estimate`: the estimator is chosen by cross-validation, shrinks keys with few rows, finds groups of
keys, and has the likelihood of rates where the target has two values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from colme.data.estimate import estimate_moments
from colme.data.moments import RunningMoments
from colme.data.read.arrow_columns import JOINT
from colme.data.read.table import Names
from colme.data.report.result import Result
from colme.errors import DataError, missing_extra, shorten
from colme.support.arrays import Array, Floats, Integers
from colme.support.columns import is_missing

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.model_selection import KFold, StratifiedKFold, check_cv
    from sklearn.preprocessing import OrdinalEncoder
    from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d
except ImportError:
    raise missing_extra("scikit-learn", "sklearn", "an encoder for scikit-learn") from None

UNSEEN = -1
"""The code of a key that training did not see."""
_CONFIRMED = 0.1
"""Cross-fitted estimates must have this part of the variance of those of all rows. A predictor that learns a slope from
nearly constant numbers, with the error sigma / (sqrt(n) deviation), would do harm with others: at most 10 sigma^2 / n
on average."""
_SAME = 1e-9
"""Estimates that differ from the prior mean by less, in ranges of the target, differ by rounding."""
_SHOWN = 4
"""The columns of an encoding that may be shown: estimate, lower, upper, group."""
_SEED = 0
"""Of the folds in which estimators are compared, within the rows that they are given."""


class MeanEncoder(TransformerMixin, BaseEstimator):
    """Replace each key by the estimated mean of the target over its rows, as `colme.estimate` finds it.

    method        "auto" or one of "local", "pooled", "shrinkage", "close", "census", "partition",
                  "one-hop", "cl-colme"
    joint         whether all columns together are the key; else each column is encoded by itself
    interval      whether the ends of an interval follow each estimate
    group         whether the group of the key follows: 0, 1, .. from the smallest mean on; -1: none
    level         the probability with which an interval should contain the true mean
    sigma         the standard deviation of the target within a key, if known
    cv            the number of folds of `fit_transform`, or a splitter of scikit-learn
    random_state  decides these folds, if `cv` is a number

    `fit(X, y).transform(X)` shows each row what its own target helped to estimate. `fit_transform(X, y)`, which
    pipelines call in training, does not: rows are put into folds, and each is encoded by the rows of the other folds.

    Keys that training did not see have the prior mean: the mean of all keys' estimates. Missing keys (None, NaN) are
    one key of their own. The target is a number, or one of two values of any kind: the encoding is then the rate of the
    larger one, between the two values if they are numbers, or between 0 and 1.

    Learned: `results_`, a `colme.data.report.result.Result` for each key column, `prior_mean_`, `categories_`, and for
    targets that are no numbers `classes_`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> store = rng.integers(50, size=(400, 1))
    >>> sales = 10.0 + 5.0 * (store[:, 0] % 2) + 2.0 * rng.standard_normal(400)
    >>> encoder = MeanEncoder().fit(store, sales)
    >>> encoder.transform([[0], [1], [77]]).round(1).tolist()
    [[9.8], [14.9], [12.4]]

    See also: estimate, Result
    """

    def __init__(
        self,
        *,
        method: str = "auto",
        joint: bool = False,
        interval: bool = False,
        group: bool = False,
        level: float = 0.9,
        sigma: float | None = None,
        cv: Any = 5,
        random_state: Any = 0,
    ):
        self.method = method
        self.joint = joint
        self.interval = interval
        self.group = group
        self.level = level
        self.sigma = sigma
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeanEncoder:
        """Learn the mean of the target for each key.

        sample_weight  a row of weight w counts as w rows in a mean, and its target has the variance sigma^2 / w"""
        self._learn(X, y, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None) -> Floats:
        """Learn from all rows, and encode each row by what the rows of other folds show.

        The method is chosen once, by all rows. Where the folds do not confirm that keys differ, all rows have the prior
        mean."""
        codes, target, weight = self._learn(X, y, sample_weight)
        folds, columns = self._folds(target), []
        for code, result, full in zip(codes, self.results_, self._encodings, strict=True):
            column, elsewhere = np.empty((len(target), _SHOWN)), np.empty(len(target), bool)
            for train, test in folds:
                part = self._estimated(code, target, weight, result.agent, train, like=result)
                column[test] = _Encoding.of(part, target, interval=self.interval).aligned(full).rows(code[test])
                elsewhere[test] = part.n[code[test]] > 0
            if not (elsewhere.any() and _confirmed(column[elsewhere, 0], full.estimate[code[elsewhere]])):
                column = full.rows(np.full(len(target), UNSEEN))
            column[:, :3] = column[:, :3].clip(target.min(), target.max())
            columns.append(column)
        return self._shown(columns)

    def transform(self, X: Any) -> Floats:
        """Encode rows by all that `fit` has learned. Rows of the training data are shown their own target, too."""
        check_is_fitted(self)
        pairs = zip(self._encodings, self._keys.codes(X), strict=True)
        return self._shown([each.rows(code) for each, code in pairs])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns: those of the keys, followed by _lower, _upper and _group if these are asked for."""
        check_is_fitted(self)
        names = self._keys.ordinal.get_feature_names_out(input_features)
        if self.joint:
            names = ["_".join(map(str, names))]
        return np.array([f"{name}{end}" for name in names for end in self._ends()], object)

    def _ends(self) -> dict[str, int]:
        """Ends of the names of the columns that were asked for, and their places in an encoding."""
        ends = {"_lower": 1, "_upper": 2} if self.interval else {}
        return {"": 0} | ends | ({"_group": 3} if self.group else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> tuple[list[Integers], Floats, Floats | None]:
        """Learn from all rows. Returns the codes of the keys, the target on the scale of estimation, and weights."""
        self._keys = _Keys(joint=self.joint)
        codes = self._keys.learn(X)
        ordinal = self._keys.ordinal
        self.n_features_in_, self.categories_ = ordinal.n_features_in_, ordinal.categories_
        if hasattr(ordinal, "feature_names_in_"):
            self.feature_names_in_ = ordinal.feature_names_in_
        target = self._scaled(y)
        check_consistent_length(X, target)
        weight: Floats | None = None
        if sample_weight is not None:
            weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
            check_consistent_length(weight, target)
            if weight.ndim != 1 or (weight < 0.0).any() or not weight.any():
                raise DataError("sample_weight must be one number for each row, none negative and not all zero. Leave "
                                "it out for equal weights.")  # fmt: skip
        pairs = zip(codes, self._keys.labels(), strict=True)
        self.results_ = [self._estimated(code, target, weight, label) for code, label in pairs]
        self._encodings = [_Encoding.of(result, target, interval=self.interval) for result in self.results_]
        self.prior_mean_ = self._origin + self._unit * np.array([each.estimate[UNSEEN] for each in self._encodings])
        return codes, target, weight

    def _scaled(self, y: Any) -> Floats:
        """The target as numbers; two values become 0 and 1."""
        if y is None:
            raise DataError("MeanEncoder requires y to be passed, but the target y is None. Try fit(X, y).")
        y = column_or_1d(y, warn=True)
        self._origin, self._unit = 0.0, 1.0
        self.__dict__.pop("classes_", None)
        if y.dtype.kind in "US" or (y.dtype.kind == "O" and any(isinstance(each, str) for each in y)):
            if any(map(is_missing, y)):
                raise DataError("the target has missing values: it must be known for every row. Leave these rows out.")
            self.classes_, codes = np.unique(y, return_inverse=True)
            if len(self.classes_) != 2:
                first, *_, last = map(shorten, self.classes_.tolist() * 2)
                raise DataError(f"a target of {len(self.classes_)} values that are no numbers, such as {first}: there "
                                f"must be two. Encode one value at a time: y == {last}.")  # fmt: skip
            return codes.astype(np.float64)
        numbers: Floats = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        low, high = float(numbers.min()), float(numbers.max())
        if low < high < np.inf and ((numbers == low) | (numbers == high)).all():
            self._origin, self._unit = low, high - low
            return (numbers == high).astype(np.float64)
        return numbers

    def _estimated(
        self, code: Integers, target: Floats, weight: Floats | None, labels: Array, rows: Any = slice(None),
        like: Result | None = None,
    ) -> Result:  # fmt: skip
        """The estimates of all keys from some rows, by the method of another result."""
        code, target = code[rows], target[rows]
        if weight is not None:
            some = weight[rows] > 0.0
            code, target, weight = code[some], target[some], weight[rows][some]
        moments = RunningMoments(_SEED)
        moments.add(code, target, weight, len(labels))
        return estimate_moments(
            moments.moments(labels, Names("key", "target")), level=self.level,
            method=self.method if like is None else like.summary.method,
            log_n=like is not None and like.summary.log_n,
            sigma=None if self.sigma is None else self.sigma / self._unit,
            groups=None if self.interval or self.group else 1,
        )  # fmt: skip

    def _folds(self, target: Floats) -> list[tuple[Integers, Integers]]:
        """The rows to learn from and the rows to encode, for each fold."""
        n, cv = len(target), self.cv
        if isinstance(cv, int | np.integer) and cv > 1:
            rate = float(target.mean())
            even = ((target == 0.0) | (target == 1.0)).all() and n * min(rate, 1.0 - rate) >= cv
            cv = (StratifiedKFold if even else KFold)(int(cv), shuffle=True, random_state=self.random_state)
        folds = list(check_cv(cv).split(np.zeros((n, 1)), target))
        times = np.bincount(np.concatenate([np.arange(n)[test] for _, test in folds]), minlength=n)
        if (times != 1).any():
            row = int(np.argmax(times != 1))
            raise DataError(f"cv={shorten(self.cv)} puts row {row} into {times[row]} folds: each row must be in one. "
                            "Try cv=5, or KFold.")  # fmt: skip
        return folds

    def _shown(self, columns: list[Floats]) -> Floats:
        """The columns that were asked for, in the unit of the target, from those of each key."""
        out = np.stack(columns, axis=1)
        out[:, :, :3] = self._origin + self._unit * out[:, :, :3]
        return np.ascontiguousarray(out[:, :, list(self._ends().values())].reshape(len(out), -1))


class _Encoding(NamedTuple):
    """What each key becomes; the last row is for keys that were not seen."""

    estimate: Floats
    lower: Floats
    upper: Floats
    group: Floats
    borrowed: Floats
    """The weight of other keys in the estimate."""

    @classmethod
    def of(cls, result: Result, target: Floats, *, interval: bool) -> _Encoding:
        """From the estimates of all keys, within the range of the target.

        interval  whether a key that was not seen has an interval of its own, and not that range"""
        low, high = float(target.min()), float(target.max())
        seen = result.n > 0
        # The mean of a prior that fits best is the mean of all posterior means (a fixed point of expectation and
        # maximization), whatever its form
        prior = float(result.estimate[seen].mean())
        first, last = low, high
        if interval and result.population is not None:
            found = result.predict()
            first, last = found.lower, found.upper
        seen = np.append(seen, False)
        ends = (np.append(result.estimate, prior), np.append(result.lower, min(first, prior)),
                np.append(result.upper, max(last, prior)))  # fmt: skip
        estimate, lower, upper = (np.clip(np.where(seen, each, each[UNSEEN]), low, high) for each in ends)
        estimate = np.where(np.abs(estimate - prior) > _SAME * (high - low), estimate, prior)
        group = np.append(result.group, -1)
        number = np.full(len(group), -1.0)
        places = {each: estimate[group == each].mean() for each in np.unique(group[group >= 0])}
        for k, each in enumerate(sorted(places, key=places.__getitem__)):
            number[group == each] = k
        return cls(estimate, lower, upper, number, np.where(seen, np.append(result.borrowed, 1.0), 1.0))

    def aligned(self, full: _Encoding) -> _Encoding:
        """A fold's encoding, to stand beside those of other folds.

        As far as an estimate rests on the prior mean, it is moved to the prior mean of all rows: else it would tell the
        fold of a row, and that the mean of the target there. Groups get the numbers of the nearest ones of all rows."""
        shift = self.borrowed * (full.estimate[UNSEEN] - self.estimate[UNSEEN])
        estimate = np.where(self.estimate == self.estimate[UNSEEN], full.estimate[UNSEEN], self.estimate + shift)
        ours, theirs = self._places(), full._places()
        number = np.full(len(ours) + 1, -1.0)  # the last one is that of keys without a group
        if len(theirs):
            number[:-1] = np.abs(ours[:, None] - theirs).argmin(axis=1)
        group = number[self.group.astype(np.int64)]
        return _Encoding(estimate, self.lower + shift, self.upper + shift, group, self.borrowed)

    def _places(self) -> Floats:
        """The mean of each group's estimates."""
        n = int(self.group.max()) + 1
        return np.array([self.estimate[self.group == k].mean() for k in range(n)])

    def rows(self, codes: Integers) -> Floats:
        """(rows, shown): the rows of keys with these codes."""
        return np.stack([part[codes] for part in self[:_SHOWN]], axis=1)


class _Keys:
    """Codes 0, 1, .. of the keys: one array of codes for each column or, if they are joint, for all."""

    def __init__(self, *, joint: bool):
        self.joint = joint
        self.ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=UNSEEN)
        self._missing: list[int] = []
        """The code of missing keys in each column; UNSEEN if there were none."""
        self._pairs: list[Integers] = []
        """Joint keys: the pairs of codes that were seen, column after column."""

    def learn(self, X: Any) -> list[Integers]:
        """The codes of the training rows."""
        self.ordinal.fit(X)
        for categories in self.ordinal.categories_:
            n = sum(map(is_missing, categories[-2:].tolist()))  # they are the last ones
            self._missing.append(len(categories) - n if n else UNSEEN)
        return self.codes(X, learn=True)

    def codes(self, X: Any, *, learn: bool = False) -> list[Integers]:
        """The codes of any rows; UNSEEN for keys that training did not see."""
        columns = [self._column(X, j, code) for j, code in enumerate(self.ordinal.transform(X).T)]
        if not self.joint:
            return columns
        codes = columns[0]
        for j, more in enumerate(columns[1:]):
            pair = np.where((codes < 0) | (more < 0), UNSEEN, codes * len(self.ordinal.categories_[j + 1]) + more)
            if learn:
                self._pairs.append(np.unique(pair))
            known = self._pairs[j]
            place = np.searchsorted(known, pair).clip(max=len(known) - 1)
            codes = np.where((pair >= 0) & (known[place] == pair), place, UNSEEN)
        return [codes]

    def _column(self, X: Any, j: int, found: Floats) -> Integers:
        """The codes of a column; None, NaN and NaT are one key."""
        missing = self._missing[j]
        if missing == UNSEEN:
            return found.astype(np.int64)
        codes = np.where(np.isnan(found) | (found >= missing), missing, found).astype(np.int64)
        strange = np.flatnonzero(codes == UNSEEN)
        if len(strange):
            cells = np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else np.asarray(X, object)[:, j], object)[strange]
            codes[strange[[is_missing(cell) for cell in cells]]] = missing
        return codes

    def labels(self) -> list[Array]:
        """The label of each code."""
        columns = self.ordinal.categories_
        if not self.joint:
            known = zip(columns, self._missing, strict=True)
            return [each if missing == UNSEEN else each[: missing + 1] for each, missing in known]
        first, *others = (column.tolist() for column in columns)
        for column, seen in zip(others, self._pairs, strict=True):
            pairs = (divmod(pair, len(column)) for pair in seen.tolist())
            first = [f"{first[before]}{JOINT}{column[last]}" for before, last in pairs]
        return [np.array(list(map(str, first)), object)]


def _confirmed(cross_fitted: Floats, full: Floats) -> bool:
    """Whether cross-fitted estimates vary enough beside those of all rows."""
    size = float(np.ptp(full))
    return size == 0.0 or bool(np.var(cross_fitted / size) >= _CONFIRMED * np.var(full / size))
