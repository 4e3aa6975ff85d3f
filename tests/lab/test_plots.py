"""Figures show the numbers of their tables, nothing twice, and every word can be read."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

import colme
from colme.errors import ColmeError
from colme.graphs import Graph, from_edges, gnp_random_graph, random_regular_graph, watts_strogatz_graph
from colme.lab import plots
from colme.lab.plots import lines
from colme.lab.plots._style import COLORS, DASHES, Paper, drawn_for, looks
from colme.lab.plots.graph import Separation
from colme.lab.plots.output import as_image, parse_width
from colme.lab.plots.spectra import (
    ROUNDS,
    averaging_table,
    kesten_mckay,
    plot_averaging,
    spectrum_table,
    stability_table,
)
from colme.lab.rows import time_table

SCENARIO = colme.Scenario(n_agents=60, means=(0.0, 1.0), sigma=0.5)
LEVELS = ["agent", "edge"]


@pytest.fixture(scope="module")
def data() -> xarray.Dataset:
    """Two methods at two levels; local and oracle, which have no level, are broadcast over it."""
    parts = []
    for level in LEVELS:
        methods = [colme.CLColME(level=level), colme.CColME(level=level), colme.Local(), colme.Oracle()]
        parts.append(colme.simulate(methods, SCENARIO, degree=6, steps=150, seeds=range(3)).to_xarray())
    along = xarray.DataArray(LEVELS, dims="level", name="level")
    whole = xarray.concat(parts, dim=along, combine_attrs="override").transpose("method", "level", "seed", "t")
    cost = np.array([0.2, 0.3, 0.05, 0.06])[:, None, None] * np.array([1.0, 1.5])[:, None] * np.array([1.0, 1.1, 0.9])
    cost[2:, 1] = cost[2:, 0]
    return whole.assign(cpu_seconds=(("method", "level", "seed"), cost))


@pytest.fixture(scope="module")
def sizes() -> xarray.Dataset:
    rng = np.random.default_rng(0)
    dims = ("method", "n_agents", "seed")
    coordinates: dict[str, Any] = {"method": ["CL-colME", "C-colME", "local"], "n_agents": [100, 1000, 10_000]}
    coordinates |= {"seed": range(4), "t": [1, 10, 100]}
    seconds = rng.uniform(1, 2, (3, 3, 4))
    mse = rng.uniform(1, 2, (3, 3, 4, 3))
    mse[1, :, :, 2] = np.nan  # C-colME stopped at t=10
    seconds[0, 2] = np.nan
    return xarray.Dataset({"cpu_seconds": (dims, seconds), "mse": ((*dims, "t"), mse)}, coordinates)


def _draw(ax: Axes) -> Any:
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    return figure._get_renderer()  # type: ignore[attr-defined]


def _line(ax: Axes, label: str) -> Any:
    (found,) = [line for line in ax.get_lines() if line.get_label() == label]
    return found


def _assert_readable(ax: Axes) -> None:
    """The axes have labels, and a legend that is not cut off and covers no line."""
    renderer = _draw(ax)
    figure, legend = ax.get_figure(root=True), ax.get_legend()
    assert figure is not None and legend is not None and ax.get_xlabel() and ax.get_ylabel()
    box = legend.get_window_extent(renderer)
    assert box.x0 >= ax.bbox.x1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= figure.bbox.y0 - 1


# The numbers


def test_curves_are_quartiles_over_the_seeds(data: xarray.Dataset) -> None:
    table = plots.curves(data, "mse")
    assert list(table.columns) == ["line", "method", "t", "low", "median", "high"]
    rows = table[table["line"] == "C-colME, edge"]
    values = data["mse"].sel({"method": "C-colME", "level": "edge"}).values
    np.testing.assert_array_equal(rows["t"], data["t"])
    np.testing.assert_allclose(rows[["low", "median", "high"]].T, np.quantile(values, [0.25, 0.5, 0.75], axis=0))


def test_a_method_without_the_parameter_is_one_line(data: xarray.Dataset) -> None:
    names = list(dict.fromkeys(plots.curves(data, "mse")["line"]))
    assert names == ["CL-colME, agent", "CL-colME, edge", "C-colME, agent", "C-colME, edge", "local", "oracle"]
    assert len(plots.plot_over_time(data, "mse").get_lines()) == 6
    assert list(time_table(data)["line"]).count("local") == 1


@pytest.mark.parametrize("metric", ["mse", "error_rate"])
def test_thinning_keeps_the_ends_and_real_steps(
    data: xarray.Dataset, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = plots.curves(data, metric)
    monkeypatch.setattr(lines, "POINTS", 20)
    table = plots.curves(data, metric)
    for line, rows in table.groupby("line"):
        assert len(rows) <= 20
        assert (rows["t"].iloc[0], rows["t"].iloc[-1]) == (1, 150)
        both = rows.merge(full[full["line"] == line], on=["line", "t"], suffixes=("", "_full"))
        assert len(both) == len(rows)
        np.testing.assert_array_equal(both["median"], both["median_full"])


def test_missing_combinations_are_left_out(data: xarray.Dataset) -> None:
    holes = data.copy(deep=True)
    holes["mse"].loc[{"method": "C-colME", "level": "edge"}] = np.nan
    holes["mse"].loc[{"method": "CL-colME", "level": "edge", "seed": 1}] = np.nan
    table = plots.curves(holes, "mse")
    assert "C-colME, edge" not in set(table["line"]) and "C-colME, agent" in set(table["line"])
    two = holes["mse"].sel({"method": "CL-colME", "level": "edge", "seed": [0, 2]}).median("seed")
    np.testing.assert_allclose(table[table["line"] == "CL-colME, edge"]["median"], two)


def test_local_and_oracle_come_from_the_run_where_they_are_not_methods(data: xarray.Dataset) -> None:
    few = data.sel({"method": ["C-colME"]})
    drawn = {line.get_label() for line in plots.plot_over_time(few, "mse").get_lines()}
    assert drawn == {"C-colME, agent", "C-colME, edge", "local", "oracle"}
    table = plots.curves(few, "mse")
    expected = data["local_mse"].isel(method=0, level=0).median("seed")
    np.testing.assert_allclose(table[table["line"] == "local"]["median"], expected)


def test_scaling_divides_by_the_steps_that_were_done(sizes: xarray.Dataset) -> None:
    table = lines.scaling_table(sizes).set_index(["line", "n_agents"])
    assert ("CL-colME", 10_000) not in table.index
    seconds = sizes["cpu_seconds"].median("seed")
    np.testing.assert_allclose(table.loc[("local", 1000), "median"], 1e9 * float(seconds[2, 1]) / (1000 * 100))
    np.testing.assert_allclose(table.loc[("C-colME", 100), "median"], 1e9 * float(seconds[1, 0]) / (100 * 10))


def test_parameter_table_takes_the_last_recorded_step_before(data: xarray.Dataset) -> None:
    coarse = data.isel(t=slice(0, None, 10))  # steps 1, 11, ...
    table = lines.parameter_table(coarse, "level", at=[15, 140])
    assert sorted(set(table["t"])) == [11, 131]
    row = table[(table["line"] == "C-colME") & (table["value"] == "edge") & (table["t"] == 11)]
    assert float(row["median"].iloc[0]) == float(
        data["mse"].sel({"method": "C-colME", "level": "edge", "t": 11}).median()
    )
    assert table[table["line"] == "local"]["value"].isna().all() and (table["line"] == "local").sum() == 2


# What is drawn


@pytest.mark.parametrize(
    "metric",
    ["mse", "error_rate", "relative_mse"],
)
def test_lines_are_those_of_the_table(data: xarray.Dataset, metric: str) -> None:
    ax = plots.plot_over_time(data, metric)
    for line, rows in plots.curves(data, metric).groupby("line"):
        drawn = _line(ax, str(line))
        np.testing.assert_array_equal(drawn.get_xdata(), rows["t"])
        np.testing.assert_array_equal(drawn.get_ydata(), rows["median"])


def test_equal_curves_are_drawn_once_under_both_names(data: xarray.Dataset) -> None:
    """C and CL prune alike, and local and oracle have no edges."""
    ax = plots.plot_over_time(data, "wrong_edges")
    assert [line.get_label() for line in ax.get_lines()] == [
        "CL-colME and C-colME, agent",
        "CL-colME and C-colME, edge",
    ]


def test_bars_are_as_long_as_the_medians(data: xarray.Dataset) -> None:
    ax = lines.plot_time(data)
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, 1e3 * time_table(data)["median"])  # milliseconds
    assert "1.50\N{MULTIPLICATION SIGN}" in [text.get_text() for text in ax.texts]


def test_zero_shares_stay_on_a_logarithmic_axis(data: xarray.Dataset) -> None:
    ax = plots.plot_over_time(data, "error_rate")
    assert ax.get_yscale() == "symlog" and ax.get_ylim()[0] == 0
    assert "0.1" in ax.get_ylabel()  # the tolerance, from the attributes


def test_lines_of_a_figure_differ_in_dashes_and_keep_their_colors() -> None:
    methods = ["CL-colME", "C-colME", "B-colME", "colME", "mine", "CL-colME", "C-colME", "B-colME"]
    assert len({look.dashes for look in looks(methods)}) == len(methods) == len(DASHES)
    assert len({look.color for look in looks(methods)}) == len(methods)
    assert looks(["C-colME"])[0].color == COLORS["C-colME"].lower() == looks(methods)[1].color
    assert len({look.color for look in looks(["CL-colME"] * 5)}) == 5


# Words


FIGURES: dict[str, Any] = {
    "mse": lambda d, s: (plots.plot_over_time(d), plots.curves(d, "mse")),
    "relative": lambda d, s: (plots.plot_over_time(d, "relative_mse"), plots.curves(d, "relative_mse")),
    "error_rate": lambda d, s: (plots.plot_over_time(d, "error_rate"), plots.curves(d, "error_rate")),
    "wrong_edges": lambda d, s: (plots.plot_over_time(d, "wrong_edges"), plots.curves(d, "wrong_edges")),
    "scaling": lambda d, s: (lines.plot_scaling(s), lines.scaling_table(s)),
    "steps": lambda d, s: (plots.plot_parameter(d, "level", at=[20, 150]), lines.parameter_table(d, "level")),
    "marks": lambda d, s: (plots.plot_parameter(s, "n_agents", at=[10], marks={"1/r": 1e3, "far": 9e3}), s),
    "stability": lambda d, s: (plots.plot_stability(GRAPH), stability_table(GRAPH, [0.1])),
    "spectrum": lambda d, s: (plots.plot_spectrum(GRAPH), spectrum_table(GRAPH)),
    "averaging": lambda d, s: (plot_averaging(GRAPH, 0.2), averaging_table(GRAPH, 0.2)),
}
GRAPH = random_regular_graph(80, 4, rng=0)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_labels_and_files_that_are_whole_and_the_same_every_time(
    name: str, data: xarray.Dataset, sizes: xarray.Dataset, tmp_path: Path
) -> None:
    first = plots.save(*FIGURES[name](data, sizes), tmp_path / "one" / f"v1.{name}")
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "none", "lines.linewidth": 9}):
        ax, table = FIGURES[name](data, sizes)
        again = plots.save(ax.figure, table, tmp_path / "other" / f"v1.{name}.svg")
    assert [path.name for path in first] == [f"v1.{name}.{kind}" for kind in ("svg", "pdf", "csv")]
    assert [(path.name, path.read_bytes()) for path in first] == [(path.name, path.read_bytes()) for path in again]
    assert not list(tmp_path.rglob("*.tmp")) and b"CreationDate" not in first[1].read_bytes()
    svg = first[0].read_text()
    assert len(svg) < 300_000
    assert set(re.findall(r'http[^"\s]*', svg)) <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    _assert_readable(FIGURES[name](data, sizes)[0])


def test_a_legend_is_not_cut_off_at_other_sizes() -> None:
    names = [f"method {k} with a long name" for k in range(8)]
    t = np.arange(1, 50)
    mse = np.broadcast_to(1.0 / t, (8, 2, 49)) * np.linspace(1, 1.01, 8)[:, None, None]
    same = xarray.Dataset({"mse": (("method", "seed", "t"), mse)}, {"method": names, "seed": [0, 1], "t": t})
    ax = plots.plot_over_time(same)
    ax.get_figure(root=True).set_size_inches(9, 3)  # type: ignore[union-attr]
    _assert_readable(ax)
    panels = Figure(figsize=(9, 4), layout="constrained").subplots(1, 2)
    for panel in panels:
        plots.plot_over_time(same, ax=panel)
    _assert_readable(panels[0])


# Pictures


@pytest.fixture(scope="module")
def picture() -> Separation:
    return plots.separation(colme.CLColME(level="agent"), SCENARIO, degree=6, steps=150, seed=1)


def test_both_pictures_share_positions_and_only_lose_edges(picture: Separation) -> None:
    trace = colme.simulate(colme.CLColME(level="agent"), SCENARIO, degree=6, steps=150, seed=1)
    assert picture.after == trace.final.graph
    assert picture.before.n_edges == 180 and picture.wrong(picture.before).sum() > picture.wrong(picture.after).sum()
    before, after = plots.plot_graph(picture, "before"), plots.plot_graph(picture, "after")
    for one, other in zip(before.collections[2:], after.collections[2:], strict=True):
        np.testing.assert_array_equal(one.get_offsets(), other.get_offsets())
    assert before.get_xlim() == after.get_xlim() and before.get_ylim() == after.get_ylim()
    segments = [len(ax.collections[1].get_segments()) for ax in (before, after)]  # type: ignore[attr-defined]
    assert segments == [picture.wrong(picture.before).sum(), picture.wrong(picture.after).sum()]


def test_classes_part_in_the_picture(picture: Separation) -> None:
    centers = np.array([picture.positions[picture.class_ == c].mean(axis=0) for c in (0, 1)])
    spreads = [picture.positions[picture.class_ == c].std() for c in (0, 1)]
    assert np.linalg.norm(centers[0] - centers[1]) > 1.5 * max(spreads)


@pytest.fixture(scope="module")
def density() -> xarray.DataArray:
    return plots.estimate_density(colme.CLColME(level="agent"), SCENARIO, degree=6, steps=200, seed=0)


def test_density_columns_integrate_to_everybody_who_is_in_the_frame(density: xarray.DataArray) -> None:
    width = float(density["value"][1] - density["value"][0])
    inside = density.sum("value") * width
    assert float(inside[0]) < 0.999 and float(inside.max()) <= 1.0 + 1e-12
    np.testing.assert_allclose(inside[-1], 1.0)
    assert density["t"].values[0] == 1 and density["t"].values[-1] == 200


def test_density_ends_in_the_true_means(density: xarray.DataArray) -> None:
    last = density.isel(t=-1)
    width = float(density["value"][1] - density["value"][0])
    near = sum(float(last.where(abs(last["value"] - mean) < 0.1, 0.0).sum()) * width for mean in (0.0, 1.0))
    assert near > 0.9
    final = colme.simulate(colme.CLColME(level="agent"), SCENARIO, degree=6, steps=200, seed=0).final
    np.testing.assert_allclose(float((last * last["value"]).sum()) * width, final.estimate.mean(), atol=width / 2)


def test_density_image_is_scaled_by_column(density: xarray.DataArray) -> None:
    ax = plots.plot_density(density)
    image = np.asarray(ax.collections[0].get_array()).reshape(density.sizes["value"], density.sizes["t"])
    np.testing.assert_allclose(image.max(axis=0), 1.0)
    np.testing.assert_array_equal(image.argmax(axis=0), density.transpose("value", "t").values.argmax(axis=0))
    assert ax.get_xlabel() == "step t" and ax.get_ylabel() == "estimates of 60 agents"


# Spectra


def test_spectrum_is_that_of_known_graphs() -> None:
    path = from_edges([(k, k + 1) for k in range(9)])
    expected = 2 - 2 * np.cos(np.pi * np.arange(10) / 10)
    np.testing.assert_allclose(spectrum_table(path)["eigenvalue"], expected, atol=1e-12)
    two = from_edges([(0, 1), (2, 3)])
    np.testing.assert_allclose(spectrum_table(two)["eigenvalue"], [0, 0, 2, 2], atol=1e-12)
    x = np.linspace(0, 20, 20_001)
    np.testing.assert_allclose(np.trapezoid(kesten_mckay(x, 10), x), 1.0, atol=1e-4)


@pytest.mark.parametrize(
    "graph",
    [random_regular_graph(100, 6, rng=0), gnp_random_graph(80, 0.03, rng=1), from_edges([(0, 1), (1, 2), (3, 4)], 6)],
    ids=["regular", "disconnected", "tiny"],
)
def test_measured_stability_is_theory(graph: Graph) -> None:
    """From below, by at most the share of the start vector along the slowest direction (see spectra.measure): it is
    1e-3 / sqrt(n) or more with probability 0.999, hence a factor of (1e-3 / sqrt(n))^(1/rounds)."""
    largest = spectrum_table(graph)["eigenvalue"].iloc[-1]
    table = stability_table(graph, np.array([0.2, 0.9, 1.0, 1.1, 1.3]) * 2 / largest)
    theory, measured = table["theory"].to_numpy(), table["measured"].to_numpy()
    assert (measured <= theory * (1 + 1e-9)).all()
    assert (measured >= theory * (1e-3 / np.sqrt(graph.n_agents)) ** (1 / ROUNDS)).all()
    assert theory[1] < 1 < theory[3] and theory[2] == pytest.approx(1.0)


def test_stability_figure_shows_table_and_marks() -> None:
    graph = random_regular_graph(60, 4, rng=0)
    steps = [0.1, 0.2, 0.3]
    ax = plots.plot_stability(graph, steps)
    np.testing.assert_array_equal(_line(ax, "measured").get_xdata(), steps)
    table = stability_table(graph, _line(ax, "theory").get_xdata())
    np.testing.assert_array_equal(_line(ax, "theory").get_ydata(), table["theory"])
    fastest = table["theory"].min()
    assert fastest == min(stability_table(graph, np.linspace(0.05, 0.4, 200))["theory"].min(), fastest)


# Files


def test_formulas_are_drawn_and_not_spelled_out() -> None:
    """A text with a formula must be parsed as one; $ in a user's label is a dollar, which another test shows."""
    graph = random_regular_graph(60, 4, rng=0)
    for ax in (plots.plot_spectrum(graph), plots.plot_stability(graph), plot_averaging(graph, 0.2)):
        texts = [text for text in ax.get_figure(root=True).findobj(Text) if "\\" in text.get_text()]
        assert all(text.get_parse_math() for text in texts), [text.get_text() for text in texts]


