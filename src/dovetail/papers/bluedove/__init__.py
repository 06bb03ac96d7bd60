"""BlueDove's evaluation (section IV), under the seeded simulator.

Read in this order:

    configuration.py  what a configuration is, and its rows
    runs.py           run one configuration
    cells.py          configurations as Spark tasks
    figures.py        what each figure shows; figure_parts.py has panels and lines
    numbers.py        the paper's numbers beside ours; plane_numbers.py when matchers come and go
    reasons.py        why some differ, tried out
    scale.py          beyond the paper: 2,000 matchers, 100 million boxes
    beyond.py         its figures; bends.py has their conclusions
    report.py         the page; panel_charts.py has its charts
"""
