"""Attributes: spaces, where-clauses, boxes and points. Pure.

A space declares the attributes of an application. A where-clause becomes boxes in the space, a
publication becomes a point. `space.matches` is the oracle: every index is tested against it.

Where-clauses, each module importing only those below it:

    space_registry.py  the spaces of a broker: finds the one that governs a topic
    clauses.py         the clauses of many subscriptions: finds those that a publication satisfies
    declaration.py     makes spaces of `[spaces.NAME]` in a configuration file
    space.py           makes boxes of clauses, and points of publications
    filter_query.py    parses a clause behind a topic filter: `sensor/+?location=roomA&value>25`
    grammar.py         parses where-clauses
    simple_grammar.py  a fast path for clauses without parentheses
    where_clause.py    a parsed clause, with its rules and limits
    conjunctions.py    conditions joined by `and`: half-open ranges and sets of texts
    tokens.py          names, numbers, texts and signs

An error in a clause is a `WhereError`. It shows the clause with a caret below the wrong character.
Clauses are checked when a client subscribes, never when one publishes.

Boxes:

    box_index.py       finds the boxes that a point falls in, while boxes come and go
    partition.py       mPartition (BlueDove III-A): which matchers hold a box
    policies.py        chooses the candidate that is asked about a point (BlueDove III-B)
    scheme.py          the settings for how matchers share a space
    kernels/           compiled parts of the index
"""
