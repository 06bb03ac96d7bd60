"""Topics: names and filters, the exact index, and the sketches that brokers exchange. Pure.

names.py         what is valid and what matches (MQTT 5.0, 4.7): the oracle of all below
topic_column.py  many topics as two arrays
trie.py          the exact index of a broker's own filters
sketches/        a compact summary of filters: no false negatives, few false positives
bank.py          the sketches of many brokers, searched at once
kernels/         compiled parts
"""
