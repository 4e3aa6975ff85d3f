"""colme node"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import click

from colme.cli.parameters import METHOD

# Not cli.output's: a device that runs must not load the lab, which is most of what that imports.
_form = click.option(
    "--format", "form", type=click.Choice(("table", "json", "csv")), default="table", show_default=True,
    help="How to print the data.",
)  # fmt: skip
_configs = click.option(
    "-c", "--config", "configs", type=click.Path(), multiple=True, default=("node.toml",), show_default=True,
    metavar="FILE", help="The configuration of a node on this machine; again for more.",
)  # fmt: skip


@click.group("node")
def command() -> None:
    """Run an agent on this device, ask it how it is, make keys and plans for a fleet.

    \b
    Examples:
      colme node demo                                      twelve agents on this machine
      colme node plan hosts.txt --method cl-colme --set sigma=2 -o fleet
      sensor | colme node run --config fleet/pi-3/node.toml
      colme node status --config fleet/pi-3/node.toml --format json
    """


@command.command("run")
@click.option("-c", "--config", type=click.Path(), default="node.toml", show_default=True, metavar="FILE",
              help="The configuration.")  # fmt: skip
@click.option("--name", metavar="NAME", help="Who it is, instead of what the file says.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there, on loopback (127.0.0.1:9464).")
@click.option("--until-end", is_flag=True, help="Stop when there will be no more samples.")
def run(config: str, name: str | None, metrics: str | None, until_end: bool) -> None:
    """Run an agent until SIGTERM or Ctrl-C; both save its state. Estimates are JSON lines on stdout.

    \b
    Examples:
      sensor | colme node run --config node.toml
      colme node run --config node.toml --metrics 127.0.0.1:9464 > estimates.jsonl
    """
    os.environ.setdefault("COLME_NUMBA", "0")  # before anything is imported: a device has no use for a compiler
    from colme.node.config import NodeConfig
    from colme.node.runner import run_node

    run_node(NodeConfig.read(config, name=name), say=_say, until_end=until_end, metrics=metrics)


@command.command("status")
@_configs
@_form
def status(configs: tuple[str, ...], form: str) -> None:
    """How the running nodes of these configurations are.

    \b
    Example:
      colme node status --config fleet/pi-3/node.toml --format json
    """
    found = _ask(configs)
    if form == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _emit([_summary(each) for each in found], form)


@command.command("neighbors")
@_configs
@_form
def neighbors(configs: tuple[str, ...], form: str) -> None:
    """Whom the running nodes of these configurations hear, and how lately.

    \b
    Example:
      colme node neighbors --config fleet/pi-3/node.toml
    """
    _emit([{"agent": each["name"]} | row for each in _ask(configs) for row in each["neighbor_rows"]], form)


@command.command("watch")
@_configs
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(min=1), help="Stop after so many (default: Ctrl-C).")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True,
              help="A live table, or JSON lines.")  # fmt: skip
def watch(configs: tuple[str, ...], every: float, times: int | None, form: str) -> None:
    """A live table of the running nodes of these configurations.

    \b
    Example:
      colme node watch -c fleet/pi-1/node.toml -c fleet/pi-2/node.toml
    """
    import itertools
    import time

    from colme.cli.live import live_rows

    with live_rows(lines=form == "json") as show:
        for turn in itertools.count(1):
            show([_summary(each) for each in _ask(configs)])
            if turn == times:
                return
            time.sleep(every)


@command.command("keys")
@click.argument("names", nargs=-1)
@click.option("-a", "--authority", default="authority", show_default=True, metavar="FOLDER",
              help="Where the authority is; it is made if there is none.")  # fmt: skip
@click.option("--network", default="colme", show_default=True, help="The name in the authority's certificate.")
@click.option("--host", "hosts", multiple=True, help="An address or name that others dial; again for more.")
@click.option("-o", "--output", default=".", show_default=True, metavar="FOLDER", help="Each agent gets one in it.")
@click.option("--days", type=click.IntRange(min=1), help="For which certificates are good (default: 365).")
@click.option("--rotate", is_flag=True, help="Replace the keys of agents that have some.")
def keys(
    names: tuple[str, ...], authority: str, network: str, hosts: tuple[str, ...], output: str, days: int | None,
    rotate: bool,
) -> None:  # fmt: skip
    """Make an authority, and a key and certificate for each of these agents.

    \b
    Examples:
      colme node keys pi-3 --host 192.168.1.13 -o fleet
      colme node keys pi-3 --rotate -o fleet
    """
    from colme.node import keys as made

    if not rotate and not Path(authority, "ca.key").exists():
        made.make_authority(authority, network)
        _say(f"{authority} holds a new authority. Keep its ca.key off the devices.")
    for name in names:
        folder = Path(output, name)
        good_for = made.DAYS if days is None else days
        if rotate:
            made.rotate(authority, name, folder=folder, days=good_for)
        else:
            made.make_certificate(authority, name, hosts, folder=folder, days=good_for)
        click.echo(folder / f"{name}.pem")


@command.command("plan")
@click.argument("hosts", type=click.Path())
@click.option("-o", "--output", default="fleet", show_default=True, metavar="FOLDER", help="A new folder.")
@click.option("-m", "--method", type=METHOD, default="cl-colme", show_default=True, metavar="NAME", help="What to run.")
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="A field of the method; again for more.")
@click.option("--network", default="colme", show_default=True, help="Its name.")
@click.option("--preset", default="lan", show_default=True, help="What it is like: local, lan or wan.")
@click.option("--tick-rate", type=float, default=10.0, show_default=True, help="Records per second.")
@click.option("--degree", type=int, help="Neighbors of each agent (default: 6, or fewer).")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the graph.")
@click.option("--days", type=click.IntRange(min=1), help="For which certificates are good (default: 365).")
@click.option("--replace/--no-replace", default=True, show_default=True, help="Neighbors that are lost.")
@click.option("--admit", type=click.Choice(("members", "certified")), default="members", show_default=True,
              help="As neighbors: agents of this plan, or whoever has a certificate of its authority.")  # fmt: skip
def plan(hosts: str, output: str, method: str, fields: tuple[str, ...], **options: Any) -> None:
    """Write a folder for each agent of a fleet, from a list of hosts: configuration, key and certificates.

    HOSTS is a text file with a line per agent: its name, and host, host:port, or - if nobody can dial it.

    \b
    Example:
      colme node plan hosts.txt --method cl-colme --set sigma=2 --degree 4 -o fleet
    """
    from colme.cli.fields import parse_word
    from colme.node.config import method_of
    from colme.node.plan import plan as write_plan
    from colme.node.plan import read_hosts

    table: dict[str, Any] = {"method": method}
    for field in fields:
        key, equals, value = field.partition("=")
        if not equals:
            raise click.BadParameter(f"{field!r} has no value. Try sigma=2.", param_hint="--set")
        table[key.replace("-", "_")] = parse_word(value)
    known = read_hosts(hosts)
    folder = write_plan(known, output, method=method_of(table), **options)
    _say(f"{folder} holds {len(known)} agents. Copy each folder to its device; keep {folder / 'authority'} here.")
    for host in known:
        click.echo(folder / host.name / "node.toml")


@command.command("demo")
@click.option("--seconds", type=click.FloatRange(min=1.0), default=20.0, show_default=True, help="How long they run.")
@click.option("--n-agents", type=click.IntRange(min=3), default=12, show_default=True, help="Processes.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the graph and the samples.")
@_form
def demo(seconds: float, n_agents: int, seed: int, form: str) -> None:
    """Start agents on this machine, show how they find their twins, kill one, and bring it back.

    \b
    Example:
      colme node demo --seconds 30
    """
    os.environ.setdefault("COLME_NUMBA", "0")  # a dozen agents need no compiler
    from colme.cli.live import live_rows
    from colme.node.demo import Outcome, run_demo

    errors = []
    views = run_demo(seconds=seconds, n_agents=n_agents, seed=seed)
    with contextlib.closing(views), live_rows(words=True) as show:  # closed: Ctrl-C ends the agents, too
        for found in views:
            if isinstance(found, Outcome):
                errors = [{"where": where, "rms_error": error} for where, error in found._asdict().items()]
            else:
                summary = {"seconds": round(found.seconds, 1), "rms_error_local": found.local_error,
                           "rms_error": found.error, "event": found.event}  # fmt: skip
                show(found.reports, summary)
    _emit(errors, form)


def _ask(configs: tuple[str, ...]) -> list[dict[str, Any]]:
    from colme.node.config import NodeConfig
    from colme.node.status import ask

    return [ask(NodeConfig.read(config).socket) for config in configs]


def _summary(status: dict[str, Any]) -> dict[str, Any]:
    """A row of a table."""
    refused = sum(status["refused"].values())
    names = ("name", "tick", "samples", "mean", "radius", "estimate", "neighbors", "fresh", "cut", "incarnation")
    return {key: status[key] for key in names} | {
        "refused": refused, "bad_lines": status["bad_lines"], "late": status["late"],
    }  # fmt: skip


def _emit(rows: list[dict[str, Any]], form: str) -> None:
    from colme.cli.output import emit

    emit(rows, form)


def _say(text: str) -> None:
    click.echo(text, err=True)
