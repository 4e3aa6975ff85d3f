"""The journal of a node: one line for people when something changes that they may have to know or mend. Neighbors that
are heard, stale, cut or new, and why one is silent; samples that end or do not come; a certificate that expires.

It looks once a second, at what the device tells. A neighbor that comes and goes is reported three times, then once in
ten minutes, with a count."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from colme.node.device import Device

EVERY = 1.0
"""Seconds between two looks."""
DAYS = (30, 7, 1)
"""Days before the certificate expires at which to warn."""
NO_SAMPLES = 60.0
"""Seconds without a sample after which to say so."""
_REPEAT = 3600.0  # seconds before the same reason for silence is given again
_FLAPS, _CALM = 3, 600.0  # reports of one neighbor in so many seconds
_DAY = 86400.0

Say = Callable[[str], None]


class Journal:
    """Says what changes.

    say      takes a sentence about what you may have to mend
    tell     takes one about what is as it should be, such as a neighbor that is heard (default: say)
    expires  when the certificate of the agent does, in seconds since 1970
    wall     the time of day, in the same unit
    """

    def __init__(
        self, say: Say, tell: Say | None = None, *, expires: float | None = None,
        wall: Callable[[], float] = time.time,
    ):  # fmt: skip
        self.say, self.tell, self.expires, self._wall = say, tell or say, expires, wall
        self._next_look = -math.inf
        self._warned = math.inf  # days left when the certificate was last mentioned
        self._neighbors: dict[str, _Neighbor] = {}
        self._lost: list[str] = []  # neighbors that were not replaced yet
        self._revived: set[str] | None = None  # edges that were cut and are back
        self._denied: dict[str, int] = {}  # requests to reconsider a cut that were mentioned
        self._forgotten: int | None = None  # times that samples were
        self._surplus = self._recycled = 0
        self._count, self._since = -1, -math.inf  # samples, and when they were last more
        self._samples_said = False
        self._refused = 0  # samples of local agents for which there is no room, when they were last mentioned

    def look(self, device: Device, now: float, *, ended: bool = False) -> None:
        """Compare with the last look. ended: there will be no more samples."""
        if now < self._next_look:
            return
        self._next_look = now + EVERY
        self._look_at_certificate()
        self._look_at_samples(device.core.epoch, device.core.n_samples, now, ended)
        self._look_at_local_agents(device.core)
        self._look_at_neighbors(device, now)
        self._look_at_links(device.transport)

    def status(self) -> dict[str, Any]:
        """What belongs into the status of the node."""
        left = None if self.expires is None else self.expires - self._wall()
        return {"certificate_expires": self.expires, "certificate_days": None if left is None else left / _DAY}

    # The certificate

    def _look_at_certificate(self) -> None:
        if self.expires is None:
            return
        left = (self.expires - self._wall()) / _DAY
        passed = [days for days in (*DAYS, 0) if left <= days]
        if not passed or min(passed) >= self._warned:
            return
        self._warned = min(passed)
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.expires))
        if left <= 0:
            self.say(f"the certificate of this agent has expired ({day}): neighbors refuse it. Renew it, see: colme "
                     "node keys --rotate, and start the agent again.")  # fmt: skip
        else:
            hours = f"{24 * left:.0f} hours" if 24 * left >= 2 else "less than 2 hours"
            many = f"{left:.0f} days" if left >= 2 else hours
            self.say(f"the certificate of this agent expires in {many} ({day}). Renew it, see: colme node keys "
                     "--rotate, and start the agent again.")  # fmt: skip

    # Samples

    def _look_at_samples(self, tick: int, count: int, now: float, ended: bool) -> None:
        self._count = min(self._count, count)  # fewer: samples, or a local agent with its own, were forgotten
        if count > self._count:
            if self._samples_said and self._count >= 0 and not ended:
                self.tell("samples arrive again.")
            self._count, self._since, self._samples_said = count, now, False
        if self._samples_said:
            return
        if ended:
            what = "the samples have ended" if count else "there are no samples: their source is empty"
            self.say(f"{what}. The agent goes on with what its neighbors send. [samples] in node.toml says where "
                     "samples come from.")  # fmt: skip
            self._samples_said = True
        elif now - self._since >= NO_SAMPLES:
            self.say(f"no sample has arrived for {now - self._since:.0f} s. Look at where they come from: [samples] in "
                     "node.toml.")  # fmt: skip
            self._samples_said = True

    def _look_at_local_agents(self, core: Any) -> None:
        """Samples of local agents beyond those that a gateway has room for: 1, 2, 4, 8, ... of them."""
        refused = core.refused.get("agents", 0)
        if refused >= max(2 * self._refused, 1):
            self._refused = refused
            samples = "1 sample" if refused == 1 else f"{refused} samples"
            self.say(f"{samples} of new local agents did not count: there are {core.most_agents} already. See agents "
                     "and forget of [gateway] in node.toml.")  # fmt: skip

    # Neighbors

    def _look_at_neighbors(self, device: Device, now: float) -> None:
        core = device.core
        fresh, present = set(core.fresh(now)), core.neighbors
        for name in [name for name in self._neighbors if name not in present]:
            del self._neighbors[name]
            self._lost = [*self._lost, name][-len(present) - 8 :]
            if name in core.cuts.edges:
                self.tell(f"{name}: the edge is cut, because the means differ.")
            else:
                self.say(f"{name} is no longer a neighbor.")
        first = not self._neighbors and not self._lost
        back = self._look_at_cuts(core)
        for name in present:
            known = self._neighbors.get(name)
            if known is None:
                known = self._neighbors[name] = _Neighbor(now)
                if name in back:
                    self._lost = [lost for lost in self._lost if lost != name]
                    self.tell(f"{name}: the edge is back, because the means no longer differ.")
                elif not first:
                    instead = [lost for lost in self._lost if lost != name]
                    self._lost = instead[1:]
                    self.tell(f"{name} is a new neighbor{f', in place of {instead[0]}' if instead else ''}.")
            left = device.introductions is not None and name in device.introductions.left
            for sentence in known.look(name, name in fresh, core.stale_after, now, left=left):
                (self.tell if name in fresh else self.say)(sentence)
            if name not in fresh:
                for sentence in known.explain(name, device.why_silent(name), now):
                    self.say(sentence)

    def _look_at_cuts(self, core: Any) -> set[str]:
        """Edges that are back since the last look. What came of requests to forgive, and of samples, is said."""
        before, self._revived = self._revived, set(core.cuts.revived)
        for name, cut_edge in core.cuts.edges.items():
            if cut_edge.denied > self._denied.get(name, 0):
                self._denied[name] = cut_edge.denied
                self.tell(f"{name}: the edge stays cut, because the means still differ.")
        if self._forgotten is not None and core.cuts.forgotten > self._forgotten:
            self.say("the samples from before a cut were forgotten: those since differ from them. Does the sensor have "
                     "faults? See least and most of [samples] in node.toml.")  # fmt: skip
        self._forgotten = core.cuts.forgotten
        return set() if before is None else self._revived - before

    def _look_at_links(self, transport: Any) -> None:
        surplus = getattr(transport, "surplus", {})
        if (n := sum(surplus.values())) > self._surplus:
            if not self._surplus:
                names = ", ".join(sorted(surplus))
                self.say(f"surplus links of {names} were closed: more than an agent needs. Does another process use "
                         "its certificate?")  # fmt: skip
            self._surplus = n
        if (n := getattr(transport, "recycled", 0)) > self._recycled:
            self._recycled = n
            names = ", ".join(sorted(transport.links())) or "none"
            self.say(f"memory has grown, so all links were closed and are opened again. Does one of these agents send "
                     f"nonsense: {names}?")  # fmt: skip


class _Neighbor:
    """What was said about a neighbor."""

    def __init__(self, now: float):
        self.fresh = self.heard = False
        self._changed = now  # when it became fresh or stale
        self._said: list[float] = []  # when changes were reported
        self._kept = 0  # changes that were not
        self._word, self._explained = "", -math.inf

    def look(self, name: str, fresh: bool, stale_after: float, now: float, *, left: bool) -> list[str]:
        """What to say about a change. left: it said that it leaves."""
        if fresh != self.fresh:
            away, self._changed = now - self._changed, now
            self.fresh = fresh
            if fresh:
                sentence = f"{name} is heard again, after {away:.1f} s." if self.heard else f"{name} is heard."
                self.heard = True
            else:
                why = "it has left" if left else f"no record for {stale_after:.1f} s"
                sentence = f"{name} is stale: {why}."
            self._said = [at for at in self._said if now - at < _CALM]
            if len(self._said) < 2 * _FLAPS:
                self._said.append(now)
                if len(self._said) == 2 * _FLAPS:
                    sentence += f" It comes and goes: further changes are counted for {_CALM / 60:.0f} minutes."
                return [sentence]
            self._kept += 1
        elif self._kept and now - self._said[-1] >= _CALM:
            kept, self._kept = self._kept, 0
            self._said.append(now)
            return [f"{name} became fresh or stale {kept} more times; now it is {'fresh' if self.fresh else 'stale'}."]
        return []

    def explain(self, name: str, reason: Any, now: float) -> list[str]:
        """Why it is silent, if that is known and was not said lately."""
        if reason is None or (reason.word == "waiting" and now - self._changed < NO_SAMPLES):
            return []
        if now - self._explained < (_REPEAT if reason.word == self._word else EVERY):
            return []
        self._word, self._explained = reason.word, now
        return [f"{name} is silent: {reason.sentence}"]
