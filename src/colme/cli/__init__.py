"""The command line: parse, call the library, print. Every command is a module that is imported when it is called."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Any

import click

from colme import __version__
from colme.cli.output import only_first_rank_speaks, say
from colme.errors import ColmeError, ColumnError, ExperimentError, missing_extra, one_of, printable

COMMANDS = {  # name -> help; each is a module of its own, imported when it is called
    "run": "Run an experiment file: only the missing runs; Ctrl-C is safe, run again to resume.",
    "simulate": "Simulate methods from flags alone and print their errors.",
    "watch": "Watch a simulation in the browser while it runs; pause it, restart it with other values.",
    "estimate": "Estimate every agent's mean from your own table: CSV, Parquet, Arrow.",
    "moments": "Write the moments of a part of a table, to merge with those of other parts or sites.",
    "node": "Run an agent on this device, ask it how it is, make keys and plans for a fleet.",
    "report": "Write one self-contained HTML page about an experiment.",
    "plot": "Draw the figures of an experiment: SVG, PDF and the CSV behind them.",
    "list": "List methods, experiments, figures or the runs of an experiment.",
    "doctor": "Check the installation: versions, extras, compiled kernels, folders.",
    "completion": "Print the completion script of your shell.",
}

INTRODUCTION = """Collaborative mean estimation: many agents estimate their own means from noisy samples, find out which
agents share their mean, and learn together, without a server.

\b
I have a table
  colme estimate flights.csv --agent tailnum --value arr_delay

\b
I have a loop, or devices
  colme node demo                      twelve agents on this machine
  colme node plan hosts.txt -o fleet   neighbors, keys, a folder per device

\b
I do research
  colme run cl_colme                   the CL-colME paper's experiment
  colme report cl_colme                a page: a run to play, figures, numbers
  colme watch cl_colme                 in the browser, while it runs
  colme simulate --method cl-colme --n-agents 1000 --means 0,1
  colme list experiments               the experiments that come with colme
"""


class _Commands(click.Group):
    """Subcommands are imported when they are called, so that `colme --help` is quick."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"colme.cli.{name}_command").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if not context.resilient_parsing and not args[0].startswith("-"):
            one_of(args[0], COMMANDS, "command", ExperimentError)
        return super().resolve_command(context, args)


@click.group(
    cls=_Commands, help=INTRODUCTION, invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
)  # fmt: skip
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def colme(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 success, 1 failure, 2 wrong usage, 130 interrupted. An error is one sentence; --debug
    shows the traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or os.environ.get("COLME_DEBUG", "0") not in ("", "0")
    arguments = [each for each in arguments if each != "--debug"]
    if any(each.startswith("--ranks") for each in arguments):
        only_first_rank_speaks()
    try:
        code = colme.main(args=arguments, prog_name="colme", standalone_mode=False, obj=arguments)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().removesuffix("\n"))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        say(str(error.__cause__ or error) or "Interrupted.")  # click hides the message
        code = 130
    except BrokenPipeError:  # the reader, such as head, has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if debug:
            raise
        sentence, code = _told(error, arguments[0])
        say(f"Error: {sentence}")
    sys.exit(code if isinstance(code, int) else 0)


def _told(error: Exception, command: str) -> tuple[str, int]:
    """An error as a sentence, and the exit code."""
    if isinstance(error, ColmeError | OSError):
        return printable(error), 2 if isinstance(error, ExperimentError | ColumnError) else 1
    if isinstance(error, MemoryError):
        return "there is not enough memory. Ask for fewer agents, steps or runs at once (-j 1).", 1
    if isinstance(error, ModuleNotFoundError):
        from colme.lab.doctor import extras

        package = str(error.name).partition(".")[0]
        for extra, packages in extras().items():
            if package in packages:
                return str(missing_extra(package, extra, f"colme {command}")), 1
    return f"{type(error).__name__}: {printable(error)}. This is a bug in colme; --debug shows where.", 1
