"""An agent types its way out of a text adventure in a terminal.

    apt-get install tigervnc-standalone-server xterm

The first half of this file is the adventure, which a person may play:
`python desktop_terminal.py game`. The agent of the second half sees the text that the
game has reported since the last step, and each of its actions types a word. It learns a
value for each word after each text, by Q-learning. Values begin with zeros and each
word costs points, so the agent tries what it has not tried yet.
"""

import select
import sys
from collections import defaultdict

import numpy as np

from envkit.desktop import Desktop, Macros, Reporter, RewardChannel

GAMES = 60
DISCOUNT, LEARNING_RATE = 0.95, 0.5
SEED = 0
WORDS = ["north", "south", "east", "west", "take", "open"]
DOORS = {
    "cellar": {"north": "hall"},
    "hall": {"south": "cellar", "west": "kitchen", "north": "courtyard"},
    "kitchen": {"east": "hall", "south": "pantry"},
    "pantry": {"north": "kitchen"},
    "courtyard": {"south": "hall", "east": "well", "west": "gate"},
    "gate": {"east": "courtyard"},
}


def play_game(reporter):
    """Plays one game; returns False at the end of the input."""
    reporter.begin()
    room, key, words = "cellar", "", 0
    is_over, points = False, 0.0
    while True:
        text = f"You are in the {room}{key}."
        print(text, flush=True)
        is_late = words == 25 and not is_over
        reporter.report(points, text=text, terminated=is_over, truncated=is_late)
        if is_over or is_late:
            break
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            if reporter.is_over():  # the agent has given up this game
                return True
        word = sys.stdin.readline()
        if not word:
            return False
        word, words = word.strip(), words + 1
        if word == "take" and room == "pantry":
            key = " with the key"
        elif word == "open" and room == "gate" and key:
            room = "meadow"
        else:
            room = DOORS[room].get(word, room)
        is_over = room in ("well", "meadow")
        points = {"well": -5.0, "meadow": 10.0}.get(room, -0.1)
    # A Desktop says when the next game begins; a person gets it at once.
    while reporter.episode is not None and not reporter.is_over():
        select.select([], [], [], 0.005)
    return True


if sys.argv[1:] == ["game"]:
    game = Reporter()  # does nothing if no Desktop has started the game
    while play_game(game):
        pass
    sys.exit()

# From here on: the agent.


def answer(env, time_step):
    """Types nothing until the game has answered; returns the time step, the points."""
    points = float(time_step.reward)
    while not (time_step.observation["text"] or time_step.is_last()):
        time_step = env.step(0)
        points += float(time_step.reward)
    return time_step, points


rng, values = np.random.default_rng(SEED), defaultdict(lambda: np.zeros(len(WORDS)))
with Desktop(
    ["xterm", "-geometry", "100x40+0+0", "-e", sys.executable, __file__, "game"],
    # Action 0 types nothing, and the others a word and Return.
    actions=Macros([None, *[[*word, "Return"] for word in WORDS]]),
    reward=RewardChannel(),
    ready="reported",
    reset=None,
    pixels=False,
    text=200,
    pause=0.01,
    patience=60.0,
) as env:
    for number in range(1, GAMES + 1):
        time_step, _ = answer(env, env.reset())
        typed = []
        while not time_step.is_last():
            known = values[str(time_step.observation["text"])]
            word = int(rng.choice(np.flatnonzero(known == known.max())))
            typed.append(WORDS[word])
            time_step, points = answer(env, env.step(1 + word))
            # The discount is 0 after an end, and 1 where a game was cut off.
            following = values[str(time_step.observation["text"])].max()
            target = points + DISCOUNT * float(time_step.discount) * following
            known[word] += LEARNING_RATE * (target - known[word])
        if number % 20 == 0 or number == 1:
            print(f"game {number:2}: {len(typed)} words: {' '.join(typed)}", flush=True)
