"""Use cases as callers see them: one generator, called synchronously, asynchronously, or composed into another use case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from . import aio, driver
from .driver import Steps

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
OnCancel = Callable[[Any, Mapping[str, Any]], Steps]  # called with the result and the call's arguments by name


class UseCase(Generic[P, T]):
    """A use case. `send(...)` runs it on this thread's connection, `await send.aio(...)` on the loop's pool; `send.steps(...)` is
    the generator, for `yield from`. In a class a use case is a method.

    on_cancel: steps that release what the call acquired. If the awaiting task is cancelled, the call runs to completion, or to
    its next wait for messages, and then these steps run. None: the call is interrupted.
    """

    def __init__(self, steps: Callable[P, Steps[T]], on_cancel: OnCancel | None = None):
        self.steps, self._on_cancel = steps, on_cancel
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return driver.run(self.steps(*args, **kwargs))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if (on_cancel := self._on_cancel) is None:
            return await aio.run(self.steps(*args, **kwargs))

        async def release(result: T) -> None:
            await aio.run(on_cancel(result, signature(self.steps).bind(*args, **kwargs).arguments))

        return await aio.run_uncancelled(aio.run(self.steps(*args, **kwargs)), left_behind=release)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> UseCase[P, T]: ...
    @overload
    def __get__(self: UseCase[Concatenate[S, Q], T], instance: S, owner: type | None = None) -> Method[Q, T]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)


class Method(Generic[P, T]):
    """A use case of an instance."""

    def __init__(self, case: UseCase, instance: Any):
        self._case, self._instance = case, instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._case(self._instance, *args, **kwargs)

    def steps(self, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return self._case.steps(self._instance, *args, **kwargs)

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._case.aio(self._instance, *args, **kwargs)


def complete_only(result: Any, arguments: Mapping[str, Any]) -> Steps[None]:
    """For `on_cancel`: the call runs to completion and there is nothing to release."""
    yield from ()


@overload
def use_case(steps: Callable[P, Steps[T]]) -> UseCase[P, T]: ...
@overload
def use_case(*, on_cancel: OnCancel) -> Callable[[Callable[P, Steps[T]]], UseCase[P, T]]: ...
def use_case(steps: Any = None, *, on_cancel: OnCancel | None = None) -> Any:
    """Make a generator function callable, as UseCase says."""
    return partial(UseCase, on_cancel=on_cancel) if steps is None else UseCase(steps)
