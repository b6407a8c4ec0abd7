"""The report of the benchmarks: lines as they are measured, and the missed targets at the end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    unit: str
    target: float | None
    at_most: bool

    @property
    def met(self) -> bool:
        return self.target is None or (self.value <= self.target if self.at_most else self.value >= self.target)


@dataclass
class Report:
    """Prints each figure at once, and the missed targets at the end."""

    rows: list[Row] = field(default_factory=list)

    def part(self, name: str) -> None:
        print(f"\n== {name}", flush=True)

    def line(self, name: str, value: str, remark: str = "") -> None:
        """A figure without a target."""
        print(f"   {name:<84} {value:>12}  {remark}".rstrip(), flush=True)

    def row(self, name: str, value: float, unit: str, target: float | None = None, *, at_most: bool = False) -> None:
        """A figure with its target, a minimum or, with at_most, a maximum."""
        row = Row(name, value, unit, target, at_most)
        self.rows.append(row)
        verdict = "" if target is None else f"{'at most' if at_most else 'at least'} {target:g}: {'met' if row.met else 'MISSED'}"
        self.line(name, f"{value:.3g} {unit}", verdict)

    def end(self) -> int:
        missed = [row for row in self.rows if not row.met]
        print(f"\n{len([r for r in self.rows if r.target is not None])} targets, {len(missed)} missed")
        for row in missed:
            print(f"   {row.name}: {row.value:.3g} {row.unit}, {'at most' if row.at_most else 'at least'} {row.target:g}")
        return 0
