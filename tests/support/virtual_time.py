"""Tests that are stories: coroutine functions which somebody tells on a loop of its own."""

import functools
from collections.abc import Callable, Coroutine
from inspect import Parameter, Signature, signature
from itertools import takewhile
from typing import Any

Story = Callable[..., Coroutine[Any, Any, None]]
Decorator = Callable[[Story], Callable[..., None]]


def played_by(play: Callable[..., object], *arguments: object, **named: object) -> Decorator:
    """Make a test of a story that `play` tells, with these arguments behind it.

    `play` hands the story its arguments: those before a slash, or all where there is none. The others are fixtures and parameters, and so
    are those that `play` takes before its story.
    """

    def made(story: Story) -> Callable[..., None]:
        asked = list(signature(story).parameters.values())
        handed = [each for each in asked if each.kind is Parameter.POSITIONAL_ONLY] or asked
        return _test(story, asked[len(handed) :], lambda told, *fixtures: play(*fixtures, told, *arguments, **named), _before_story(play))

    return made


def under(run: Callable[[Coroutine[Any, Any, None]], object]) -> Decorator:
    """Make a test of a coroutine function all of whose arguments are fixtures and parameters."""

    def made(story: Story) -> Callable[..., None]:
        return _test(story, list(signature(story).parameters.values()), lambda told: run(told()), [])

    return made


def _test(story: Story, own: list[Parameter], tell: Callable[..., object], needed: list[str]) -> Callable[..., None]:
    """A test with the story's `own` arguments and what telling it needs."""
    names = [each.name for each in own]

    @functools.wraps(story)
    def test(**given: object) -> None:
        tell(functools.partial(story, **{name: given[name] for name in names}), *(given[name] for name in needed))

    asked = dict.fromkeys((*names, *needed))
    test.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in asked])  # type: ignore[attr-defined]
    return test


def _before_story(play: Callable[..., object]) -> list[str]:
    return list(takewhile(lambda name: name != "story", signature(play).parameters))
