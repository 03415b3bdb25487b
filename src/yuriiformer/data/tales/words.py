"""The words of the tales, by pool, the frequent ones first.

A word is written in all the forms the grammar asks for, so that a character keeps the right
pronoun and a dish the right filling wherever they are mentioned. No word of a pool is the
beginning of another one, in any form a story may introduce it by: that is how a reader knows it.
"""

from __future__ import annotations

from typing import NamedTuple


class Pool(NamedTuple):
    """Words with the same forms; the first form is called ``it``."""

    forms: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]


def with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _nouns(listed: str) -> Pool:
    """Words separated by commas, with and without their article."""
    words = [" ".join(word.split()) for word in listed.split(",")]
    return Pool(("it", "a"), tuple((word, with_article(word)) for word in words))


def _phrases(listed: str) -> Pool:
    """Phrases separated by commas, of one form."""
    return Pool(("it",), tuple((" ".join(word.split()),) for word in listed.split(",")))


def _table(forms: str, listed: str) -> Pool:
    """A phrase a line, its forms separated by ``|``; a form ``a`` is the first with its article."""
    words = []
    for line in listed.strip().split("\n"):
        first, *rest = (cell.strip() for cell in line.split("|"))
        words.append((first, with_article(first), *rest))
    return Pool(("it", "a", *forms.split()), tuple(words))


_HE = ("he", "him", "his", "He", "His", "boy")
_SHE = ("she", "her", "her", "She", "Her", "girl")


def _people(listed: str) -> Pool:
    """Names, by turns of a boy and of a girl."""
    people = []
    for place, name in enumerate(listed.split()):
        forms = _SHE if place % 2 else _HE
        people.append((name, *forms, f"{forms[-1]} named {name}"))
    return Pool(("it", "he", "him", "his", "He", "His", "boy", "born"), tuple(people))


def _kin(listed: str) -> Pool:
    people = []
    for place, name in enumerate(listed.split(",")):
        people.append((name.strip(), *(_HE if place % 2 else _SHE)[:-1]))
    return Pool(("it", "he", "him", "his", "He", "His"), tuple(people))


