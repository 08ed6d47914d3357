"""How often a search may be wrong, and how that is shared among its many tries.

Who tries a hundred choices at 5 % finds five that are "faster" and are not. So the whole search has
one error, `ERROR`: the chance that it proposes any pin, or states any gain, that is none.

- One half is for the screening. It is given out before any data is seen, so that by Bonferroni's
  inequality (Dunn 1961) the sum holds, whatever the tries have to do with each other: sweep `s`
  over the tunings gets the 2^-s part of it (so that the sum holds however many follow; Foster and
  Stine 2008 on such sequences), each tuning the same part of its sweep. Within a trial all arms
  and all looks share that, see `backend.measure.trial`.
- One half is for the confirmation. Of many tries the best one looks better than it is (the winner's
  curse: Lohmueller et al. 2003; Zoellner and Pritchard 2007), so what the screening measured is
  never stated. What it kept is compared with the untouched graph on new data, in processes of their
  own, and only that interval counts. The `n`-th confirmation of one search, if it went on after the
  first, gets the 2^-n part, each of its looks the same part of that.

Dropping what brings nothing proposes no pin, so that it spends nothing. A try that failed, or was
interrupted, said nothing, and may be made again. A search that is begun anew is another one, with
an error of its own: of twenty searches without any gain one may propose something.
"""

from __future__ import annotations

ERROR = 0.05
SCREENING = ERROR / 2
CONFIRMING = ERROR / 2
PRUNING = 0.05
"""The error of the comparison that drops a choice; see above for why it is not of the same sum."""

LOOKS = (5, 10)
"""Processes after which a confirmation is looked at."""


def screening_error(sweep: int, subjects: int, parts: int = 1) -> float:
    """What a trial of one of so many subjects may spend in this sweep, from 1 on; `parts`: trials
    among which one subject's part is shared."""
    return SCREENING * 0.5**sweep / subjects / parts


def confirming_error(turn: int) -> float:
    """What one look of the `turn`-th confirmation may spend, from 1 on."""
    return CONFIRMING * 0.5**turn / len(LOOKS)
