"""Stands in for PLE, which no package registry has: its interface, and small games.

`PLE` and `PyGameWrapper` have the members of the real ones, with the same meaning. The
games have the peculiarities of real ones: numbers that are integers at first and floats
later, lists that vary in length, no state at all, things kept from one episode to the
next, pictures that are drawn by a step only. Those that are called Quiet draw nothing,
so any number of them fits into a process, and they need no pygame.
"""

from __future__ import annotations

import functools

import numpy as np

from envkit.adapters.ple.suite import PLEWrapper

K_a, K_d, K_w = 97, 100, 119


class PLE:
    """Has the interface of `ple.PLE`."""

    def __init__(
        self,
        game,
        fps=30,
        frame_skip=1,
        num_steps=1,
        reward_values={},  # noqa: B006  # as in PLE
        force_fps=True,
        display_screen=False,
        add_noop_action=True,
        state_preprocessor=None,
        rng=24,
    ):
        self.game, self.fps = game, fps
        self.frame_skip, self.num_steps = frame_skip, num_steps
        self.force_fps, self.display_screen = force_fps, display_screen
        self.add_noop_action = add_noop_action
        self.NOOP = None
        self.last_action, self.action = [], []
        self.previous_score = self.frame_count = 0
        self.inits = 0
        if reward_values:
            game.adjustRewards(reward_values)
        self.rng = (
            rng
            if isinstance(rng, np.random.RandomState)
            else np.random.RandomState(rng)
        )
        if isinstance(game, PyGameWrapper):
            import pygame

            pygame.display.set_mode((1, 1), pygame.NOFRAME)
        game.setRNG(self.rng)
        self.init()
        self.state_preprocessor, self.state_dim = state_preprocessor, None
        if state_preprocessor is not None:
            state = game.getGameState()
            if state is None:
                raise ValueError("Asked for a state of a game that has none.")
            self.state_dim = state_preprocessor(state).shape
        if game.allowed_fps is not None and fps != game.allowed_fps:
            raise ValueError(f"Game requires {game.allowed_fps}fps.")

    def init(self):
        self.inits += 1
        self.game._setup()
        self.game.init()

    def getActionSet(self):
        actions = self.game.actions
        if isinstance(actions, dict) or isinstance(actions, dict_values):  # noqa: F821, SIM101  # as in PLE
            actions = actions.values()
        return [*actions, self.NOOP] if self.add_noop_action else list(actions)

    def act(self, action):
        return sum(self._act_once(action) for _ in range(self.frame_skip))

    def _act_once(self, action):
        if self.game_over():
            return 0.0
        if action not in self.getActionSet():
            action = self.NOOP
        if action is not None:
            self.game._setAction(action, self.last_action)
        self.last_action = action
        for _ in range(self.num_steps):
            in_time = not self.force_fps
            elapsed = self.game.tick(self.fps) if in_time else 1000.0 / self.fps
            self.game.step(elapsed)
            self.game._draw_frame(self.display_screen)
        self.frame_count += self.num_steps
        before, self.previous_score = self.previous_score, self.game.getScore()
        return self.previous_score - before

    def game_over(self):
        return self.game.game_over()

    def reset_game(self):
        self.last_action, self.action, self.previous_score = [], [], 0.0
        self.game.reset()

    def getGameState(self):
        state = self.game.getGameState()
        if state is None:
            raise ValueError("Asked for a state of a game that has none.")
        return self.state_preprocessor(state) if self.state_preprocessor else state

    def getGameStateDims(self):
        return self.state_dim

    def getScreenRGB(self):
        return self.game.getScreenRGB()

    def getScreenGrayscale(self):
        weighted = self.getScreenRGB() @ np.array([0.21, 0.72, 0.07])
        return np.round(weighted).astype(np.uint8)

    def getScreenDims(self):
        return self.game.getScreenDims()

    def lives(self):
        return self.game.lives

    def score(self):
        return self.game.getScore()

    def getFrameNumber(self):
        return self.frame_count


