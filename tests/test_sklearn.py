"""`colme.sklearn.MeanEncoder`: scikit-learn's own checks, what it estimates, and what training rows may see."""

import copy
import pickle
from statistics import NormalDist

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import colme
from colme.sklearn import MeanEncoder

CROSS_FITTED = "fit_transform is cross-fitted: it must not show rows their own target, as transform does"


def expected_failures(encoder):
    """With keys of few rows, fit_transform and transform differ; those of the checks are few for joint keys only."""
    differ = ("check_transformer_general", "check_transformer_data_not_an_array")
    return dict.fromkeys(differ, CROSS_FITTED) if encoder.joint else {}


@parametrize_with_checks(
    [MeanEncoder(), MeanEncoder(joint=True, interval=True, group=True)],
    expected_failed_checks=expected_failures, xfail_strict=True,
)  # fmt: skip
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def rows_of(means, n, seed=0, sigma=1.0):
    """(keys as a column, targets, true means of the rows)."""
    rng = np.random.default_rng(seed)
    key = rng.integers(len(means), size=n)
    return key[:, None], means[key] + sigma * rng.standard_normal(n), means[key]


def two_groups(n_keys):
    return np.where(np.arange(n_keys) % 2, 1.0, -1.0)


# what it estimates


@pytest.mark.parametrize("two_values", [False, True])
def test_encodings_are_the_estimates_of_colme(two_values):
    X, y, _ = rows_of(two_groups(60), 600)
    order = np.argsort(X[:, 0])  # the random folds of `estimate` depend on the order in which keys appear
    X, y = X[order], y[order]
    if two_values:
        y = (y > 0.0).astype(float)
    result = colme.estimate({"key": X[:, 0], "y": y}, agent="key", value="y")
    encoder = MeanEncoder(interval=True, group=True).fit(X, y)
    found = encoder.transform(result.agent[:, None])
    assert_array_equal(found[:, 0], result.estimate)
    assert_array_equal(found[:, 1:3], np.stack([result.lower, result.upper], axis=1).clip(y.min(), y.max()))
    assert_array_equal(found[:, 3], result.group)
    assert encoder.results_[0].summary.why == result.summary.why


@pytest.mark.parametrize("method", ["auto", "local", "pooled", "shrinkage", "census"])
def test_unseen_keys_have_the_prior_mean(method):
    X, y, _ = rows_of(np.random.default_rng(1).normal(5.0, 1.0, 80), 500)
    encoder = MeanEncoder(method=method, interval=True).fit(X, y)
    estimate, lower, upper = encoder.transform([[-7]])[0]
    assert estimate == pytest.approx(encoder.transform(np.unique(X)[:, None])[:, 0].mean())
    assert lower <= estimate <= upper and encoder.prior_mean_[0] == estimate
    # the prior mean of 80 keys is known to sqrt((1 + 1 / 6) / 80) = 0.12
    assert abs(estimate - 5.0) < 4 * 0.12


def test_the_interval_of_an_unseen_key_holds_as_often_as_it_says():
    held = []
    for seed in range(8):
        X, y, _ = rows_of(np.random.default_rng(seed).standard_normal(60), 900, seed)
        _, lower, upper = MeanEncoder(interval=True).fit(X, y).transform([[-1]])[0]
        held += [NormalDist().cdf(upper) - NormalDist().cdf(lower)]
    # the deviation between keys is known to a part of 1 / sqrt(2 * 60), which moves the coverage of 0.9 by 0.03
    assert abs(np.mean(held) - 0.9) < 4 * 0.03 / np.sqrt(8)


