"""How to cite the paper: the one place that model cards, tables and pages take it from."""

from __future__ import annotations

PAPER = "YuriiFormer: A Suite of Nesterov-Accelerated Transformers"
AUTHORS = "Zimin, Polyanskiy and Rigollet"
YEAR = 2026
ARXIV = "2601.23236"
URL = f"https://arxiv.org/abs/{ARXIV}"
SHORT = f"{AUTHORS} ({YEAR}), arXiv:{ARXIV}"
BIBTEX = f"""\
@article{{zimin2026yuriiformer,
  title   = {{{{YuriiFormer}}: A Suite of {{Nesterov}}-Accelerated Transformers}},
  author  = {{Zimin, Aleksandr and Polyanskiy, Yury and Rigollet, Philippe}},
  journal = {{arXiv preprint arXiv:{ARXIV}}},
  year    = {{{YEAR}}}
}}
"""
