"""Which of a block's methods are hooks, and whether they are called as they expect."""

from difflib import get_close_matches
from inspect import isfunction, signature

from undrift.core.block import AnyBlock
from undrift.testing.rounds import demand


def check_hooks(block: AnyBlock, kind: type[AnyBlock]) -> None:
    """Every hook takes what the base's does, and no public method is a misspelt hook, which nothing would call.

    Args:
        block: the block.
        kind: the base class of its slot.
    """
    own = type(block)
    hooks = {name: hook for name in dir(kind) if isfunction(hook := getattr(kind, name)) and name[0] != "_"}
    for name, hook in hooks.items():
        found = getattr(own, name)
        if isfunction(found):
            expected, actual = signature(hook), signature(found)
            demand(
                len(actual.parameters) == len(expected.parameters),
                f"{own.__name__}.{name}{actual}: it is called as {name}{expected}",
            )
    unused = [name for name, hook in hooks.items() if getattr(own, name) is hook]
    for name in dir(own):
        if name[0] != "_" and name not in hooks and isfunction(getattr(own, name)):
            near = get_close_matches(name, unused, n=1, cutoff=0.8)
            demand(
                not near,
                f"{own.__name__}.{name} is no hook and is never called; is {''.join(near)} meant? The name of a helper "
                "begins with an underscore",
            )
