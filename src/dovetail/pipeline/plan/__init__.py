"""`dovetail plan`: sketch sizes, dimensions, segment borders, number of matchers.

Read in this order:

    job.py          options to files
    statistics.py   count messages and subscriptions on Spark: DataFrame to DataFrame
    counts.py       collect these counts from Spark as Python objects of bounded size
    planner.py      counts to a plan
    dimensions.py   which dimensions to search
    placement.py    places for matchers
    borders.py      cut one dimension evenly
    load.py         estimate the load of matchers
    queue_model.py  at which rate a queue grows
    cost.py         what a point costs a matcher on this machine
    document.py     the plan as JSON
    report.py, charts.py   the plan as a page
"""
