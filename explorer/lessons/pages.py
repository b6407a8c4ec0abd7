"""The pages of lessons and sandboxes: their list under Learn, and the screen of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from broker_core import namespaces, reads
from broker_core.common.durations import human
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument
from broker_core.common.types import EntityAddress, EntityKind, Family, Right
from broker_core.reads import EntityRow, Event, MessageRow
from broker_core.store import connections
from explorer import audit, board, time_bar
from explorer.frames import timeline
from explorer.frames.family import installed, pages_of
from explorer.frames.shell import Act, act, notify, notify_error, page, show, site_url, wants_fragment
from explorer.live.page import Live, LiveRequest, live, refresh_seconds
from explorer.models import LessonProgress, Sandbox
from explorer.people.roles import actor_for
from explorer.snippets import of
from explorer.snippets.of import Shown
from explorer.time_bar.clocks import view_of

from . import catalog, faults, following, load, load_pages, parts, sandboxes, saved_scenarios, scenario, words
from .lesson import Expect, Lesson, Look, Step
from .run import Run, run_of

LESSON, TIMELINE, PLACES = "explorer/lessons/_lesson.html", "explorer/lessons/_timeline.html", "explorer/lessons/_places.html"
CLOCK = "explorer/_clock.html"
LOAD_ACTIONS = ("load", "stop_load", "save_load")
LEAST_SECONDS = 0.3  # between two drawings
MOST_STATEMENTS = 4  # events that explain the outcome of a step


@dataclass(frozen=True, slots=True)
class LessonItem:
    """A lesson in the list. sandbox: where it is being played; None: nowhere."""

    lesson: Lesson
    family: str
    progress: LessonProgress | None
    sandbox: Sandbox | None

    @property
    def state(self) -> str:
        if self.progress and self.progress.completed_at:
            return "completed"
        return f"step {self.progress.step + 1} of {len(self.lesson.steps)}" if self.progress else ""


@dataclass(frozen=True, slots=True)
class Statement:
    """What the broker says about an event, as in a timeline."""

    place: str
    entry: timeline.Entry


@page
@require_GET
def learn(request: HttpRequest) -> HttpResponse:
    """The first tab of Learn: the lessons, and the sandboxes of the person."""
    return show(request, "lessons/learn", {"section": "help", **_lessons_of(request.user)}, fragment="lessons/learn")


def _lessons_of(user: Any) -> dict[str, Any]:
    own = sandboxes.of(user)
    played = {sandbox.lesson: sandbox for sandbox in reversed(own) if sandbox.lesson}
    progress = {lesson_progress.lesson: lesson_progress for lesson_progress in LessonProgress.objects.filter(owner=user)}
    return {
        "lessons": [
            LessonItem(lesson, pages_of(lesson.family).title, progress.get(lesson.slug), played.get(lesson.slug))
            for lesson in catalog.lessons()
        ],
        "sandboxes": [sandbox for sandbox in own if not sandbox.lesson],
        "sandbox_families": [pages for pages in installed() if pages.lessons],
        "sandbox_limit": sandboxes.MOST_OF_ONE,
        "scenarios": [(saved, saved_scenarios.summary(saved)) for saved in saved_scenarios.of(user)],
    }


@page
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """POST `lesson`: its slug; or `family`: a sandbox without a lesson. A lesson that is being played goes on."""
    slug, family = request.POST.get("lesson", ""), request.POST.get("family", "")
    lesson = catalog.lesson(slug) if slug else None
    if lesson and (existing := next((sandbox for sandbox in sandboxes.of(request.user) if sandbox.lesson == slug), None)):
        return HttpResponseRedirect(reverse("explorer:sandbox", args=(existing.namespace,)))
    if not lesson and family not in [str(pages.family) for pages in installed() if pages.lessons]:
        raise InvalidArgument("family", "must be an installed family with lessons")
    done = act(
        request, "start sandbox", None,
        lambda: sandboxes.start(request.user, lesson.family if lesson else Family(family), lesson),
        target=lesson.title if lesson else family,
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
        return HttpResponseRedirect(reverse("explorer:help"))
    return HttpResponseRedirect(reverse("explorer:sandbox", args=(done.result.namespace,)))


@live
@page
@require_http_methods(["GET", "POST"])
def sandbox(request: HttpRequest, namespace: str) -> HttpResponse:
    """The screen of a lesson, or of a sandbox without one. Only its owner sees it."""
    own_sandbox = sandboxes.owned(request.user, namespace)
    try:
        namespaces.get_namespace(own_sandbox.namespace, actor=request.actor)
    except EntityNotFound:  # its owner deleted it
        if isinstance(request, LiveRequest):
            raise
        own_sandbox.delete()
        noun = pages_of(own_sandbox.family).container_noun
        return _to_learn(request, f"The {noun} {own_sandbox.namespace} was deleted. Its sandbox has been removed.")
    if request.method != "POST":
        return _show(request, own_sandbox, run_of(own_sandbox, request.actor))
    action = request.POST.get("act", "")
    with sandboxes.changing(request.user, namespace) as own_sandbox:
        if action == "delete":
            return _leave(request, own_sandbox)
        done = _act(request, own_sandbox, run_of(own_sandbox, request.actor), action)
    if action in ("present", "end") and not done.error:
        return HttpResponseRedirect(f"{request.path}?present=1" if action == "present" else request.path)
    if wants_fragment(request):
        response = _show(request, own_sandbox, run_of(own_sandbox, request.actor), done)
        if action == "next" and not done.error:
            response["HX-Replace-Url"] = _next_step_url(request)
        return response
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(f"{request.get_full_path()}#go-on")  # the browser focuses this button, if there is one


@live
@page
@require_http_methods(["GET", "POST"])
def follow(request: HttpRequest, code: str) -> HttpResponse:
    """The screen of a lesson that somebody else presents: it follows that person, and takes a prediction."""
    request.actor.require(Right.BROWSE, "presentations")
    presented = following.followed(code)
    with connections.of(presented.namespace):
        run = Run(presented, catalog.lesson(presented.lesson), actor_for(presented.owner, presented.namespace))
        if request.method != "POST":
            return _show(request, presented, run, follower=request.user)
        done = Act()
        try:
            following.answer(run, request.user, request.POST.get("answer", ""))
        except InvalidArgument as problem:
            done = Act(error=problem)
        if wants_fragment(request):
            return _show(request, presented, run, done, follower=request.user)
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(request.get_full_path())


@page
@require_GET
def export(request: HttpRequest, namespace: str) -> HttpResponse:
    """What was done in the sandbox, as a scenario file; of a load, its settings."""
    own_sandbox = sandboxes.owned(request.user, namespace)
    progress = load.progress(own_sandbox)
    if progress:
        title = catalog.lesson(own_sandbox.lesson).title
        return toml_file(saved_scenarios.text_of(own_sandbox, progress.settings, title, request.actor), own_sandbox.lesson)
    return toml_file(scenario.record(own_sandbox, request.actor), own_sandbox.lesson or "scenario")


@page
@require_GET
def code(request: HttpRequest, namespace: str) -> HttpResponse:
    """The actions of the current step as code."""
    own_sandbox = sandboxes.owned(request.user, namespace)
    run = run_of(own_sandbox, request.actor)
    if run is None or not _has_code(run):
        raise EntityNotFound("code", "program of this step")
    actions = [(do.action, do.arguments) for do in run.step.do]
    printed = of.of_actions(run.lesson.family, own_sandbox.namespace, actions, site_url(request))
    context = {
        "section": "help",
        "code": Shown("", run.step.title, (), printed),
        "place": run.lesson.title,
        "back": reverse("explorer:sandbox", args=(own_sandbox.namespace,)),
    }
    return show(request, "code", context)


def _has_code(run: Run) -> bool:
    """Whether all actions of the step can be shown as code."""
    known = of.operations(run.lesson.family)
    return bool(run.step.do) and all(do.action in known for do in run.step.do)


def toml_file(text: str, name: str) -> HttpResponse:
    """A scenario as a download."""
    response = HttpResponse(text, content_type="application/toml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{slugify(name) or "scenario"}.toml"'
    return response


def _leave(request: HttpRequest, sandbox: Sandbox) -> HttpResponse:
    done = act(request, "delete sandbox", None, lambda: sandboxes.remove(sandbox), target=sandbox.namespace)
    if done.error:
        notify_error(request, done.error)
        return HttpResponseRedirect(request.get_full_path())
    return _to_learn(request, "Deleted the sandbox.")


def _to_learn(request: HttpRequest, text: str) -> HttpResponse:
    """To the list of lessons, with a notice."""
    notify(request, text)
    target = reverse("explorer:help")
    return HttpResponse(headers={"HX-Redirect": target}) if wants_fragment(request) else HttpResponseRedirect(target)


def _act(request: HttpRequest, sandbox: Sandbox, run: Run | None, action: str) -> Act:
    if action in ("fault", "end_fault"):
        return _set_fault(request, sandbox, action)
    if action in LOAD_ACTIONS and run and run.lesson.load:
        return load_pages.perform(request, sandbox, run.lesson, action)
    audited: dict[str, tuple[str, Callable[[Sandbox], None], str]] = {
        "reset": ("reset sandbox", sandboxes.reset, "Sandbox reset.")
    }
    actions: dict[str, Callable[[], Any]] = {}
    if run:
        audited |= {"present": ("present lesson", following.share, ""), "end": ("end presentation", following.end, "")}
        actions |= {
            "answer": lambda: run.take_answer(request.POST.get("answer", "")),
            "do": lambda: _perform(request, sandbox, run.perform, lambda: not run.is_done),
            "next": run.go_on,
        }
    else:
        tools = catalog.toolbox(Family(sandbox.family))
        actions["do"] = lambda: _use(request, sandbox, tools)
    if run and action in actions and request.POST.get("step", str(run.index + 1)) != str(run.index + 1):
        return Act()  # sent twice, or by another tab: that step is over
    if action in audited:
        name, change, text = audited[action]
        return act(request, name, None, lambda: change(sandbox), target=sandbox.namespace, says=lambda _: text)
    if action not in actions:
        return Act(error=InvalidArgument("act", f"{action!r} must be one of {', '.join([*audited, *actions])}"))
    try:
        actions[action]()
    except BrokerError as problem:
        return Act(error=problem)
    return Act()


def _set_fault(request: HttpRequest, sandbox: Sandbox, action: str) -> Act:
    """Start or end the fault of a receiver of the sandbox."""
    receiver, kind = request.POST.get("receiver", ""), request.POST.get("kind", "")
    now = namespaces.get_clock(sandbox.namespace, actor=request.actor).now
    if action == "end_fault":
        return act(
            request, "end fault", None, lambda: faults.end(sandbox, receiver, now), target=f"{sandbox.namespace}: {receiver}",
            says=lambda _: f"The fault of {receiver} has ended.",
        )  # fmt: skip
    return act(
        request, "start fault", None, lambda: faults.start(sandbox, receiver, kind, now),
        target=f"{sandbox.namespace}: {receiver}",
        says=lambda _: f"{receiver} is {kind} for {human(faults.LASTS)} of this sandbox's clock.",
    )  # fmt: skip


def _use(request: HttpRequest, sandbox: Sandbox, tools: Lesson) -> None:
    """Perform one of the actions of a sandbox without a lesson."""
    number = request.POST.get("tool", "")
    if number not in map(str, range(len(tools.steps))):
        raise InvalidArgument("tool", "must be the number of one of the actions")
    stage = catalog.stage(sandbox.namespace, Family(sandbox.family), request.actor)
    stage.memory, stage.log = sandbox.state.setdefault("memory", {}), sandbox.state.setdefault("log", [])
    actions = [faults.with_fault(sandbox, do, stage.clock()) for do in tools.steps[int(number)].do]
    _perform(request, sandbox, lambda: stage.perform(actions), lambda: True)
    sandbox.state |= {"memory": stage.memory, "log": stage.log}
    sandbox.save_step()


def _perform(
    request: HttpRequest,
    sandbox: Sandbox,
    perform: Callable[[], tuple[Sequence[str], BrokerError | None]],
    needs_notice: Callable[[], bool],
) -> None:
    """Perform actions. What the broker refuses is a result, too; a step that is done says it itself."""
    results, refusal = perform()
    for text in results:
        audit.done(request.actor, "lesson", target=sandbox.namespace, detail=text)
    if refusal:
        audit.refused(request.actor, "lesson", None, refusal, target=sandbox.namespace)
        results = [*results, f"The broker refused: {refusal}"]
    if results and needs_notice():
        notify(request, " ".join(results))


def _show(request: HttpRequest, sandbox: Sandbox, run: Run | None, done: Act = Act(), *, follower: Any = None) -> HttpResponse:
    """follower: who sees the lesson of somebody else; None: the owner."""
    rows = reads.overview(namespace=sandbox.namespace, include_hidden=True, actor=request.actor)
    places = [row for row in rows if row.kind is not EntityKind.TOPIC]
    look = _requested_look(request.GET, run)
    entity = _entity(places, look.queue)
    clock = view_of(sandbox.namespace, request.actor, page=request.get_full_path())
    context = _of_sandbox(sandbox, places, entity, look) | _of_viewer(request, sandbox, run, entity, follower)
    shown = _parts(run, places)
    context |= {"clock": clock.clock, "clock_view": clock, "error": done.error, "parts": shown}
    if parts.Part.LOAD in shown and run:
        context |= load_pages.context(request, sandbox, run.lesson, done) | _of_run(run, context["words"], follower)
        context |= {"next_step_url": _next_step_url(request)} | ({} if run.is_over else _outcome(run))
        live_parts = Live({LESSON: 0.0, load_pages.CHARTS: 1.0}, refresh_seconds=1.0, least_seconds=LEAST_SECONDS, personal=True)
        return _answer(request, context, live_parts, done)

    def shared() -> dict[str, Any]:
        """What does not depend on who follows."""
        read = _message(sandbox, look, run, request, rows)
        if entity:
            newest = _newest(sandbox, entity, request)
            read |= _board(request, entity, newest) | time_bar.of(
                request, entity, may_set=follower is None, newest=newest,
                is_shown=parts.Part.CLOCK in shown, plays=parts.Part.SPEED in shown, may_fold=False,
            )  # fmt: skip
        return read | (_outcome(run) if run and not run.is_over else {})

    if run and follower and isinstance(request, LiveRequest):
        view = sandbox.namespace, request.META["QUERY_STRING"], request.actor.rights
        context |= following.read_once(view, following.state_of(run, rows, clock.clock.now), shared)
    else:
        context |= shared()
    if run:
        context |= _of_run(run, context["words"], follower) | {"next_step_url": _next_step_url(request)}
    else:
        context |= _alone(sandbox, clock.clock.now)
    return _answer(request, context, _watched(rows, entity), done)


def _answer(request: HttpRequest, context: dict[str, Any], live_parts: Live, done: Act) -> HttpResponse:
    name = "lessons/presented" if context["is_presented"] else "lessons/sandbox"
    return show(request, name, context, fragment="lessons/_screen", live=live_parts, status=done.status)


def _of_sandbox(sandbox: Sandbox, places: Sequence[EntityRow], entity: EntityRow | None, look: Look) -> dict[str, Any]:
    """The sandbox and its entities. missing: the one to look at, if it is not there."""
    return {
        "section": "help",
        "side": "rail",
        "namespace": sandbox.namespace,
        "sandbox": sandbox,
        "family": pages_of(sandbox.family),
        "entity": entity,
        "places": places,
        "missing": look.queue if look.queue and entity and entity.address.path != look.queue else "",
        "with_control": True,
    }


def _of_viewer(
    request: HttpRequest, sandbox: Sandbox, run: Run | None, entity: EntityRow | None, follower: Any
) -> dict[str, Any]:
    """How the person sees it: in whose words, what they may do, and whether it is presented to them."""
    chosen, vocabularies = request.GET.get("words", ""), installed()
    return {
        "is_follower": follower is not None,
        "is_presented": follower is not None or run is not None and "present" in request.GET,
        "vocabularies": [pages for pages in vocabularies if pages.lessons],
        "words": chosen if chosen in [str(pages.family) for pages in vocabularies] else sandbox.family,
        "controls": _controls(entity) if entity and not follower else [],
    }


def _parts(run: Run | None, places: Sequence[EntityRow]) -> frozenset[parts.Part]:
    """The parts of the screen that are shown."""
    if run and run.lesson.load:
        return frozenset({parts.Part.LOAD})
    if run is None or run.is_over:
        return parts.EXCEPT_LOAD
    has_messages = bool(run.events) or any(row.counts.total for row in places)
    return parts.needed(run.lesson.steps, run.index, has_messages=has_messages)


def _alone(sandbox: Sandbox, now: datetime) -> dict[str, Any]:
    """The tools of a sandbox without a lesson."""
    return {"tools": _tools(sandbox), "fault_lasts": human(faults.LASTS), "receivers": faults.receivers(sandbox, now)}


def _watched(rows: Sequence[EntityRow], entity: EntityRow | None) -> Live:
    """The live parts."""
    of_entity: dict[str, float] = {board.LANES: 0.0, **time_bar.fragments()} if entity else {CLOCK: 0.0}
    return Live(
        {LESSON: 0.0, PLACES: 0.0, TIMELINE: 0.0} | of_entity,
        entities=rows, refresh_seconds=refresh_seconds(rows), least_seconds=LEAST_SECONDS, personal=True,
    )  # fmt: skip


def _requested_look(query: QueryDict, run: Run | None) -> Look:
    """The queue and the message to show: those that the query names, else those of the current step."""
    of_step = run.look if run and not run.is_over else Look()
    queue, number = query.get("queue", ""), query.get("m", "")
    if queue or number:
        return Look(queue or of_step.queue, int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else None)
    return of_step


def _entity(places: Sequence[EntityRow], path: str) -> EntityRow | None:
    return next((row for row in places if row.address.path == path), places[0] if places else None)


def _controls(entity: EntityRow) -> list[tuple[str, str, str]]:
    """Where the person can do it alone: (word, icon, URL)."""
    pages, at = pages_of(entity.family), (entity.address.namespace, entity.address.path)
    topic = entity.address.topic
    controls = [("Send", "send", pages.send_url(at[0], topic.path if topic else at[1]))]
    if "receiver" in pages.views:
        controls.append(("Receive", "hand", reverse("explorer:receiver", args=("main", *at))))
    return [*controls, ("Open", "list", reverse("explorer:entity", args=at))]


def _newest(sandbox: Sandbox, entity: EntityRow, request: HttpRequest) -> list[Event]:
    """The events of an entity in the sandbox, newest first, whatever happened on the rest of the site."""
    stage = catalog.stage(sandbox.namespace, Family(sandbox.family), request.actor)
    return [event for event in reversed(stage.events_since(sandbox.start)) if event.entity_id == entity.id]


def _board(request: HttpRequest, entity: EntityRow, newest: Sequence[Event]) -> dict[str, Any]:
    """The board of an entity, whose chips show the timeline of a message beside it."""

    def url(row: MessageRow) -> str:
        query = request.GET.copy()
        query["queue"], query["m"] = row.address.path, str(row.sequence_number)
        return f"?{query.urlencode()}"

    return board.of(request, entity, url=url, newest=newest)


def _message(sandbox: Sandbox, look: Look, run: Run | None, request: HttpRequest, rows: Sequence[EntityRow]) -> dict[str, Any]:
    """The timeline of the message that is looked at; without one, of the message of the newest event."""
    stage = catalog.stage(sandbox.namespace, Family(sandbox.family), request.actor)
    newest = (run.events if run else stage.events_since(sandbox.start))[-1:]
    entity_id, number, address = None, look.number, EntityAddress(sandbox.namespace, look.queue or "none")
    if number is None and newest and not look.queue:
        look = Look(newest[0].address.path if newest[0].address else "", newest[0].sequence_number)
        entity_id, number, address = newest[0].entity_id, newest[0].sequence_number, newest[0].address or address
    elif number is None and newest and newest[0].address and newest[0].address.path == look.queue:
        number = newest[0].sequence_number
    if number is None:
        return {"message_number": None}
    detail = None
    try:
        known = {row.address: row.id for row in rows}
        entity_id = known.get(address.main) or reads.entity(address.main, actor=request.actor).id
        detail = reads.message(address.main, number, actor=request.actor)
    except EntityNotFound:
        gone = reads.deleted_entity(address.main, actor=request.actor)
        entity_id = gone.id if gone else entity_id
    read = run.timeline if run else partial(reads.timeline, actor=request.actor)
    events = read(entity_id, number) if entity_id else []
    own = [event for event in events if (event.entity_id, event.sequence_number) == (entity_id, number)]
    family = Family(sandbox.family)
    return {
        "message_number": number,
        "message_address": address.main,
        "entries": timeline.entries(events, entity_id or 0, number, family),
        "now": timeline.present(own, detail.row, family) if detail else [],
        "address": address.main,
    }


def _tools(sandbox: Sandbox) -> list[tuple[Step, str]]:
    stage = catalog.stage(sandbox.namespace, Family(sandbox.family), sandboxes.BUILDER)
    return [(step, stage.label(step.do[0])) for step in catalog.toolbox(Family(sandbox.family)).steps]


def _next_step_url(request: HttpRequest) -> str:
    """This page's address for the next step: without the queue and the message that were chosen in the current one."""
    query = request.GET.copy()
    for name in ("queue", "m"):
        query.pop(name, None)
    return f"{request.path}?{query.urlencode()}" if query else request.path


