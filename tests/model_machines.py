"""Runs a model's state machine against the broker."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # which takes minutes against a database; steps are printed


def run_machine(machine: type[RuleBasedStateMachine], max_examples: int, steps: int = 30) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
            phases=WITHOUT_SHRINKING,
        ),
    )
