"""The frame of a report: one self-contained HTML page, as text.

The page contains its styles, follows the reader's theme, works without scripts, and reveals nothing
about the machine that made it.
"""

from collections.abc import Mapping
from html import escape

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbf9; --card: #ffffff; --text: #1d2126; --soft: #5b6470; --rule: #dfe2e6;
  --good: #1a7f4b; --bad: #b3261e; --accent: #0b62c4;
  --series-1: #8a8f98; --series-2: #c2620a; --series-3: #0b62c4; --series-4: #11803f;
  --series-5: #1d2126;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1c2026; --text: #e7eaee; --soft: #a0a9b4; --rule: #343a43;
    --good: #5fd38d; --bad: #ff8a80; --accent: #7db7ff;
    --series-1: #98a0ab; --series-2: #f2a154; --series-3: #7db7ff; --series-4: #5fd38d;
    --series-5: #e7eaee;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.6rem, 5vw, 2.2rem); line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
h3.after { margin-top: 1.5rem; }
p, li { max-width: 46rem; }
.lead { font-size: 1.1rem; }
.soft { color: var(--soft); }
.numbers { font-variant-numeric: tabular-nums; }
dl.run { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr));
  gap: .75rem 1.5rem; margin: 1.5rem 0 0; padding: 1rem 1.25rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .6rem; }
dl.run dt { font-size: .8rem; color: var(--soft); }
dl.run dd { margin: 0; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0;
  border-bottom: 1px solid var(--rule); }
thead th { font-size: .8rem; font-weight: 600; color: var(--soft); white-space: nowrap; }
tbody th { font-weight: 500; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.values thead th { white-space: normal; min-width: 7rem; }
.values tbody th { min-width: 12rem; }
.check tbody th { min-width: 12rem; }
.check [data-label="Paper"], .check [data-label="Ours"] { min-width: 8rem; }
.verdict { white-space: nowrap; font-weight: 600; }
.holds { color: var(--good); } .fails { color: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; list-style: none; padding: 0;
  margin: .75rem 0 1rem; font-size: .92rem; }
.legend li { display: flex; align-items: center; gap: .5rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1.25rem; }
.panel { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: 1rem 1rem .75rem; margin: 0; min-width: 0; max-width: 36rem; }
.chart { display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
.key { width: 40px; height: 20px; flex: none; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.tick, .label { fill: var(--soft); }
.line { fill: none; stroke: var(--colour); stroke-width: 2; }
.mark { fill: var(--card); stroke: var(--colour); stroke-width: 2; }
.mark .dot { fill: var(--colour); stroke: var(--colour); }
.mark:hover { stroke-width: 4; }
.series-1 { --colour: var(--series-1); stroke-dasharray: none; }
.series-2 { --colour: var(--series-2); }
.series-3 { --colour: var(--series-3); }
.series-4 { --colour: var(--series-4); }
.series-5 { --colour: var(--series-5); }
.bar { fill: var(--colour); }
.place { stroke: var(--colour); stroke-width: 1.5; stroke-dasharray: 3 3; }
.name { fill: var(--colour); font-weight: 600; }
.line.series-1 { stroke-dasharray: 2 4; } .line.series-2 { stroke-dasharray: 8 4; }
.line.series-3 { stroke-dasharray: 12 3 2 3; }
details { margin-top: .5rem; font-size: .92rem; }
summary { cursor: pointer; color: var(--accent); }
code { font-size: .92em; }
@media (max-width: 44rem) {
  main { padding-top: 1.5rem; }
  dl.run { grid-template-columns: 1fr 1fr; }
  .chart { font-size: 16px; }  /* of the drawing, which is narrower here */
  .check thead { position: absolute; clip-path: inset(50%); }
  .check tr { display: block; padding: .75rem 0; border-bottom: 1px solid var(--rule); }
  .check th, .check td { display: block; border: 0; padding: .1rem 0; text-align: left; }
  .check td::before { content: attr(data-label) ": "; color: var(--soft); }
  .check td.verdict::before { content: ""; }
}
@media print { .panel { break-inside: avoid; } }
"""


def page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{body}</main>\n</body>\n</html>\n"
    )


def head(title: str, lead: str, about: str, facts: Mapping[str, str]) -> str:
    """Return the headline, the main result, and facts about the run."""
    entries = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return (
        f'<header><h1>{title}</h1><p class="lead">{lead}</p><p class="soft">{about}</p>'
        f'<dl class="run">{entries}</dl></header>\n'
    )


def as_text(plain: str) -> str:
    """Return escaped text, with typographic quotes and minus signs."""
    text = escape(plain).replace("&#x27;#&#x27;", "<code>#</code>").replace("&#x27;", "&rsquo;")
    return f"&minus;{text[1:]}" if text.startswith("-") else text