@pytest.mark.parametrize("seed", range(3))
def test_better_than_the_target_encoder_where_there_are_groups(seed):
    X, y, truth = rows_of(two_groups(300), 3000, seed, sigma=2.0)
    errors = {}
    for encoder in (MeanEncoder(), TargetEncoder()):
        trained = encoder.fit_transform(X, y)[:, 0]
        applied = encoder.transform(np.arange(300)[:, None])[:, 0]
        errors[type(encoder)] = np.mean((trained - truth) ** 2), np.mean((applied - two_groups(300)) ** 2)
    assert (np.array(errors[MeanEncoder]) < 0.8 * np.array(errors[TargetEncoder])).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_as_good_as_the_target_encoder_on_a_continuum(seed, spread):
    means = spread * np.random.default_rng(100 + seed).standard_normal(300)
    X, y, truth = rows_of(means, 3000, seed, sigma=2.0)
    ours, theirs = (np.mean((each.fit_transform(X, y)[:, 0] - truth) ** 2) for each in (MeanEncoder(), TargetEncoder()))
    assert ours < 1.02 * theirs  # the folds differ


# what training rows may see


def noise(seed, n=1200, n_keys=400):
    rng = np.random.default_rng(seed)
    return rng.integers(n_keys, size=(n, 1)), rng.standard_normal(n)


def gain_on_noise(encoder, seed):
    """(mean, its standard error) of what the encoded key gains over the mean of y, in squared error on held-out rows;
    and what one slope that is learned from n rows loses on average, sigma^2 / n."""
    X, y = noise(seed)
    cv = KFold(5)
    predicted, constant = cross_val_predict(make_pipeline(encoder, LinearRegression()), X, y, cv=cv), np.empty(len(y))
    for train, test in cv.split(X):
        constant[test] = y[train].mean()
    gain = (y - constant) ** 2 - (y - predicted) ** 2
    return gain.mean(), gain.std() / np.sqrt(len(y)), 1.0 / (0.8 * len(y))


class ShownItsOwnTarget(MeanEncoder):
    def fit_transform(self, X, y):
        return self.fit(X, y).transform(X)


@pytest.mark.parametrize("seed", range(2))
def test_a_target_of_pure_noise_brings_neither_gain_nor_harm(seed):
    gain, error, slope = gain_on_noise(MeanEncoder(), seed)
    # see colme.sklearn._CONFIRMED: a slope on numbers that vary less than those it is applied to loses 1 / 0.1 as much
    assert -4 * error - slope / 0.1 <= gain <= 4 * error
    gain, error, slope = gain_on_noise(ShownItsOwnTarget(method="local"), seed)
    assert gain < -4 * error - slope / 0.1  # the harm that cross-fitting avoids would be seen


def test_a_row_moves_its_own_encoding_no_more_than_the_prior_mean_of_all():
    X, y, _ = rows_of(np.random.default_rng(0).standard_normal(50), 300)
    encoder = MeanEncoder(method="shrinkage", cv=KFold(5))
    before = encoder.fit_transform(X, y)[:, 0]
    prior = encoder.prior_mean_[0]
    changed = y.copy()
    changed[17] += 3.0
    after = encoder.fit_transform(X, changed)[:, 0]
    moved = np.abs(after - before)
    assert moved[17] <= abs(encoder.prior_mean_[0] - prior) * (1 + 1e-9)
    others = np.flatnonzero((X[:, 0] == X[17, 0]) & (np.arange(300) // 60 != 17 // 60))
    assert moved[others].min() > 10 * moved[17]


def test_where_folds_show_no_difference_all_rows_have_the_same_number():
    X = np.arange(100)[:, None]  # every key once
    encoder = MeanEncoder(interval=True)
    found = encoder.fit_transform(X, np.random.default_rng(0).standard_normal(100))
    assert np.isfinite(found).all() and (np.ptp(found, axis=0) == 0.0).all()
    assert found[0, 0] == encoder.prior_mean_[0]


# targets


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (False, True), ("no", "yes"), (10.0, 30.0), (-1, 1)], ids=lambda each: repr(each)
)
def test_two_values_are_rates_between_them(low, high):
    X, y, _ = rows_of(two_groups(40), 800)
    rate = MeanEncoder(interval=True).fit_transform(X, (y > 0.0).astype(float))
    encoder = MeanEncoder(interval=True)
    found = encoder.fit_transform(X, np.where(y > 0.0, high, low))
    origin, unit = (float(low), float(high) - float(low)) if not isinstance(low, str) else (0.0, 1.0)
    assert_allclose(found, origin + unit * rate, rtol=1e-12)
    assert rate.min() >= 0.0 and rate.max() <= 1.0
    assert hasattr(encoder, "classes_") == isinstance(low, str)


