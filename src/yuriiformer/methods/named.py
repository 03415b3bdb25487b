"""Rules by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from yuriiformer.errors import UnknownRuleError, did_you_mean
from yuriiformer.methods.rule import Rule


class Catalog(Mapping[str, Rule]):
    """Rules by name, in order; the error for an unknown name suggests similar ones.

    Args:
        rules: those that are listed.
        compose: makes a rule of a name that is not listed; None if the name is not of its form.
        similar: names that it could make and that an unknown one may have meant.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        compose: Callable[[str], Rule | None] = lambda name: None,
        similar: Callable[[str], Iterable[str]] = lambda name: (),
    ) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._compose, self._similar = compose, similar

    def __getitem__(self, name: str) -> Rule:
        try:
            return self._rules[name]
        except KeyError:
            composed = self._compose(str(name))
            if composed is not None:
                return composed
            known = [*self._rules, *self._similar(str(name))]
            hint = did_you_mean(str(name), known) or "; 'yurii rules' lists all"
            raise UnknownRuleError(f"unknown rule {name!r}{hint}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._rules)})"
