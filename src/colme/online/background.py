"""A vote in a thread of its own, while the model goes on learning: the same bits, some events later.

A vote reads the agents as they are at its event and changes only what the rule has learned and the snapshots. So it can
work on a copy of the agents while events change the agents themselves, and once its results are put in place, the model
is the same as if learning had waited. When the next vote is due does not depend on its results.
"""

from __future__ import annotations

from threading import Thread

from colme.online.agents import AgentTable
from colme.online.rules import Rule


class BackgroundVote:
    """A vote of a rule as of now."""

    def __init__(self, rule: Rule):
        self._sums = rule.call()
        self._rule = rule.with_table(rule.table.as_of_now())
        self._error: BaseException | None = None
        self._thread = Thread(target=self._work, name="colme-vote")
        self._thread.start()

    def _work(self) -> None:
        table = self._rule.table
        try:
            if table.snapshots is not None:
                table.snapshots = table.snapshots.copy()
            self._rule.judge(*self._sums)
        except BaseException as error:  # whoever asks for the rule is told
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def rule_for(self, table: AgentTable) -> Rule:
        """The rule after the vote, of these agents, with snapshots in place. Waits until there is one."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        rule, kept = self._rule, self._rule.table.snapshots
        if kept is not None and table.snapshots is not None:
            if len(table.snapshots) == len(kept):
                table.snapshots = kept
            else:  # there are more agents
                table.snapshots[: len(kept)] = kept
        rule.table = table
        return rule
