"""HTML pages without scripts or network access.

page.py        the frame of a page: styles, head, text
line_chart.py  line charts as SVG
"""