class Game:
    """What all games have."""

    def __init__(self, width, height, actions):
        self.actions, self.score, self.lives = actions, 0.0, 0
        self.screen = self.clock = self.rng = self.allowed_fps = None
        self.width, self.height, self.screen_dim = width, height, (width, height)
        self.rewards = {"positive": 1.0, "negative": -1.0, "tick": 0.0, "loss": -5.0}

    def setRNG(self, rng):
        if self.rng is None:
            self.rng = rng

    def adjustRewards(self, rewards):
        self.rewards.update({k: v for k, v in rewards.items() if k in self.rewards})

    def getScreenDims(self):
        return self.screen_dim

    def getGameState(self):
        return None

    def getScore(self):
        return self.score

    def game_over(self):
        return self.lives <= 0

    def reset(self):
        self.init()

    def draw(self):
        """Draws a frame, if the game draws."""


class PyGameWrapper(Game):
    """A game with pygame's display and its queue of keys."""

    def _setup(self):
        import pygame

        pygame.init()
        self.screen = pygame.display.set_mode(self.getScreenDims(), 0, 32)
        self.clock = pygame.time.Clock()

    def _setAction(self, action, last_action):
        import pygame

        released = 1073741938 if last_action is None else last_action
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, {"key": action}))
        pygame.event.post(pygame.event.Event(pygame.KEYUP, {"key": released}))

    def _draw_frame(self, draw_screen):
        if draw_screen:
            import pygame

            pygame.display.update()

    def pressed(self):
        import pygame

        return [e.key for e in pygame.event.get() if e.type == pygame.KEYDOWN]

    def getScreenRGB(self):
        import pygame

        shown = pygame.display.get_surface()
        return pygame.surfarray.array3d(shown).astype(np.uint8)

    def tick(self, fps):
        return self.clock.tick_busy_loop(fps)


class QuietGame(Game):
    """A game that draws by itself, without pygame."""

    def __init__(self, *args):
        super().__init__(*args)
        self.keys = []

    def _setup(self):
        pass

    def _setAction(self, action, last_action):
        self.keys.append(action)

    def _draw_frame(self, draw_screen):
        pass

    def pressed(self):
        keys, self.keys = self.keys, []
        return keys

    def getScreenRGB(self):
        picture = np.zeros((self.width, self.height, 3), np.uint8)
        picture[int(self.score) % self.width, 0] = 255
        return picture


class _Catching:
    """Fruit falls, and a paddle is to be under it; three may be missed."""

    def __init__(self, width=12, height=8, lives=3):
        super().__init__(width, height, {"left": K_a, "right": K_d})
        self.init_lives = lives

    def init(self):
        self.score, self.lives = 0, np.float64(self.init_lives)
        self.paddle, self.velocity = self.width // 2, 0
        self.drop()

    def drop(self):
        self.fruit = [self.rng.randint(self.width), 0]

    def getGameState(self):
        return {
            "player_x": self.paddle,
            "player_vel": self.velocity,  # 0 at first, a float later
            "fruit_x": self.fruit[0],  # NumPy's
            "fruit_y": self.fruit[1],
        }

    def step(self, elapsed):
        for key in self.pressed():
            self.velocity += 1.0 if key == self.actions["right"] else -1.0
        self.velocity *= 0.5
        self.paddle = min(max(self.paddle + self.velocity, 0), self.width - 1)
        self.fruit[1] += elapsed * 0.03
        self.score += self.rewards["tick"]
        if self.fruit[1] >= self.height:
            caught = abs(self.paddle - self.fruit[0]) < 2
            self.score += self.rewards["positive" if caught else "negative"]
            self.lives -= not caught
            self.drop()
        if self.lives == 0:
            self.score += self.rewards["loss"]
        self.draw()


class QuietCatcher(_Catching, QuietGame):
    """Is not drawn."""


class Catcher(_Catching, PyGameWrapper):
    """Is drawn: white on black."""

    def draw(self):
        self.screen.fill((0, 0, 0))
        x, y = round(self.fruit[0]), int(self.fruit[1])
        self.screen.fill((200, 100, 50), (x, y, 1, 1))
        self.screen.fill((255, 255, 255), (round(self.paddle), self.height - 1, 2, 1))


