"""The frame of a report: one HTML page that needs nothing else. Text in, text out.

The page carries its styles, follows the reader's theme, fits a phone, and works without scripts.
"""

from html import escape

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbf9; --card: #fff; --text: #1d2126; --soft: #5b6470; --rule: #dfe2e6;
  --good: #1a7f4b; --bad: #b3261e; --accent: #0b62c4;
  --process: #b3261e; --network: #c2620a; --disk: #6d4bb8;
  --node-1: #0b62c4; --node-2: #11803f; --node-3: #9a5b00; --area: #7aa7d9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1c2026; --text: #e7eaee; --soft: #a0a9b4; --rule: #343a43;
    --good: #5fd38d; --bad: #ff8a80; --accent: #7db7ff;
    --process: #ff8a80; --network: #f2a154; --disk: #b9a1f2;
    --node-1: #7db7ff; --node-2: #5fd38d; --node-3: #e3b341; --area: #3f6ea5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.5rem, 5vw, 2.1rem); line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p, li { max-width: 48rem; }
.lead { font-size: 1.1rem; }
.soft { color: var(--soft); font-weight: 400; }
dl.run { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr));
  gap: .75rem 1.5rem; margin: 1.5rem 0 0; padding: 1rem 1.25rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .6rem; }
dl.run dt { font-size: .8rem; color: var(--soft); }
dl.run dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0;
  border-bottom: 1px solid var(--rule); }
thead th { font-size: .8rem; font-weight: 600; color: var(--soft); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { font-weight: 600; white-space: nowrap; }
.kept { color: var(--good); } .broken { color: var(--bad); } .untested { color: var(--soft); }
.drawing { display: block; width: 100%; min-width: 46rem; height: auto;
  font: 12px system-ui, sans-serif; }
.lane { fill: var(--text); font-size: 11px; } .tick { fill: var(--soft); }
.grid { stroke: var(--rule); } .whole { stroke: var(--good); }
rect.process { fill: var(--process); } rect.network { fill: var(--network); }
rect.disk { fill: var(--disk); }
rect.node-0 { fill: var(--soft); } rect.node-1 { fill: var(--node-1); }
rect.node-2 { fill: var(--node-2); } rect.node-3 { fill: var(--node-3); }
rect.node { opacity: .75; } polygon.area { fill: var(--area); }
path.broken { stroke: var(--bad); stroke-width: 3; fill: none; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0;
  font-size: .9rem; }
.legend svg { width: 14px; height: 14px; vertical-align: -2px; margin-right: .35rem; }
details { font-size: .92rem; font-weight: 400; margin: .25rem 0; }
summary { cursor: pointer; color: var(--accent); }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--rule);
  border-radius: .5rem; padding: .75rem 1rem; font-size: .85rem; line-height: 1.45; }
.violation { border-left: 3px solid var(--bad); padding-left: 1rem; margin: 1rem 0; }
@media (max-width: 44rem) {
  main { padding-top: 1.5rem; }
  dl.run { grid-template-columns: 1fr 1fr; }
  .promises thead { position: absolute; clip-path: inset(50%); }
  .promises tr { display: block; padding: .75rem 0; border-bottom: 1px solid var(--rule); }
  .promises th, .promises td { display: block; border: 0; padding: .1rem 0; text-align: left; }
  .promises td.number::before { content: attr(data-label) ": "; color: var(--soft); }
}
"""


def page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{body}</main>\n</body>\n</html>\n"
    )