def test_whole_numbers_are_a_target_of_numbers():
    rng = np.random.default_rng(0)
    X = rng.integers(20, size=(400, 1))
    y = rng.poisson(3.0, 400)
    assert_array_equal(MeanEncoder().fit_transform(X, y), MeanEncoder().fit_transform(X, y.astype(float)))


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        ([[1], [2], [3]], ["a", "b", "c"], "a target of 3 values that are no numbers, such as"),
        ([[1], [2], [3]], ["a", None, "b"], "the target has missing values: it must be known for every row"),
        ([[1], [2], [3]], None, "requires y to be passed, but the target y is None"),
        ([[1], [2], [3]], [1.0, np.nan, 2.0], "contains NaN"),
        ([[1], [2], [3]], [1.0, np.inf, 2.0], "infinity"),
        ([[1], [2], [3]], [1.0, 2.0], "inconsistent numbers of samples"),
        ([1, 2, 3], [1.0, 2.0, 3.0], "Expected 2D array"),
    ],
)
def test_targets_and_keys_that_cannot_be_used_are_refused(X, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        MeanEncoder().fit(X, y)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "nonsense"}, "nonsense"),
        ({"level": 1.5}, "level"),
        ({"sigma": -1.0}, "sigma"),
        ({"cv": ShuffleSplit(3, random_state=0)}, "into [02-9] folds: each row must be in one"),
        ({"cv": 1}, "at least"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, sentence):
    X, y, _ = rows_of(two_groups(10), 100)
    with pytest.raises(ValueError, match=sentence):
        MeanEncoder(**options).fit_transform(X, y)


# keys


def test_missing_keys_are_one_key_whatever_they_are_written_as():
    rng = np.random.default_rng(0)
    key = rng.choice(["a", "b", "c", "-"], size=200)
    y = 3.0 * (key == "-") + rng.standard_normal(200)
    forms = [np.where(key == "-", None, key).astype(object), np.where(key == "-", np.nan, key.astype(object))]
    frames = [each[:, None] for each in forms]
    frames += [pd.DataFrame({"k": forms[0]}), pl.DataFrame({"k": forms[0].tolist()})]
    expected = MeanEncoder().fit(np.where(key == "-", "~", key)[:, None], y)
    for frame in frames:
        encoder = MeanEncoder().fit(frame, y)
        for cell, same in (("a", "a"), (None, "~"), (np.nan, "~")):
            one = (
                np.array([[cell]], object)
                if isinstance(frame, np.ndarray)
                else pd.DataFrame({"k": [cell]}, dtype=object)
            )
            assert encoder.transform(one) == expected.transform([[same]])
    # without any in training, a missing key is one that was not seen
    encoder = MeanEncoder().fit(key[key != "-"][:, None], y[key != "-"])
    assert encoder.transform(np.array([[None]], object)) == encoder.prior_mean_[0]


def test_columns_are_encoded_by_themselves_or_jointly():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": rng.choice(["x", "y", "z"], 900), "day": rng.integers(7, size=900)})
    y = 2.0 * ((frame["shop"] == "x") & (frame["day"] == 3)) + 0.5 * rng.standard_normal(900)
    apart, joint = MeanEncoder().fit(frame, y), MeanEncoder(joint=True).fit(frame, y)
    for name, column in zip(frame, apart.transform(frame).T, strict=True):
        assert_array_equal(column, MeanEncoder().fit(frame[[name]], y).transform(frame[[name]])[:, 0])
    assert joint.transform(frame).shape == (900, 1)
    assert joint.transform(pd.DataFrame({"shop": ["x", "y"], "day": [3, 3]}))[:, 0] == pytest.approx([2, 0], abs=0.5)
    assert "x / 3" in joint.results_[0].agent.tolist() and len(joint.results_[0].agent) == 21
    unseen = joint.transform(pd.DataFrame({"shop": ["x", "w"], "day": [8, 3]}))
    assert_array_equal(unseen[:, 0], joint.prior_mean_.repeat(2))