class QuietSnake(QuietGame):
    """Grows by one with each step upward, so its list gets longer and longer."""

    def __init__(self, length=3, longest=20):
        super().__init__(16, 16, {"up": K_w})
        self.length, self.longest = length, longest

    def init(self):
        self.score, self.lives = 0, 1
        self.head = float(self.rng.randint(16))
        self.body = [self.head - i for i in range(self.length)]

    def getGameState(self):
        return {
            "snake_head_x": self.head,
            "snake_body": [self.head - part for part in self.body],
            "snake_body_pos": [[part, 2 * part] for part in self.body],
        }

    def step(self, elapsed):
        self.head += 1
        if self.pressed():
            self.body.append(self.head)
            self.score += self.rewards["positive"]
        if len(self.body) >= self.longest:
            self.lives = -1


class QuietWaterWorld(QuietGame):
    """Has creeps of two kinds, none of one of them at first; it never ends."""

    def __init__(self):
        super().__init__(16, 16, {"up": K_w})

    def init(self):
        self.score, self.lives = 0, -1
        self.creeps = {"GOOD": [self.creep()], "BAD": []}

    def creep(self):
        return [float(self.rng.randint(9)), float(self.rng.randint(9))]

    def game_over(self):
        return False

    def getGameState(self):
        return {
            "player_x": np.float32(0.5),
            "creep_dist": {
                kind: [sum(creep) for creep in creeps]
                for kind, creeps in self.creeps.items()
            },
            "creep_pos": {kind: list(creeps) for kind, creeps in self.creeps.items()},
        }

    def step(self, elapsed):
        kind = "BAD" if self.pressed() else "GOOD"
        self.creeps[kind] = [*self.creeps[kind], self.creep()][-5:]


class MonsterKong(PyGameWrapper):
    """Has no state, only a picture, and runs at 30 frames a second only."""

    def __init__(self):
        super().__init__(10, 6, {"jump": 32, "left": K_a})
        self.allowed_fps = 30

    def init(self):
        self.score, self.lives, self.color = 0, 2, int(self.rng.randint(1, 200))

    def step(self, elapsed):
        for key in self.pressed():
            self.color = (self.color + key) % 256
        self.screen.fill((self.color, 7, 255))
        self.lives -= self.color < 20
        self.score += 5


class FlappyBird(PyGameWrapper):
    """Keeps its bird, with its speed, from one episode to the next, as PLE's does."""

    def __init__(self):
        import pygame

        super().__init__(9, 14, {"up": K_w})
        pygame.display.set_mode((1, 1), pygame.NOFRAME)
        self.image = pygame.Surface((2, 2), pygame.SRCALPHA).convert_alpha()
        self.image.fill((250, 240, 10, 128))
        self.bird = None

    def init(self):
        import pygame

        if self.bird is None:
            self.bird = pygame.sprite.Sprite()
            self.bird.image, self.bird.velocity = self.image, 0
            self.group = pygame.sprite.Group(self.bird)
        self.bird.rect = pygame.Rect(2, int(self.rng.randint(4, 8)), 2, 2)
        self.score, self.lives = 0.0, 1

    def getGameState(self):
        return {"player_y": self.bird.rect.y, "player_vel": self.bird.velocity}

    def step(self, elapsed):
        self.bird.velocity += -3 if self.pressed() else 1
        self.bird.rect.y += self.bird.velocity
        if not 0 <= self.bird.rect.y < self.height:
            self.lives -= 1
            self.score += self.rewards["loss"]
        self.screen.fill((0, 100, 200))
        self.group.draw(self.screen)


def make_ple(game, **kwargs):
    """Makes a PLE of the game of this name."""
    return PLE(globals()[game](), **kwargs)


def drawn(game="Catcher", **kwargs):
    """Makes an environment of a game that is drawn, and so has the display."""
    return PLEWrapper(functools.partial(make_ple, game), **kwargs)


def quiet(game=QuietCatcher, **kwargs):
    """Makes an environment of a game that does not need the display."""
    return PLEWrapper(PLE(game()), **kwargs)
