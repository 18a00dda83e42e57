// What can be subscribed, and what do its numbers mean? One entry a kind, one a slider; icons are paths in a square of 16.

export const SLIDERS = {
  k: {
    title: "How many", ends: ["1", "20"], min: 1, max: 20, step: 1, start: 5,
    says: "So many messages its result holds; a better one pushes out the worst.",
    example: "With 1 you see the best of the moment and nothing else.",
  },
  alpha: {
    title: "Words or nearness", ends: ["words", "nearness"], min: 0, max: 1, step: 0.05, start: 0.5,
    says: "How much nearness counts against words: 0 is words alone, 1 is nearness alone.",
    example: "At 0.8 a so-so match next door beats a perfect one across town.",
  },
  delta: {
    title: "Nearness or words", ends: ["nearness", "words"], min: 0, max: 1, step: 0.05, start: 0.5,
    says: "How much words count against nearness in the score of a message.",
    example: "At 0.2 it is mostly about where, at 0.8 mostly about what.",
  },
  tau: {
    title: "How good it must be", ends: ["hear of many", "of few"], min: 0.05, max: 1, step: 0.05, start: 0.7,
    says: "The score that a message must reach to be passed on.",
    example: "At 0.9 only close and fitting ones do; at 0.5 many.",
  },
};

export const KINDS = {
  boolean: {
    label: "In a box", shape: "box", sliders: [], grows: true,
    says: "Every message in a box whose words fit.",
    words: "Words with AND, OR and brackets: coffee AND (sale OR free).",
    icon: "M2.5 3.5h11v9h-11z",
  },
  topk: {
    label: "The best", shape: "pin", sliders: ["k", "alpha"], grows: false,
    says: "The best messages of the moment, by nearness and words; older ones make room.",
    words: "A message needs one of these words; rare ones weigh more.",
    icon: "M3 13V8M8 13V3M13 13v-3",
  },
  similarity: {
    label: "Near and alike", shape: "pin", sliders: ["delta", "tau"], grows: true,
    says: "Every message that is near and alike enough. The circle: how far one with all the words can be.",
    words: "The more of these words a message has, the farther away it may be.",
    icon: "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13M8 7a1 1 0 1 0 0 2a1 1 0 1 0 0-2",
  },
  nearest: {
    label: "The nearest", shape: "pin", sliders: ["k"], grows: false,
    says: "The nearest messages that share a word, from when it is saved on. The circle: nothing beyond it gets in.",
    words: "A message needs one of these words.",
    icon: "M8 14.5s-4.5-4.6-4.5-8a4.5 4.5 0 1 1 9 0c0 3.4-4.5 8-4.5 8M8 5.2a1.3 1.3 0 1 0 0 2.6a1.3 1.3 0 1 0 0-2.6",
  },
  social: {
    label: "With friends", shape: "pin", sliders: ["k"], grows: false,
    says: "The best messages of the moment by nearness, words and friends: what people like you go to.",
    words: "Words help, and none has to be there.",
    icon: "M5.5 3a2.2 2.2 0 1 0 0 4.4a2.2 2.2 0 1 0 0-4.4M1.5 13.5c0-2.6 1.8-4 4-4s4 1.4 4 4M11 4a1.9 1.9 0 1 1 0 3.8M11.5 9.7c1.8 0 3 1.3 3 3.3",
  },
};

export const iconOf = (kind) => `<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="${KINDS[kind]?.icon ?? ""}"/></svg>`;

export const wordsOf = ({ keywords }) => Array.isArray(keywords) ? keywords.join(" ") : keywords;

// How far away a message can be that has all the words and still reaches tau; null if anywhere, and for other kinds.
export function reachOf({ kind, delta, tau }, maxDistance) {
  return kind !== "similarity" || tau <= delta ? null : (1 - (tau - delta) / (1 - delta)) * maxDistance;
}
