// What can be subscribed, and what do its numbers mean? One entry a kind, one a slider.

export const SLIDERS = {
  alpha: {
    name: "alpha", min: 0, max: 1, step: 0.05, start: 0.5,
    says: "How much nearness counts against words: 0 is words alone, 1 is nearness alone.",
    example: "At 0.8 a so-so match next door beats a perfect one across town.",
  },
  delta: {
    name: "delta", min: 0, max: 1, step: 0.05, start: 0.5,
    says: "How much words count against nearness in the score of a message.",
    example: "At 0.2 it is mostly about where, at 0.8 mostly about what.",
  },
  tau: {
    name: "tau", min: 0.05, max: 1, step: 0.05, start: 0.7,
    says: "The score that a message must reach to be passed on.",
    example: "At 0.9 you hear of close and fitting messages only, at 0.5 of many.",
  },
  k: {
    name: "k", min: 1, max: 20, step: 1, start: 5,
    says: "How many messages the result holds; a better one pushes out the worst.",
    example: "With 1 you see the best of the moment and nothing else.",
  },
};

export const KINDS = {
  boolean: { says: "every message in a box that holds the words; AND, OR and brackets work", shape: "box", sliders: [] },
  topk: { says: "the best messages of the window, by nearness and words", shape: "pin", sliders: ["k", "alpha"] },
  similarity: { says: "every message that is near and alike enough", shape: "pin", sliders: ["delta", "tau"] },
  nearest: { says: "the nearest messages that share a word, since it was made", shape: "pin", sliders: ["k"] },
};
