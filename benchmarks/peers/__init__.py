"""How accurate and how fast `colme.estimate` is beside its peers: `python -m benchmarks.peers` writes docs/peers.md.

estimators  colme and its peers, one function each          lme4       R's, if it is there
tables      real tables, and made ones with known means     trials     what is learned from, and how it is scored
jobs        every peer on every trial, resumed              scaling    CPU and memory from 10^3 to 10^6 agents
beyond      crossed effects and slopes: what colme lacks    results    all of it, in results.json
rows, page, figures                                         docs/peers.md

The peers are installed by `pip install --group peers`; those that are missing are left out, and the page says so.
"""