POOLS: dict[str, Pool] = {
    "names": _people(
        """Tom Mia Ben Lily Sam Anna Max Rosa Leo Ella Jack Nora Finn Ruby Oscar Ivy Hugo Clara
        Felix Daisy Theo Molly Arlo Hazel Otto Penny Jonah Alice Milo Tilda Ravi Zara Kofi Mei
        Pablo Freya Omar Sofia Emil Greta"""
    ),
    "kin": _kin(
        "Grandma, Grandpa, Aunt May, Uncle Bert, Aunt Olive, Uncle Joe, Cousin Nell, Uncle Abel"
    ),
    "traits": _nouns(
        """curious, cheerful, kind, clever, quiet, shy, gentle, busy, dreamy, polite, eager,
        stubborn, honest, careful, lively, thoughtful, adventurous, restless"""
    ),
    "homes": _nouns(
        """little house, red cottage, old farmhouse, yellow house, stone cottage, tall narrow house,
        wooden cabin, house with a crooked chimney, white villa, ivy-covered tower, empty mill,
        round tent, painted caravan"""
    ),
    "nears": _phrases(
        """by the sea, at the edge of the forest, on a green hill, near the railway,
        at the end of a long lane, beside the lake, in a sunny valley, behind the church,
        between two mountains, outside the town, among the apple trees, across from the school"""
    ),
    "hobbies": _phrases(
        """feeding the ducks, drawing pictures, climbing trees, picking flowers, reading stories,
        catching butterflies, singing songs, counting the stars, collecting shells,
        skipping stones, watching the clouds, playing hide and seek, baking bread,
        building towers, whistling tunes"""
    ),
    "days": _nouns(
        """sunny morning, rainy afternoon, windy day, cold morning, warm evening, misty morning,
        bright spring day, lazy summer afternoon, cloudy day, golden autumn afternoon,
        frosty morning, stormy evening"""
    ),
    "spots": _phrases(
        """the park, the market, the river, the old bridge, the pond, the school, the library,
        the bakery, the meadow, the orchard, the windmill, the station, the harbour, the barn,
        the fountain, the castle, the museum, the beach"""
    ),
    "hues": _nouns(
        "red, blue, green, yellow, white, orange, purple, silver, brown, pink, golden, black, grey"
    ),
    "toys": _nouns(
        """ball, kite, doll, hat, toy boat, whistle, scarf, teddy bear, drum, mitten, wooden horse,
        music box, umbrella, spinning top, puppet, bell, lunch box, flute, paper crown,
        alarm clock, marble, necklace"""
    ),
    "nooks": _phrases(
        """under a bench, behind a wall, in the tall grass, inside a hollow tree, beside the well,
        under an old cart, behind some barrels, near the gate, under a rose bush,
        on top of the woodpile, behind the shed, next to a haystack, between two rocks,
        at the foot of an oak"""
    ),
    "junk": _phrases(
        """dry leaves, an old shoe, a sleepy snail, some feathers, a rusty nail, a broken cup,
        three acorns, a lonely beetle, an empty bottle, a torn glove"""
    ),
    "looks": _nouns(
        "old, friendly, plump, small, sleepy, spotted, thin, elegant, fluffy, wise, untidy, proud"
    ),
    "beasts": _nouns(
        """fox, rabbit, squirrel, hedgehog, badger, owl, frog, raccoon, otter, mouse, tortoise,
        beaver, hare, weasel, duck, mole, lizard, ermine"""
    ),
    "snacks": _nouns(
        """sandwich, biscuit, apple, sausage, bun, piece of cheese, pear, honey cake, oatcake,
        boiled egg, carrot, slice of toast, muffin"""
    ),
    "gifts": _nouns(
        """basket of eggs, jar of honey, warm blanket, pot of soup, loaf of bread,
        bunch of flowers, woollen shawl, bottle of medicine, bag of chestnuts, embroidered pillow,
        box of tea, picture book"""
    ),
    "pantry": _phrases("butter, sugar, milk, cream, salt, a bowl of eggs, a pinch of cinnamon"),
    "dishes": _table(
        "need",
        """
        apple pie | apples
        carrot cake | carrots
        plum tart | plums
        honey loaf | honey
        lemon pudding | lemons
        walnut bread | walnuts
        cherry cake | cherries
        blueberry pie | blueberries
        onion pie | onions
        cheese pastry | cheese
        raisin cake | raisins
        pumpkin tart | pumpkin
        """,
    ),
    "troubles": Pool(
        ("it", "do"),
        (
            ("my hens have run into the lane", "led the hens home with a trail of corn"),
            ("my goat is up on the roof", "called the goat down with a handful of hay"),
            ("the wind has broken my gate", "held the gate straight and hammered in four nails"),
            ("the rope of my well has snapped", "tied the rope again with a sailor's knot"),
            ("my baby brother will not stop crying", "pulled funny faces until the baby giggled"),
            ("all my washing has blown away", "gathered every shirt and sock from the hedge"),
            ("my wheelbarrow has lost its wheel", "fixed the wheel with a wooden peg"),
            ("my windows are too dirty to see through", "scrubbed the glass until it shone"),
            ("my cat is stuck in a tree", "climbed up and carried the cat down in a basket"),
            ("nobody has stacked my firewood", "stacked the logs in a neat pile by the door"),
            ("I cannot find my glasses", "searched the room and found the glasses in a teapot"),
        ),
    ),
    "fears": Pool(
        ("it", "invite", "trick", "act"),
        (
            (
                "the dark",
                "sleep in a tent under the trees",
                "Listen, and name each thing that you hear",
                "named a cricket, an owl and the wind, until the night sounded like a song",
            ),
            (
                "deep water",
                "swim out to the raft",
                "Lie on your back and breathe like a sleeping cat",
                "lay back, breathed slowly and floated like a leaf",
            ),
            (
                "thunder",
                "watch the storm from the porch",
                "Count from the flash to the bang",
                "counted to four, then to seven, then to ten, and the storm rolled away",
            ),
            (
                "high places",
                "climb up to the tree house",
                "Look at the next step and never at the ground",
                "looked at one step, then the next, until there were no more steps",
            ),
            (
                "big dogs",
                "walk the neighbour's huge dog",
                "Stand still and let it sniff your hand",
                "stood as still as a post, and the dog licked every finger",
            ),
            (
                "singing in front of people",
                "sing at the village fair",
                "Find one kind face and sing to that face alone",
                "found one smiling face in the crowd and sang every verse to it",
            ),
            (
                "bees",
                "fetch honey from the hives",
                "Move slowly and hum a low note",
                "hummed one long note, and the bees drifted by like golden rain",
            ),
            (
                "horses",
                "ride the tall brown mare",
                "Speak softly and hold out a carrot",
                "whispered and held out a carrot, and the mare bent her great head",
            ),
            (
                "slippery ice",
                "skate on the frozen lake",
                "Bend your knees and look far ahead",
                "bent both knees, looked far ahead and glided like a swan",
            ),
            (
                "caves",
                "explore the cave behind the waterfall",
                "Hold your lantern high and sing to the echo",
                "held the lantern high and sang, and the echo sang along",
            ),
        ),
    ),
    "excuses": _phrases(
        """feed the cat, clean the windows, write a letter, water the plants, sort the buttons,
        polish the spoons, do homework, mend a sock, sweep the floor, peel potatoes"""
    ),
    "detours": _phrases("the mill, the brook, the cornfield, the vineyard, the quarry"),
    "projects": _nouns(
        """tree house, raft, puppet theatre, go-cart, bird house, swing, doll's house, snow sledge,
        rabbit hutch, market stall, igloo of boxes, airship of paper"""
    ),
    "young": _table(
        "mother home food",
        """
        duckling | a white duck | the reeds | bread crumbs
        kitten | a striped cat | the hay loft | warm milk
        puppy | a shaggy dog | the baker's yard | a bit of bacon
        lamb | a woolly sheep | the upper field | clover
        baby squirrel | a red squirrel | the pine wood | a hazelnut
        fox cub | a slender vixen | the sandy bank | a bit of chicken
        baby hedgehog | a prickly hedgehog | the pile of leaves | a juicy worm
        owlet | a large owl | the bell tower | a fat beetle
        baby rabbit | a brown rabbit | the grassy hill | dandelions
        piglet | a pink sow | the farmyard | turnips
        """,
    ),
    "crops": _phrases(
        """sunflowers, beans, strawberries, pumpkins, peas, tulips, tomatoes, radishes, melons,
        cabbages, potatoes"""
    ),
    "racers": _nouns(
        """scooter, soapbox car, bicycle, tricycle, handcart, tandem, racing cart, unicycle"""
    ),
    "prizes": _nouns(
        """silver cup, chocolate cake, medal, basket of peaches, big balloon, ice cream,
        blue ribbon, ticket to the circus, story book, enormous cookie"""
    ),
    "rooms": _phrases(
        """the kitchen, the cellar, the attic, the wash house, the workshop, the pantry"""
    ),
    "lights": _nouns("lantern, candle, torch, oil lamp, glowing stick, night light"),
    "noises": _table(
        "cause cure",
        """
        tapping | a loose shutter, knocking in the wind | tied the shutter with a string
        scratching | a mouse, building a nest of paper | left the mouse a crust
        dripping | a tap, which nobody had closed | turned the tap until it stopped
        humming | a top, still spinning on its point | let the top fall asleep
        squeaking | a hinge, as dry as a bone | rubbed the hinge with oil
        rustling | a hedgehog, lost in a paper bag | carried the hedgehog into the garden
        ticking | an alarm clock, wrapped in a sock | put the clock on a shelf
        fluttering | a moth, looking for the moon | opened the window for the moth
        thumping | a rabbit, drumming with its foot | took the rabbit back to its hutch
        rattling | a jar of beans, shaken by the wind | moved the jar away from the draught
        """,
    ),
    "scares": _nouns("ghost, robber, monster, dragon, witch, ogre, wolf"),
    "snags": _nouns("branch, beam, boulder, barrel, iron gate, oak log, crate"),
}