def _of_run(run: Run, chosen: str, follower: Any) -> dict[str, Any]:
    step, lesson = run.step, run.lesson
    context: dict[str, Any] = {"run": run, "lesson": lesson, "earlier": lesson.steps[: run.index], "step_number": run.index + 1}
    if run.is_over:
        answers = run.progress().answers
        asked = [(i, each_step.ask) for i, each_step in enumerate(lesson.steps) if each_step.ask]
        right = sum(answers.get(str(i)) == ask.right for i, ask in asked)
        next_lesson = next((lesson_after for lesson_after in catalog.lessons() if lesson_after.order > lesson.order), None)
        return context | {"asked": len(asked), "right": right, "next_lesson": next_lesson, "earlier": lesson.steps}
    choice = following.answer_of(run, follower) if follower else run.answer
    terms = [part.term for text in words.paragraphs(step.say, "", lesson.family) for part in text if part.term]
    return context | {
        "step": step,
        "say": words.paragraphs(step.say, chosen, lesson.family),
        "terms": {term.word: term for term in terms}.values(),
        "other": step.other.get(chosen, ""),
        "chosen": pages_of(chosen),
        "has_no_other": chosen != lesson.family and chosen not in step.other,
        "is_answered": step.ask is None or choice is not None,
        "prediction": step.ask.choices[choice] if step.ask and choice is not None else "",
        "is_right": step.ask is not None and choice == step.ask.right,
        "votes": following.votes(run),
        "do_label": run.stage.label(step.do[0]) if step.do else "",
        "has_code": _has_code(run),
    }


