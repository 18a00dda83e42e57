// How does it do? Numbers with their last minute, and how few subscriptions a message had to be held against.

const SECONDS = 60;
const NONE = "–";
const whole = (v) => Math.round(v).toLocaleString("en");
const short = (v) => v < 10 ? v.toFixed(1) : whole(v);
const ROWS = {
  messages_per_second: ["messages / s", short],
  updates_per_second: ["updates / s", short],
  answer_ms: ["answered in", (v) => `${v.toFixed(1)} ms`],
};
const STEPS = {
  visited_per_message: "entries looked at",
  candidates_per_message: "not ruled out",
  verified_per_message: "scored",
};

export class Panel {
  constructor(place) {
    place.insertAdjacentHTML("beforeend", '<dl class="rates">' + Object.entries(ROWS).map(([name, [title]]) =>
      `<div data-of="${name}"><dt>${title}</dt><dd>${NONE}</dd><svg viewBox="0 0 ${SECONDS - 1} 20" preserveAspectRatio="none" aria-hidden="true"><path class="area"/><path class="edge" vector-effect="non-scaling-stroke"/></svg></div>`).join("") + "</dl>" +
      '<h3>Work a message</h3><dl class="funnel">' + Object.entries(STEPS).map(([name, title]) =>
      `<div data-of="${name}"><dt>${title}</dt><dd>${NONE}</dd><i class="width" aria-hidden="true"></i></div>`).join("") + '</dl><p id="funnel-says" class="quiet">Most subscriptions are ruled out unseen; these few are not.</p>');
    this.rows = [...place.querySelectorAll("[data-of]")].map((row) => ({ row, name: row.dataset.of, past: [] }));
  }

  take(stats, n) {
    for (const { row, name, past } of this.rows) {
      const value = stats[name], isKnown = value !== undefined && value !== null;
      row.querySelector("dd").textContent = isKnown ? (ROWS[name]?.[1] ?? short)(value) : NONE;
      if (!(name in ROWS)) continue;
      past.push(isKnown ? value : past.at(-1) ?? 0);
      past.splice(0, past.length - SECONDS);
      drawn(row, past);
    }
    const most = Math.max(...Object.keys(STEPS).map((name) => stats[name] ?? 0), 1);
    for (const { row, name } of this.rows) {
      if (name in STEPS) row.querySelector(".width").style.width = `${100 * Math.sqrt((stats[name] ?? 0) / most)}%`;
    }
    if (n && (stats.verified_per_message ?? null) !== null) {
      document.getElementById("funnel-says").textContent = `Of ${whole(n)} subscriptions, about ${short(stats.verified_per_message)} had to be scored for a message; the rest were ruled out before.`;
    }
  }
}

function drawn(row, past) {
  const most = Math.max(...past, 1e-9), from = SECONDS - past.length;
  const line = past.map((v, i) => `${i ? "L" : "M"}${from + i} ${18 - 16 * v / most}`).join("");
  row.querySelector(".edge").setAttribute("d", past.length > 1 ? line : "");
  row.querySelector(".area").setAttribute("d", past.length > 1 ? `${line}L${SECONDS - 1} 20L${from} 20Z` : "");
}
