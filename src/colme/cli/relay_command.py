"""colme node relay"""

from __future__ import annotations

import os
from typing import Any

import click


@click.command("relay")
@click.option("-c", "--config", type=click.Path(), metavar="FILE", help="The configuration, instead of the rest.")
@click.option("--listen", metavar="HOST:PORT", help="Where agents call in (default: 0.0.0.0:7460).")
@click.option("--name", metavar="NAME", help="The common name of its certificate (default: relay).")
@click.option("--ca", type=click.Path(), metavar="FILE", help="Certificates of the authorities to trust.")
@click.option("--certificate", type=click.Path(), metavar="FILE", help="Of the relay.")
@click.option("--key", type=click.Path(), metavar="FILE", help="Of the relay.")
@click.option("--agent", "agents", multiple=True, metavar="NAME=PORT", help="An agent and its port; again for more.")
def command(config: str | None, agents: tuple[str, ...], **flags: str | None) -> None:
    """Carry TLS between agents that cannot dial each other, until SIGTERM or Ctrl-C. It cannot read what it carries.

    \b
    Examples:
      colme node relay --config relay.toml
      colme node relay --ca ca.pem --certificate relay.pem --key relay.key --agent pi-4=7501
    """
    os.environ.setdefault("COLME_NUMBA", "0")  # a relay computes nothing
    from colme.node.net.relay import RelayConfig, run_relay

    given = {key: value for key, value in flags.items() if value is not None}
    if config is not None:
        if given or agents:
            raise click.UsageError("--config says it all: leave the other options out, or write them into the file.")
        found = RelayConfig.read(config)
    else:
        served = dict(map(_agent, agents))
        missing = [f"--{key}" for key in ("ca", "certificate", "key") if key not in given]
        missing += [] if served else ["--agent"]
        if missing:
            raise click.UsageError(
                f"{', '.join(missing)} missing: a relay has keys and agents. Give them, or --config."
            )
        files = {key: given.pop(key) for key in ("ca", "certificate", "key")}
        found = RelayConfig.parse(given | {"tls": files, "agents": served})
    run_relay(found, say=lambda text: click.echo(text, err=True))


def _agent(text: str) -> tuple[str, Any]:
    name, _, port = text.partition("=")
    if not name or not port.isdecimal():
        raise click.BadParameter(f"{text!r} is no name and port. Try pi-4=7501.", param_hint="--agent")
    return name, int(port)