def test_averaging_matrices_have_the_spectra_of_the_methods() -> None:
    graph = watts_strogatz_graph(40, 4, 0.3, rng=0)
    table = averaging_table(graph, 0.15)
    degree = graph.degrees
    weights = np.zeros((40, 40))
    for a, b in graph.edges():
        weights[a, b] = weights[b, a] = 1 / (max(degree[a], degree[b]) + 1)
    weights += np.diag(1 - weights.sum(axis=1))
    laplacian = np.diag(degree) - graph.adjacency()
    np.testing.assert_allclose(table["metropolis"], np.linalg.eigvalsh(weights), atol=1e-12)
    np.testing.assert_allclose(table["laplacian"], np.linalg.eigvalsh(np.eye(40) - 0.15 * laplacian), atol=1e-12)


def test_a_figure_fits_a_column_and_loses_no_label(data: xarray.Dataset) -> None:
    with drawn_for(Paper(parse_width("84mm"), font_size=7, font="serif", title=False)):
        drawn = plots.plot_over_time(data, "error_rate"), lines.plot_time(data), plots.plot_over_time(data, "mse")
    for ax in drawn:
        figure: Any = ax.get_figure(root=True)
        renderer = _draw(ax)
        assert figure.get_size_inches()[0] == pytest.approx(84 / 25.4) and ax.get_title(loc="left") == ""
        for text in (ax.xaxis.label, ax.yaxis.label):
            box = text.get_window_extent(renderer)
            assert box.x0 > -1 and box.x1 < figure.bbox.width + 1 and box.y0 > -1 and box.y1 < figure.bbox.height + 1
            assert text.get_fontfamily() == ["serif"]


