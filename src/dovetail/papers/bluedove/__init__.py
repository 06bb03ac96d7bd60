"""BlueDove's evaluation (section IV), under the seeded simulator.

Read in this order:

    run_configuration.py    the configuration of a run, and the rows of its results
    runner.py               runs one configuration
    sweep.py                runs many configurations as Spark tasks
    figure_model.py         figures, their panels and curves
    figures.py              the paper's figures
    paper_numbers.py        the paper's numbers beside ours
    elasticity_numbers.py   the same for matchers that join and crash, and for overhead
    hypotheses.py           possible reasons for differences, each tested
    scale_experiments.py    beyond the paper: 2,000 matchers, 100 million boxes
    scale_figures.py        the figures of these
    scaling_limits.py       conclusions: where a growing cluster gains no more
    figure_charts.py        the charts of figures
    report.py               the page
"""
