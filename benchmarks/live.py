"""python -m benchmarks.live: how smoothly a browser plays a recording, and how large its page is.

Plays pages in headless Chromium, which draws without a graphics processor: what is seen here is the slowest case.
Browsers draw at most 60 times a second. The time to draw one moment says how far from that limit a page is.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import colme
from colme.live.page import write_page
from colme.live.simulation import SimulationFeed
from colme.sim.spec import RunSpec
from tests.support.browser import chromium, resize, until

METHOD = colme.CLColME(delta=0.1, level="agent", step=0.1, clock="global")
CASES: dict[str, tuple[list[Any], int, int]] = {  # methods, agents, frames
    "CL-colME, 5000 agents": ([METHOD], 5000, 120),
    "CL-colME and census, 5000 agents each": ([METHOD, colme.Census()], 5000, 60),
    "CL-colME, 20,000 agents": ([METHOD], 20_000, 40),
    "CL-colME, 10^5 agents as density": ([METHOD], 100_000, 120),
}
SECONDS = 6.0
VIEW = "const view = document.querySelector('.colme-live').colme;"
PLAY = f"""{VIEW}
view.seek(0); view.speed = 1; view.times = []; view.spent = [];
const render = view.render.bind(view);
view.render = (...args) => {{
  const began = performance.now();
  render(...args);
  view.spent.push(performance.now() - began);
}};
view.play();"""
FOUND = f"""{VIEW}
const spent = view.spent.slice(5).sort((a, b) => a - b);
return [view.framesPerSecond(), spent[spent.length >> 1], spent[Math.floor(spent.length * 0.95)]]"""


def main() -> None:
    table = Table("page", "MB", "frames per second", "ms to draw: median", "95 %")
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder, "profile")) as browser:
        for name, (methods, n_agents, n_frames) in CASES.items():
            scenario = colme.Scenario(n_agents=n_agents, means=(1.2, 2.0), sigma=2.0)
            specs = [RunSpec(method=method, source=scenario, steps=2000, degree=10) for method in methods]
            feed = SimulationFeed(specs, n_frames, title=name)
            page = write_page(Path(folder, "page.html"), feed.messages())
            resize(browser, 1280)
            browser.get(page.as_uri())
            until(browser, f"{VIEW} return view?.clouds.length > 0 && view.film.frames.length === {len(feed.steps)}")
            browser.execute_script(PLAY)
            time.sleep(min(SECONDS, len(feed.steps) / 12 - 0.2))
            rate, median, most = browser.execute_script(FOUND)
            table.add_row(name, f"{page.stat().st_size / 1e6:.2f}", f"{rate:.0f}", f"{median:.1f}", f"{most:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
