"""What a game of PLE holds, as bytes and back."""

from __future__ import annotations

from envkit.adapters.ple_parts.saved_games import restore_game, save_game
from tests.adapters.ple_games import make_ple


def test_surfaces_come_back_as_they_were(pygame):
    ple = make_ple("Catcher")
    sheet = pygame.Surface((6, 4))
    sheet.fill((9, 8, 7))
    sheet.set_colorkey((1, 2, 3))
    indexed = pygame.Surface((3, 3), depth=8)
    indexed.set_palette([(i, 0, 255 - i) for i in range(256)])
    indexed.fill(77)
    faint = pygame.Surface((2, 2))
    faint.set_alpha(40)
    images = [sheet, sheet.subsurface((1, 1, 2, 2)), indexed, faint]
    ple.game.images = images
    before = [pygame.image.tobytes(image, "RGBA") for image in images]

    saved = save_game(ple, "beside")
    sheet.fill((0, 0, 0))

    assert "beside" == restore_game(ple, saved)
    after = ple.game.images
    assert before == [pygame.image.tobytes(image, "RGBA") for image in after]
    assert (1, 2, 3, 255) == after[0].get_colorkey()
    assert 40 == after[3].get_alpha()
    assert ple.game.screen is pygame.display.get_surface()
    assert ple.game.clock is not None
