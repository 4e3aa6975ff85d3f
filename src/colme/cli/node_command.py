"""`colme node`: run, inspect and plan agents on devices."""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from colme.cli.output import emit, format_option, live_page, live_rows, say, wide_option
from colme.cli.parameters import METHOD, PATH, SEED, Number, Texts, Whole, option, switch
from colme.errors import MethodError, NodeError, one_of, printable
from colme.support.tables import Row, parse_word

if TYPE_CHECKING:
    from colme.method import Method
    from colme.node.config.node_toml import NodeConfig

_configs = option("-c", "--config", "configs", "The configuration of a node on this machine; repeat it for more.",
                  type=PATH, multiple=True, default=("node.toml",), metavar="FILE")  # fmt: skip
_config = option("-c", "--config", "The configuration of the node.", type=PATH, default="node.toml", metavar="FILE")
_days = option("--days", "Validity of the certificates.", type=Whole(1, 36500), default=365)

_method = option("-m", "--method", "The method to run.", type=METHOD, default="cl-colme", metavar="NAME")


def _field(text: str) -> tuple[str, Any]:
    """A field of a method, FIELD=VALUE, as a file would have it."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} has no value. Try sigma=2.")
    return name.replace("-", "_"), parse_word(value)


_fields = option("--set", "fields", "A field of the method; repeat it for more.",
                 type=_field, multiple=True, metavar="FIELD=VALUE")  # fmt: skip
_modules = option("--module", "modules",
                  "A Python file with a method of your own, which is executed; repeat it for more.",
                  type=PATH, multiple=True, metavar="FILE")  # fmt: skip

_COLUMNS = ("name", "agents", "samples", "estimate", "lower", "upper", "fresh", "cut")
_WIDE_COLUMNS = (
    "name", "agents", "tick", "samples", "mean", "radius", "estimate", "lower", "upper", "level", "trust", "neighbors",
    "fresh", "cut", "incarnation", "refused", "bad_lines", "late",
)  # fmt: skip
_NEIGHBOR_COLUMNS = ("agent", "name", "fresh", "age", "samples", "mean", "estimate")


@click.group("node")
def command() -> None:
    """Run an agent on this device, inspect running agents, and plan a fleet.

    \b
    Examples:
      colme node demo
      colme node plan hosts.txt --method cl-colme --set sigma=2 -o fleet
      sensor | colme node run --config fleet/pi-3/node.toml
      colme node status --config fleet/pi-3/node.toml --format json
    """


@command.command("run")
@_config
@option("--metrics", "Serve Prometheus metrics at this address, on loopback only.", metavar="HOST:PORT")
@switch("--until-end", "Stop at the end of the samples.")
def run(config: str, metrics: str | None, until_end: bool) -> None:
    """Run an agent until SIGTERM or Ctrl-C, which save its state. Estimates go to stdout as JSON lines.

    \b
    Examples:
      sensor | colme node run --config node.toml
      colme node run --config node.toml --metrics 127.0.0.1:9464 > estimates.jsonl
    """
    os.environ.setdefault("COLME_NUMBA", "0")  # before anything is imported: a device needs no compiler
    from colme.node.assemble import run_node
    from colme.node.config.node_toml import NodeConfig

    run_node(NodeConfig.read(config), say=lambda line: say(printable(line)), until_end=until_end, metrics=metrics)


@command.command("status")
@_configs
@format_option
@wide_option
def status(configs: Texts, form: str, wide: bool) -> None:
    """Show samples, estimate and neighbors of running nodes.

    JSON and CSV have all columns.

    \b
    Example:
      colme node status --config fleet/pi-3/node.toml --format json
    """
    found = _ask(configs)
    if form == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        emit(_summaries(found, wide or form == "csv"), form)


@command.command("neighbors")
@_configs
@format_option
@wide_option
def neighbors(configs: Texts, form: str, wide: bool) -> None:
    """Show the neighbors of nodes and the age of their records.

    Ages are in seconds. JSON and CSV have all columns.

    \b
    Example:
      colme node neighbors --config fleet/pi-3/node.toml
    """
    found = _ask(configs)
    rows = [{"agent": each["name"]} | row for each in found for row in each["neighbor_rows"]]
    if form != "json":
        rows = list(map(_counted, rows))
    columns = dict.fromkeys(key for row in rows for key in row)
    if form == "table":
        for each in found:
            if not each["neighbor_rows"] and (cut := each["cut_names"]):
                say(f"{each['name']} has no neighbors: the edges to {', '.join(cut)} are cut.")
        for row in rows:
            if why := row.get("why"):
                say(f"{row['name']} is silent: {why}")
        columns.pop("why", None)
        if not wide:
            columns = dict.fromkeys(_NEIGHBOR_COLUMNS if len(configs) > 1 else _NEIGHBOR_COLUMNS[1:])
    emit([{key: row.get(key) for key in columns} for row in rows], form)


@command.command("forgive")
@click.argument("name")
@_config
def forgive(name: str, config: str) -> None:
    """Reconsider the cut of the edge to the agent NAME now.

    The node does not wait for more samples, but asks the other end. The edge returns if that answers and the intervals
    of both overlap well; a person can ask, but evidence decides. If the node does not run, it asks when it starts.

    \b
    Example:
      colme node forgive pi-3 --config node.toml
    """
    from colme.node.assemble import forgive as ask_to_forgive
    from colme.node.config.node_toml import NodeConfig
    from colme.node.names import check_name

    check_name(name, "NAME")
    click.echo(ask_to_forgive(NodeConfig.read(config), name))


@command.command("watch")
@_configs
@option("--every", "Seconds between updates.", type=Number(0.1, 86400), default=1.0)
@option("--times", "Stop after so many updates (default: never).", type=Whole(1, 10**9))
@option("--format", "form", "A live table, or JSON lines.", type=click.Choice(("table", "json")), default="table")
@wide_option
@switch("--web", "Show the nodes and their graph in the browser, at an address on loopback.")
@option("--port", "The port of that address (default: a free one).", type=Whole(1, 65535))
@option("--open/--no-open", "opened", "Open the page in a browser (default: on a terminal).", default=None)
@option("--reports", "With --web: JSON lines that nodes of other machines report; - is stdin.",
        type=PATH, metavar="FILE")  # fmt: skip
@click.pass_context
def watch(
    context: click.Context, configs: Texts, every: float, times: int | None, form: str, wide: bool,
    web: bool, port: int | None, opened: bool | None, reports: str | None,
) -> None:  # fmt: skip
    """Show a live table of running nodes. A node that does not answer is shown without numbers.

    A star in FILE stands for any characters. With --web, the address of a page goes to stdout. The page has the graph
    of the nodes and their neighbors, estimates and counters, and changes nothing.

    \b
    Examples:
      colme node watch -c fleet/pi-1/node.toml -c fleet/pi-2/node.toml
      colme node watch --web -c 'fleet/*/node.toml'
      mosquitto_sub -t 'estimates/#' | colme node watch --web --reports -
    """
    if web and (form == "json" or wide):
        raise click.UsageError(f"--web shows a page with all columns: leave {'--wide' if wide else '--format'} out.")
    for name, value in (("--port", port), ("--open", opened), ("--reports", reports)):
        if not web and value is not None:
            raise click.UsageError(f"{name} is for the page in the browser. Add --web.")
    if reports is not None and context.get_parameter_source("configs") is ParameterSource.DEFAULT:
        configs = ()
    nodes = _nodes(configs)
    if not web:
        with live_rows(lines=form == "json") as show:
            for turn in itertools.count(1):
                show(_summaries(_answers(nodes), wide or form == "json"), None)
                if turn == times:
                    return
                time.sleep(every)
    from colme.live.broadcast import Broadcast
    from colme.live.fleet import ReportReader, watch_fleet

    sockets: dict[str, str] = {}
    for node in nodes:
        if node.name in sockets:
            raise NodeError(f"two of these nodes are called {node.name!r}: each must have a name of its own. Watch one "
                            "of the two.")  # fmt: skip
        sockets[node.name] = node.socket
    title = "reports" if not sockets else "1 node" if len(sockets) == 1 else f"{len(sockets)} nodes"
    broadcast = Broadcast()
    with contextlib.ExitStack() as stack:
        read = None
        if reports is not None:
            read = stack.enter_context(contextlib.closing(ReportReader(0 if reports == "-" else reports)))
        stack.enter_context(live_page(broadcast, port=port or 0, opens=opened, about="Ctrl-C ends the watch."))
        watch_fleet(sockets, broadcast.publish, reports=read, every=every, times=times, title=title)


@command.command("keys")
@click.argument("names", nargs=-1)
@option("-a", "--authority", "Folder of the authority; it is made if it does not exist.",
        default="authority", metavar="FOLDER")  # fmt: skip
@option("--network", "The name in the authority's certificate.", default="colme")
@option("--host", "hosts", "An address or name at which others dial the agent; repeat it for more.", multiple=True)
@option("-o", "--output", "Each agent gets a folder in it.", default=".", metavar="FOLDER")
@_days
@switch("--rotate", "Replace existing keys and certificates.")
def keys(
    names: Texts, authority: str, network: str, hosts: Texts, output: str, days: int,
    rotate: bool,
) -> None:  # fmt: skip
    """Make a key and a certificate for each of these agents.

    If there is no authority, one is made.

    \b
    Examples:
      colme node keys pi-3 --host 192.168.1.13 -o fleet
      colme node keys pi-3 --rotate -o fleet
    """
    from colme.node.security import keys as made

    if rotate and (hosts or not names):
        rule = "leave --host out" if hosts else "name the agents"
        raise click.UsageError(f"--rotate renews the certificates of agents and keeps their hosts: {rule}.")
    if not rotate and not Path(authority, "ca.key").exists():
        made.make_authority(authority, network)
        say(f"{authority} holds a new authority. Keep its ca.key off the devices.")
    for name in names:
        folder = Path(output, name)
        if rotate:
            made.rotate(authority, name, folder=folder, days=days)
        else:
            made.make_certificate(authority, name, hosts, folder=folder, days=days)
        click.echo(folder / f"{name}.pem")


@command.command("plan")
@click.argument("hosts", type=PATH)
@option("-o", "--output", "A new folder.", default="fleet", metavar="FOLDER")
@_method
@_fields
@_modules
@option("--samples",
        "Where agents get samples: file:readings.txt, mqtt:127.0.0.1:1883/{name} (default: stdin). {name} is the "
        "name of each.",
        metavar="SOURCE:ADDRESS")  # fmt: skip
@option("--network", "The name of the network.", default="colme")
@option("--preset", "What the network is like: local, lan or wan.", default="lan")
@option("--tick-rate", "Records per second.", type=Number(1e-5, 1000.0), default=10.0)
@option("--degree", "Neighbors of each agent (default: 6, or fewer).", type=Whole(1, 3333))
@option("--agents", "Each node is a gateway, with up to so many local agents (default: an agent).",
        type=Whole(1, 10**6))  # fmt: skip
@option("--seed", "Seed of the random graph.", type=SEED, default=0)
@_days
@option("--replace/--no-replace", "Replace lost neighbors.", default=True)
@option("--admit", "Possible neighbors: agents of this plan, or all with a certificate of its authority.",
        type=click.Choice(("members", "certified")), default="members")  # fmt: skip
def plan(
    hosts: str, output: str, method: str, fields: tuple[tuple[str, Any], ...], modules: Texts,
    samples: str | None, **options: Any,
) -> None:  # fmt: skip
    """Plan a fleet: neighbors, keys and a folder for each host.

    HOSTS is a text file with one line per agent: its name and the address at which other agents dial it (host,
    host:port, or - if it cannot be dialed). If the agent listens at a different address, because a tunnel or a router
    forwards the port, add "listen" and that address.

    Methods that cut edges do so by difference tests, which need less than half the samples of the papers' intervals
    (--set cut=intervals); these stay where gamma is given, or where the bound, level or statistics need them.

    \b
    Examples:
      colme node plan hosts.txt --set sigma=2 --samples file:readings.txt
      colme node plan hosts.txt --method census --agents 10000 -o gateways
      colme node plan hosts.txt --module my_method.py --method my-method
    """
    from colme.node.config.plan import plan as write_plan
    from colme.node.config.plan import read_hosts, read_samples

    known = read_hosts(hosts)
    source = None if samples is None else read_samples(samples)
    try:
        chosen = _method_for_nodes({"method": method} | dict(fields), modules)
        folder = write_plan(known, output, method=chosen, modules=modules, samples=source, say=say, **options)
    except MethodError as error:
        sentence, unknown_sigma, _ = str(error).partition("Try sigma=...")
        if not unknown_sigma:
            raise
        remedy = "Try --set sigma=2." if method == "census" else "Try --set sigma=2, or --method census."
        raise MethodError(sentence + remedy) from None
    what = "gateways" if options["agents"] else "agents"
    say(f"{folder} holds {len(known)} {what}. Copy each folder to its device; keep {folder / 'authority'} here.")
    if getattr(chosen, "cut", None) == "difference":
        say("Edges are cut by difference tests (cut = \"difference\"), for noise that is independent between agents. "
             "If agents share noise, plan with --set cut=intervals.")  # fmt: skip
    for host in known:
        click.echo(folder / host.name / "node.toml")


@command.command("demo")
@option("--seconds", "How long they run.", type=Number(1.0, 86400), default=20.0)
@option("--n-agents", "Processes.", type=Whole(3, 200), default=12)
@_method
@_fields
@_modules
@option("--seed", "Seed of the graph and the samples.", type=SEED, default=0)
@option("--plot", "Draw a figure of the run: .svg, .pdf or .png.", type=PATH, metavar="FILE")
@format_option
def demo(
    seconds: float, n_agents: int, method: str, fields: tuple[tuple[str, Any], ...], modules: Texts,
    seed: int, plot: str | None, form: str,
) -> None:  # fmt: skip
    """Start agents on this machine, kill one and restart it.

    The errors with and without collaboration are compared. The means of the two classes are 0 and 3, and sigma is 1.

    \b
    Examples:
      colme node demo
      colme node demo --seconds 30 --plot demo.svg
      colme node demo --module my_method.py --method my-method
    """
    os.environ.setdefault("COLME_NUMBA", "0")  # a dozen agents need no compiler
    from colme.methods.registry import methods_by_name
    from colme.node.demo import SIGMA, DemoErrors, run_demo

    if plot is not None:  # a missing package or a wrong suffix is reported before the agents run
        from colme.lab import plots
        from colme.lab.plots.fleet import plot_fleet

        one_of(Path(plot).suffix.lower(), plots.PICTURES, "suffix of a figure")
    kinds = methods_by_name(map(Path, modules), NodeError)
    has_sigma = method in kinds and "sigma" in kinds[method][0].__struct_fields__
    usual = {"method": method} | ({"sigma": SIGMA} if has_sigma else {})
    chosen = _method_for_nodes(usual | dict(fields), modules)
    errors, seen = [], []
    views = run_demo(seconds=seconds, n_agents=n_agents, seed=seed, method=chosen, modules=modules)
    with contextlib.closing(views), live_rows(words=True) as show:  # closed, so that Ctrl-C ends the agents, too
        for found in views:
            if isinstance(found, DemoErrors):
                errors = [{"where": where, "rms_error": error} for where, error in found._asdict().items()]
            else:
                summary = {"seconds": round(found.seconds, 1), "rms_error_local": found.local_error,
                           "rms_error": found.error, "event": found.event}  # fmt: skip
                seen.append(found)
                show(found.reports, summary)
    emit(errors, form)
    if plot is not None:
        say(f"{plots.write_figure(plot_fleet(seen), plot)} shows the run.")


def _method_for_nodes(table: dict[str, Any], modules: Texts) -> Method:
    """The method of a table, which has a guard, and cuts edges by difference tests, if it can and the table does
    not say otherwise."""
    from colme.node.config.node_toml import method_of

    method = method_of(table, modules)
    if getattr(method, "cut", None) == "intervals" and not modules and not {"cut", "gamma"} & table.keys():
        with contextlib.suppress(MethodError, NodeError):  # where they do not fit, intervals stay
            return method_of(table | {"cut": "difference"})
    return method


def _nodes(configs: Texts) -> list[NodeConfig]:
    """The configurations, each once: a star stands for any characters of a name."""
    from colme.node.config.node_toml import NodeConfig

    found: dict[str, None] = {}
    for config in configs:
        matches = sorted(glob.glob(config)) if "*" in config else [config]
        if not matches:
            raise NodeError(f"no file is called {config}: a star stands for any characters. Try 'fleet/*/node.toml'.")
        found |= dict.fromkeys(matches)
    return [NodeConfig.read(each) for each in found]


def _answers(nodes: list[NodeConfig]) -> list[Row]:
    """The status of each node; if it does not answer, its name and why it is `silent`."""
    from colme.node.io.status import ask

    answers: list[Row] = []
    for node in nodes:
        try:
            answers.append(ask(node.socket))
        except NodeError as error:
            answers.append({"name": node.name, "silent": error})
    return answers


def _ask(configs: Texts) -> list[Row]:
    """The status of the nodes that answer; an error if none does."""
    answers = _answers(_nodes(configs))
    found = [each for each in answers if "silent" not in each]
    for each in answers:
        if error := each.get("silent"):
            if not found:
                raise error
            say(f"Error: {printable(error)}")
    return found


def _counted(status: Row) -> Row:
    """With the number of refusals in place of their reasons."""
    return status | ({"refused": sum(status["refused"].values())} if "refused" in status else {})


def _summaries(nodes: list[Row], wide: bool) -> list[Row]:
    """The rows of a table. Gateways have `agents`, and no estimate of their own: a table of one kind only leaves out
    the columns of the other, unless it is wide."""
    gateways = sum("agents" in each for each in nodes)
    absent = {"estimate", "lower", "upper"} if gateways == len(nodes) else set() if gateways else {"agents"}
    columns = _WIDE_COLUMNS if wide else [key for key in _COLUMNS if key not in absent]
    return [{key: each.get(key) for key in columns} for each in map(_counted, nodes)]
