"""Ties the process that imports this module to its parent: a fork server, which preloads it, and nobody else.

The pipe whose end tells a fork server to end is held by its workers, too, and one of them may hang.
"""

from grpojax.runtime import parent_death

parent_death.die_with_parent()
