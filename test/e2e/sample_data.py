# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small data that can be learnt, made from a seed."""

import random

_LETTERS = "bdfgklmnprstvz"
_VOWELS = "aeiou"


def _words(noise, count):
    """Distinct words that can be spoken."""
    words = set()
    while len(words) < count:
        words.add("".join(noise.choice(_LETTERS) + noise.choice(_VOWELS) for _ in range(noise.randint(2, 3))))
    return sorted(words)


def labelled_sentences(count, classes=5, longest=20, seed=1):
    """Lines of a label, a tab and a sentence. Each class has words of its own; the rest says nothing."""
    # The words are those of any count and seed, so that one set can be held out from another.
    words = _words(random.Random(0), 12 * classes + 60)
    neutral, own = words[12 * classes :], [words[12 * i : 12 * (i + 1)] for i in range(classes)]
    noise = random.Random(seed)
    lines = []
    for _ in range(count):
        label = noise.randrange(classes)
        sentence = [noise.choice(own[label] if noise.random() < 0.4 else neutral)
                    for _ in range(noise.randint(3, longest - 2))]
        sentence.insert(noise.randrange(len(sentence)), noise.choice(own[label]))
        lines.append(f"{label}\t{' '.join(sentence).capitalize()} .\n")
    return "".join(lines)


def documents(count, seed=1):
    """Paragraphs of sentences. A document keeps to its topic, and the words of a topic come in a fixed order, so that
    both masked words and the next sentence can be guessed."""
    words = _words(random.Random(0), 120)
    topics = [words[20 * i : 20 * (i + 1)] for i in range(6)]
    noise = random.Random(seed)
    paragraphs = []
    for _ in range(count):
        topic = noise.choice(topics)
        sentences = []
        for _ in range(noise.randint(2, 8)):
            start = noise.randrange(len(topic))
            length = noise.randint(3, 9)
            sentence = [topic[(start + i) % len(topic)] for i in range(length)]
            sentences.append(" ".join(sentence).capitalize() + " .\n")
        paragraphs.append("".join(sentences))
    return "\n".join(paragraphs)
