"""``python -m yuriiformer``: the command line, also under torchrun."""

from __future__ import annotations

import sys

from yuriiformer.cli.main import main

sys.exit(main())
