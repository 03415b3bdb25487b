"""A rule: the equations of one block, and everything that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from yuriiformer.errors import RuleError, UnknownRuleError, did_you_mean
from yuriiformer.methods.coefficients import Coefficient, Declaration, options_of
from yuriiformer.methods.parse import ORACLES, parse_equations, split_lines
from yuriiformer.methods.passes import Program, Query, Step, build_program, lower
from yuriiformer.methods.tree import Assign
from yuriiformer.methods.validate import Start, check, find_coefficients, find_streams
from yuriiformer.reading import has_control


class Rule:
    """One block as equations; valid by construction.

    Args:
        name: what the rule is called on the command line.
        equations: one assignment per line. ``attn(...)`` and ``mlp(...)`` call the oracles,
            ``norm(...)`` is the velocity LayerNorm LN_v, ``unit(...)`` a LayerNorm without gain.
        label: what the rule is called in tables and plots; the name if not given.
        streams: how the streams start (see `Start`); X and V default to ``tables``.
        coefficients: options of coefficients (see `Coefficient`), needed only where the name
            (``mu*``, ``beta*``, ``gamma*``, ``delta*``) does not say enough.
        note: a remark shown with the rule.
        source: where the text is from, for error messages.

    Names follow from their use. A name that is read before it is written is a *stream*, carried
    from layer to layer; one that is written first is a local; a declared stream that is never
    written is constant over depth; every other name is a coefficient.
    """

    name: str
    equations: str
    label: str
    note: str
    streams: Mapping[str, Start]  # X first, then in order of appearance
    coefficients: Mapping[str, Coefficient]  # in order of appearance; iterating gives the names
    assigns: tuple[Assign, ...]

    def __init__(
        self,
        name: str,
        equations: str,
        *,
        label: str = "",
        streams: Mapping[str, str] | None = None,
        coefficients: Mapping[str, Declaration] | None = None,
        note: str = "",
        source: str | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise RuleError(f"a rule needs a name of printable characters, not {name!r}")
        source = source or f"rule {name!r}"
        for what, value, kind in (
            ("label", label, str),
            ("note", note, str),
            ("streams", streams or {}, Mapping),
            ("coefficients", coefficients or {}, Mapping),
        ):
            if not isinstance(value, kind):
                wanted = "text" if kind is str else "a table"
                raise RuleError(f"{what!r} must be {wanted}, not {value!r:.60}", source=source)
            if isinstance(value, str) and has_control(value):
                raise RuleError(f"{what!r} holds a control character", source=source)
        assigns = parse_equations(equations, source)
        values: dict[str, Any] = {
            "name": name,
            "label": label or name,
            "note": note,
            "equations": "\n".join(line.strip() for line in split_lines(equations)).strip("\n"),
            "assigns": assigns,
        }
        try:
            values["streams"] = find_streams(assigns, streams or {})
            values["coefficients"] = find_coefficients(
                assigns, values["streams"], coefficients or {}
            )
            check(assigns, values["streams"])
        except RuleError as error:
            raise error.within(source) from None
        self.__dict__.update(values)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"a rule cannot be changed: use rule.vary(...) to set {key!r}")

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The block as flat steps, oracle calls standing alone."""
        return lower(self.assigns)

    @cached_property
    def oracle_calls(self) -> dict[str, int]:
        """How often a block calls each oracle."""
        count = Counter(step.oracle for step in self.steps if isinstance(step, Query))
        return {oracle: count[oracle] for oracle in ORACLES}

    @property
    def uses_velocity(self) -> bool:
        return "V" in self.streams

    @cached_property
    def norm_calls(self) -> int:
        """How often a block calls LN_v."""
        return len(self.program.norm_calls())

    @cached_property
    def locals(self) -> tuple[str, ...]:
        """Names that live inside one block only."""
        written = dict.fromkeys(assign.target for assign in self.assigns)
        return tuple(name for name in written if name not in self.streams)

    @cached_property
    def program(self) -> Program:
        """The whole block; every stream is used afterwards."""
        return build_program(self.steps, tuple(self.streams), frozenset(self.streams))

    def programs(self, n_layer: int) -> tuple[Program, ...]:
        """One program per layer of a model in which only the last X is used.

        Steps that never reach it are left out (the last MLP kick of a Hamiltonian block). Equal
        programs are the same object, so most layers share one.
        """
        found: list[Program] = []
        needed = frozenset({"X"})
        for _ in range(n_layer):
            program = build_program(self.steps, tuple(self.streams), needed)
            found.append(found[-1] if found and found[-1] == program else program)
            needed = frozenset(program.inputs)
        return tuple(reversed(found))

    def vary(
        self,
        *,
        name: str | None = None,
        label: str | None = None,
        streams: Mapping[str, str] | None = None,
        coefficients: Mapping[str, Declaration] | None = None,
        note: str | None = None,
    ) -> Rule:
        """The same equations with other starts or coefficients."""
        for kind, given, known in (
            ("stream", streams, tuple(self.streams)),
            ("coefficient", coefficients, self.coefficients),
        ):
            for key in given or {}:
                if key not in known:
                    hint = did_you_mean(key, known) or f"; it has {', '.join(known) or 'none'}"
                    raise RuleError(f"rule {self.name!r} has no {kind} {key!r}{hint}")
        declared: dict[str, Declaration] = dict(self.coefficients)
        for key, value in (coefficients or {}).items():
            declared[key] = {**self.coefficients[key].to_dict(), **options_of(value)}
        return Rule(
            name or self.name,
            self.equations,
            label=label or self.label,
            streams={**self.streams, **(streams or {})},
            coefficients=declared,
            note=self.note if note is None else note,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything that makes the rule, as plain data; `Rule.from_dict` reads it back."""
        return {
            "name": self.name,
            "label": self.label,
            "equations": self.equations,
            "streams": dict(self.streams),
            "coefficients": {name: each.to_dict() for name, each in self.coefficients.items()},
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], source: str | None = None) -> Rule:
        """A rule from plain data, as a TOML file or a model's configuration holds it."""
        known = ("name", "label", "equations", "streams", "coefficients", "note")
        for key in data:
            if key not in known:
                hint = did_you_mean(str(key), known) or f"; known are {', '.join(known)}"
                raise RuleError(f"unknown key {key!r}{hint}", source=source)
        for key in ("name", "equations"):
            if key not in data:
                raise RuleError(f"the rule has no {key!r}", source=source)
        options = {key: data[key] for key in known[1:] if key in data and key != "equations"}
        return cls(data["name"], data["equations"], source=source, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as plain data: its mappings are read-only views."""
        return Rule.from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        parts = (tuple(self.streams.items()), tuple(self.coefficients.items()))
        return (self.name, self.label, self.assigns, self.note, *parts)

    def __repr__(self) -> str:
        return f"Rule({self.name!r}, equations={self.equations!r})"


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
