"""Use cases as callers see them: one generator, called synchronously, asynchronously, or composed into another use case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial, update_wrapper
from inspect import signature
from itertools import chain
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from . import aio, connections, driver
from .driver import Steps

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
OnCancel = Callable[[Any, Mapping[str, Any]], Steps]  # called with the result and the call's arguments by name

# First parameters that name the namespace of a call: by its name, by an address, or by an object with the attribute `namespace`.
NAMESPACE_PARAMETERS = {
    *("account", "address", "addresses", "channel", "connection", "namespace", "plan", "previewed", "scope", "session"),
    *("subscription", "topic", "transaction", "vhost"),
}
WHOLE_DATABASE = ""  # for `namespace`: the use case concerns a database, not a namespace


class UseCase(Generic[P, T]):
    """A use case. `send(...)` runs it on this thread's connection, `await send.aio(...)` on the loop's pool; `send.steps(...)` is
    the generator, for `yield from`. In a class a use case is a method.

    A call runs in the database of its namespace (`connections.database_of`), and without a namespace in the current database.

    on_cancel: steps that release what the call acquired. If the awaiting task is cancelled, the call runs to completion, or to
    its next wait for messages, and then these steps run. None: the call is interrupted.
    namespace: the parameter that names the namespace, or WHOLE_DATABASE. By default the first parameter, if it is one of
    NAMESPACE_PARAMETERS, or else the one called `namespace`.
    combine:   joins the results of the databases, each of which a call without a namespace runs in. None: it runs in one.
    """

    def __init__(
        self,
        steps: Callable[P, Steps[T]],
        on_cancel: OnCancel | None = None,
        namespace: str | None = None,
        combine: Callable[[list[T]], T] | None = None,
    ):
        self.steps, self._on_cancel, self._combine = steps, on_cancel, combine
        parameters = _parameters(steps)
        self.namespace_parameter = _namespace_parameter(parameters) if namespace is None else namespace
        self._position = parameters.index(self.namespace_parameter) if self.namespace_parameter else 0
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if not connections.are_several():
            return driver.run(self.steps(*args, **kwargs))
        results = []
        for place in self._places(args, kwargs):
            with place:
                results.append(driver.run(self.steps(*args, **kwargs)))
        return self._combine(results) if self._combine and len(results) > 1 else results[0]

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if not connections.are_several():
            return await self._run(*args, **kwargs)
        results = []
        for place in self._places(args, kwargs):
            with place:
                results.append(await self._run(*args, **kwargs))
        return self._combine(results) if self._combine and len(results) > 1 else results[0]

    async def _run(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if (on_cancel := self._on_cancel) is None:
            return await aio.run(self.steps(*args, **kwargs))

        async def release(result: T) -> None:
            await aio.run(on_cancel(result, signature(self.steps).bind(*args, **kwargs).arguments))

        return await aio.run_uncancelled(aio.run(self.steps(*args, **kwargs)), left_behind=release)

    def _places(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[AbstractContextManager[None]]:
        """A context for each database in which the call runs."""
        if parameter := self.namespace_parameter:
            argument = args[self._position] if len(args) > self._position else kwargs.get(parameter)
            if (namespace := _namespace_of(argument)) is not None:
                return [connections.of(namespace)]
        if self._combine:
            return [connections.using(database) for database in connections.databases()]
        return [nullcontext()]

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


def _parameters(steps: Callable[..., Any]) -> tuple[str, ...]:
    code = steps.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _namespace_parameter(parameters: tuple[str, ...]) -> str | None:
    if parameters and parameters[0] in NAMESPACE_PARAMETERS:
        return parameters[0]
    return "namespace" if "namespace" in parameters else None


def _namespace_of(argument: Any) -> str | None:
    """The namespace that an argument names; of several addresses, the first one's. None: it names none, or is invalid."""
    if isinstance(argument, list | tuple) and argument:
        argument = argument[0]
    namespace = argument if isinstance(argument, str) else getattr(argument, "namespace", None)
    return namespace if isinstance(namespace, str) else None


def by_namespace(lists: Iterable[list[Any]]) -> list[Any]:
    """For `combine`: one list of namespaces, or of rows with an address, in the order of the namespaces' names."""

    def name(row: Any) -> str:
        return (row.address.namespace if hasattr(row, "address") else row.name).lower()

    return sorted(chain.from_iterable(lists), key=name)


def complete_only(result: Any, arguments: Mapping[str, Any]) -> Steps[None]:
    """For `on_cancel`: the call runs to completion and there is nothing to release."""
    yield from ()


@overload
def use_case(steps: Callable[P, Steps[T]]) -> UseCase[P, T]: ...
@overload
def use_case(
    *, on_cancel: OnCancel | None = None, namespace: str | None = None, combine: Callable[[list[Any]], Any] | None = None
) -> Callable[[Callable[P, Steps[T]]], UseCase[P, T]]: ...
def use_case(steps: Any = None, **options: Any) -> Any:
    """Make a generator function callable, as UseCase says."""
    return partial(UseCase, **options) if steps is None else UseCase(steps)