def test_names_and_frames_of_the_result():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": rng.integers(9, size=90), "day": rng.integers(7, size=90)})
    y = rng.standard_normal(90)
    encoder = MeanEncoder(interval=True, group=True).fit(frame, y)
    each = ["", "_lower", "_upper", "_group"]
    assert encoder.get_feature_names_out().tolist() == [f"{name}{end}" for name in ("shop", "day") for end in each]
    assert MeanEncoder(joint=True).fit(frame, y).get_feature_names_out().tolist() == ["shop_day"]
    assert MeanEncoder().fit(frame.to_numpy(), y).get_feature_names_out().tolist() == ["x0", "x1"]
    for output, kind in (("pandas", pd.DataFrame), ("polars", pl.DataFrame)):
        found = clone(encoder).set_output(transform=output).fit_transform(frame, y)
        assert isinstance(found, kind) and list(found.columns) == encoder.get_feature_names_out().tolist()


def test_groups_of_folds_have_the_numbers_of_all_rows():
    X, y, truth = rows_of(np.where(np.arange(90) % 3, np.where(np.arange(90) % 3 == 1, 4.0, 8.0), 0.0), 1500)
    found = MeanEncoder(group=True).fit_transform(X, y)[:, 1]
    assert_array_equal(found, truth / 4.0)


# weights, and life in a pipeline


def test_weights():
    X, y, _ = rows_of(two_groups(30), 300)
    equal = MeanEncoder().fit(X, y).transform(X)
    assert_allclose(MeanEncoder().fit(X, y, np.ones(300)).transform(X), equal, rtol=1e-12)
    some = np.arange(300) % 3 > 0
    left = MeanEncoder().fit(X[some], y[some]).transform(X[some])
    assert_allclose(MeanEncoder().fit(X, y, some.astype(float)).transform(X[some]), left, rtol=1e-12)
    heavy = MeanEncoder(method="local").fit(X, y, np.where(y > 0.0, 3.0, 1.0)).transform([[0]])[0, 0]
    of_key = y[X[:, 0] == 0]
    assert heavy == pytest.approx(np.average(of_key, weights=np.where(of_key > 0.0, 3.0, 1.0)))
    for wrong in (-np.ones(300), np.zeros(300), np.ones(299), np.ones((300, 2))):
        with pytest.raises(ValueError, match=r"sample_weight|inconsistent|dim"):
            MeanEncoder().fit(X, y, wrong)


def test_any_splitter_that_puts_each_row_into_one_fold():
    X, y, _ = rows_of(two_groups(30), 300)
    folds = list(GroupKFold(3).split(X, y, np.arange(300) // 10))
    assert np.isfinite(MeanEncoder(cv=folds).fit_transform(X, y)).all()
    one, two = (MeanEncoder(random_state=seed).fit_transform(X, y) for seed in (0, 1))
    assert not (one == two).all()
    assert_array_equal(one, MeanEncoder(cv=KFold(5, shuffle=True, random_state=0)).fit_transform(X, y))


def test_copies_and_pickles_of_a_fitted_encoder_encode_alike():
    X, y, _ = rows_of(two_groups(30), 300)
    encoder = MeanEncoder(interval=True, group=True).fit(X, y)
    for again in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert_array_equal(again.transform(X), encoder.transform(X))
    assert clone(encoder).get_params() == encoder.get_params()


def test_in_a_column_transformer_and_a_pipeline():
    X, y, truth = rows_of(two_groups(200), 2000, sigma=2.0)
    frame = pd.DataFrame({"user": X[:, 0], "age": np.random.default_rng(0).standard_normal(2000)})
    columns = ColumnTransformer([("key", MeanEncoder(), ["user"])], remainder="passthrough")
    predicted = cross_val_predict(make_pipeline(columns, LinearRegression()), frame, y, cv=3)
    own = frame.assign(y=y).groupby("user")["y"].transform("mean")  # of all rows, the row's own included
    assert np.mean((predicted - truth) ** 2) < np.mean((own - truth) ** 2)