@pytest.mark.parametrize(
    ("text", "inches"), [("84mm", 84 / 25.4), ("84", 84 / 25.4), ("3.3in", 3.3), ("8.4 cm", 8.4 / 2.54)]
)
def test_a_width_has_a_unit(text: str, inches: float) -> None:
    assert parse_width(text) == pytest.approx(inches)


def test_numbers_come_back_from_csv(data: xarray.Dataset, density: xarray.DataArray, tmp_path: Path) -> None:
    table = plots.curves(data, "mse")
    path = plots.save(plots.plot_over_time(data, "mse"), table, tmp_path / "mse")[2]
    pd.testing.assert_frame_equal(pd.read_csv(path), table, check_dtype=False, check_exact=True)
    one, again = (plots.save(plots.plot_density(density), density, tmp_path / each / "density") for each in "ab")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in again]
    back = pd.read_csv(one[2]).set_index(["t", "value"])["density"].to_xarray()
    np.testing.assert_array_equal(back.values, density.values)


def test_a_picture_for_a_page_is_one_element_with_words_for_those_who_do_not_see(data: xarray.Dataset) -> None:
    label = 'error <of> "all" & sundry'
    one, again = (as_image(plots.plot_over_time(data, "mse"), label) for _ in range(2))
    assert one == again and one.startswith('<img alt="error &lt;of&gt; &quot;all&quot; &amp; sundry" src="data:image/')
    svg = base64.b64decode(one.partition("base64,")[2].removesuffix('">')).decode()
    assert svg.rstrip().endswith("</svg>") and "<!DOCTYPE" not in svg and "<text" not in svg
    assert set(re.findall(r'http[^"\s]*', svg)) <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}


