"""Topics: names and filters, the exact index, and the sketches that brokers exchange. Pure.

names.py         valid names and filters, and what matches (MQTT 5.0, 4.7): the oracle of all below
topic_column.py  many topics as two arrays
trie.py          the exact index of a broker's own filters
sketches/        a compact summary of filters: no false negatives, few false positives
bank.py          searches the sketches of many brokers at once
kernels/         compiled parts
"""
