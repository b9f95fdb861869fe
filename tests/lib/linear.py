# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a recorded history one that a single object could have shown, doing one thing after the other? (Herlihy and Wing, "Linearizability",
1990; the search is Wing and Gong's, with what was tried in vain remembered.)

A history is a list of Steps. Each happened at one moment between its begin and its end, and after the steps that it names. A call
that is not one moment, such as the walk along a path and what is done at its end, has several."""

NEVER = float("inf")
STATES_MAX = 100000  # a search that has seen so many ends without an answer


class Step:
    """change(state) gives the states that may follow, none when the step cannot come here. A look gives the state itself, or none."""

    def __init__(self, begin, end, change, after=(), look=False, text=""):
        self.begin, self.end, self.change, self.after, self.look, self.text = begin, end, change, after, look, text


class Search:
    def __init__(self, steps):
        self.steps = sorted(steps, key=lambda s: s.begin)
        for number, step in enumerate(self.steps):
            step.bit = 1 << number
        for step in self.steps:
            step.need = sum(other.bit for other in step.after)
        self.all = (1 << len(self.steps)) - 1

    def candidates(self, done):
        """What may come next: nothing that is still to come has ended before it began."""
        limit, found = NEVER, []
        for step in self.steps:
            if step.bit & done:
                continue
            if step.begin > limit:
                break
            limit = min(limit, step.end)
            if step.need & ~done == 0:
                found.append(step)
        return [step for step in found if step.begin <= limit]

    def looked(self, done, state):
        """A look that fits here need not wait: it changes nothing."""
        again = True
        while again:
            again = False
            for step in self.candidates(done):
                if step.look and step.change(state):
                    done |= step.bit
                    again = True
        return done

    def order_exists(self, state):
        tried, stack = set(), [(0, state)]
        while stack:
            done, state = stack.pop()
            done = self.looked(done, state)
            if done == self.all:
                return True
            if (done, state) in tried:
                continue
            if len(tried) == STATES_MAX:
                return None
            tried.add((done, state))
            for step in reversed(self.candidates(done)):
                if not step.look:
                    stack.extend((done | step.bit, after) for after in step.change(state))
        return False


def has_order(steps, state):
    """True, False, or None: that would take too long to find out."""
    return Search(steps).order_exists(state)
