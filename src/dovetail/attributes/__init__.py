"""Attributes: spaces, where-clauses, boxes and points. Pure.

A space declares the attributes of an application. A where-clause becomes boxes in the space, a
publication becomes a point. `space.matches` is the oracle: every index is tested against it.

Where-clauses, each module importing only those below it:

    space_registry.py  the spaces of a broker: which one governs a topic
    clauses.py         the clauses of many subscriptions, and which of them a publication satisfies
    declaration.py     `[spaces.NAME]` in a configuration file to spaces
    space.py           clauses to boxes, publications to points
    filter_query.py    a clause behind a topic filter: `sensor/+?location=roomA&value>25`
    grammar.py         the grammar
    simple_grammar.py  a fast path for clauses without parentheses
    where_clause.py    what a clause means, its rules and its limits
    conjunctions.py    conditions that hold together: half-open ranges and sets of texts
    tokens.py          names, numbers, texts and signs

A fault in a clause is a `WhereError`. It shows the clause with a caret below the wrong character.
Clauses are checked when a client subscribes, never when one publishes.

Boxes:

    box_index.py       finds the boxes that a point falls in, while boxes come and go
    partition.py       mPartition (BlueDove III-A): which matchers hold a box
    policies.py        which candidate is asked about a point (BlueDove III-B)
    scheme.py          how matchers share a space, as its settings say
    kernels/           compiled parts of the index
"""
