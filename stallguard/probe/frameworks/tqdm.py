"""tqdm: the thread that draws a bar again if the loop forgot to.

It begins with the first bar, sleeps for ten seconds (`tqdm.monitor_interval`), and looks at all bars: TMonitor.run of
tqdm 4.  Hugging Face's Trainer, Lightning and mlx-lm show bars of tqdm.
"""

from __future__ import annotations

from ..libraries import Library

LIBRARY = Library("tqdm", displays=(("tqdm._monitor", "run"),))
