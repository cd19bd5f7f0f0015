"""How much of the gap between filled and exact each spliced part closes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ridgefill.evaluate.bootstrap import mean_interval, ratio_interval

Record = Mapping[str, Any]


def splice_rows(records: Sequence[Record], plan: str) -> list[dict[str, Any]]:
    """One row per measure, component and layer range, over the prompts that were spliced.

    ``gap`` is the damage of the fill in nats, filled minus exact; ``closed`` the share of it that
    the splice undoes, null where the gap's interval holds zero: a share of nothing says nothing.
    """
    rows = []
    for measure in dict.fromkeys(record["measure"] for record in records):
        found = [r["plans"][plan] for r in records if r["measure"] == measure]
        gaps = [one["filled"] - one["exact"] for one in found]
        gap = mean_interval(gaps)
        for number, part in enumerate(found[0]["parts"]):
            closed = [one["filled"] - one["parts"][number]["damage"] for one in found]
            share = ratio_interval(closed, gaps).as_json() if gap.low > 0 else None
            rows.append(
                {
                    "plan": plan,
                    "measure": measure,
                    "component": part["component"],
                    "first": part["first"],
                    "last": part["last"],
                    "gap": gap.as_json(),
                    "closed": share,
                    "undone": mean_interval(closed).as_json(),
                }
            )
    return rows