def _outcome(run: Run) -> dict[str, Any]:
    """What the broker has done in the current step, and what it has not done yet."""
    step = run.step
    return {
        "done": run.is_done,
        "statements": _statements(run) if run.is_done and (step.expect or step.ask) else (),
        "reasons": _reasons(run) if run.is_done and step.ask else (),
        "awaited": [_awaited(expectation) for expectation in run.unmet] if run.is_performed else (),
    }


def _statements(run: Run) -> list[Statement]:
    """What the broker says about the events that the step expects, and the entities that it deleted."""
    statements = [_statement_of(event, run) for event in run.expected_events[-MOST_STATEMENTS:]]
    for expectation in run.step.expect:
        if expectation.deleted and (gone := reads.deleted_entity(run.stage.at(expectation.deleted), actor=run.actor)):
            text = f"The {gone.kind} was deleted with {gone.messages:,} message{'' if gone.messages == 1 else 's'}"
            statements.append(Statement(expectation.deleted, timeline.Entry(text, actor=gone.deleted_by)))
    return statements


def _statement_of(event: Event, run: Run) -> Statement:
    until = [earlier for earlier in run.timeline(event.entity_id, event.sequence_number) if earlier.event_id <= event.event_id]
    entry = timeline.entries(until, event.entity_id, event.sequence_number, run.lesson.family)[-1]
    name = event.address.path.rpartition("/")[2] if event.address else "a deleted entity"
    return Statement(f"message {event.sequence_number} in {name}", entry)


def _reasons(run: Run) -> Sequence[Any]:
    """Why the message that the step is about is or is not delivered now, as its page says."""
    look = run.look
    if not look.queue or look.number is None:
        return ()
    try:
        explanation = pages_of(run.lesson.family).message.explain(run.stage.at(look.queue), look.number, run.actor)
    except BrokerError:
        return ()
    return explanation.reasons if explanation else ()


def _awaited(expected: Expect) -> str:
    """An expectation that does not hold yet, in words."""
    if expected.clock is not None:
        return "the clock has not advanced far enough"
    if expected.deleted:
        return f"{expected.deleted} still exists"
    if expected.policy:
        return f"there is no policy {expected.policy}"
    if expected.load:
        return f"the load: {expected.attributes['times']} {expected.load}"
    attributes: Mapping[str, Any] = expected.attributes
    number = f"message {attributes['number']}" if "number" in attributes else "a message"
    word = timeline.words(expected.kind).word if expected.kind else ""
    return f"{number} in {attributes.get('queue', 'the sandbox')}: {word}"