# Manners


def test_the_users_style_and_pyplot_are_left_alone(data: xarray.Dataset) -> None:
    import matplotlib.pyplot as plt

    before, figures = dict(matplotlib.rcParams), plt.get_fignums()
    own = Figure().subplots()
    assert plots.plot_over_time(data, ax=own) is own
    lines.plot_time(data)
    as_image(own, "x")
    with pytest.raises(ColmeError):
        plots.plot_parameter(data, "nonsense")
    assert dict(matplotlib.rcParams) == before and plt.get_fignums() == figures


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda d: plots.curves(d, "mes"), "unknown metric 'mes'.*mean 'mse'"),
        (lambda d: plots.plot_over_time(d.isel(seed=0, drop=True)), r"dimensions \(method: 4.*'seed'.*expand_dims"),
        (lambda d: plots.plot_over_time(d.isel(seed=[])), "seed: 0"),
        (lambda d: plots.plot_over_time(d.assign(mse=d["mse"] * np.nan)), "mse is NaN everywhere.*true means"),
        (lambda d: plots.plot_over_time(d["mse"]), "must be an xarray.Dataset"),
        (lambda d: lines.plot_scaling(d), "'n_agents' must be one"),
        (lambda d: lines.plot_time(d.drop_vars("cpu_seconds")), "unknown metric 'cpu_seconds'"),
        (lambda d: plots.plot_parameter(d, "levle"), "unknown parameter 'levle'.*mean 'level'"),
        (lambda d: plots.plot_parameter(d, "level", at=[0]), r"at=\[0\].*first recorded, 1"),
        (lambda d: spectrum_table(random_regular_graph(2002, 3, rng=0)), "2002 agents.*at most 2000"),
        (lambda d: plots.plot_stability(from_edges([], n_agents=3)), "3 agents and no edge"),
        (lambda d: plots.separation(colme.CLColME(), colme.Scenario(n_agents=301, means=(0.0,))), "301.*at most 300"),
        (lambda d: plots.plot_graph(plots.separation(colme.Local(), SCENARIO, steps=2), "during"), "when 'during'"),
        (lambda d: plots.plot_density(d["mse"]), "over \\(t, value\\)"),
        (lambda d: plots.save("figure", d, "x"), "'figure' is no figure"),
        (lambda d: plots.save(Figure(), [1], "x"), r"table=\[1\]"),
        (lambda d: plots.save(Figure(), pd.DataFrame({"a": [1]}), "/proc/none/x"), "cannot write"),
    ],
)  # fmt: skip
def test_refusals_say_what_was_got(data: xarray.Dataset, ask: Any, said: str) -> None:
    with pytest.raises(ColmeError, match=said):
        ask(data)


def test_long_titles_are_wrapped_in_a_narrow_figure(data: xarray.Dataset) -> None:
    named = data.assign_attrs(title="A title of many words that does not fit into the column of a paper")
    with drawn_for(Paper(width=84 / 25.4)):
        ax = plots.plot_over_time(named)
    _draw(ax)
    assert ax._left_title.get_window_extent().x1 <= ax.get_figure().bbox.x1  # type: ignore[attr-defined, union-attr]
