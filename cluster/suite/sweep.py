"""The same cluster in another size."""

from __future__ import annotations

from weir.cluster.description import Description


def scaled(description: Description, members: int) -> Description:
    """The description with about so many members: counts, batch and training members grow in proportion."""
    factor = members / sum(group.count for group in description.members)
    if factor == 1:
        return description
    rules = description.rules
    return description.model_copy(
        update={
            "members": tuple(
                group.model_copy(update={"count": max(1, round(group.count * factor))}) for group in description.members
            ),
            "rules": rules.model_copy(
                update={
                    "batch": max(1, round(rules.batch * factor)),
                    "train_members": max(1, round(rules.train_members * factor)),
                }
            ),
        }
    )
