// How does it do? Numbers with their last minute, and how few subscriptions a message had to be held against.

const SECONDS = 60;
const NONE = "–";
const whole = (v) => Math.round(v).toLocaleString("en");
const short = (v) => v < 10 ? v.toFixed(1) : whole(v);
const SPARKLINE = `<svg viewBox="0 0 ${SECONDS - 1} 20" preserveAspectRatio="none" aria-hidden="true">` +
  '<path class="area"/><path class="edge" vector-effect="non-scaling-stroke"/></svg>';
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
    const row = (name, title, picture) => `<div data-of="${name}"><dt>${title}</dt><dd>${NONE}</dd>${picture}</div>`;
    const rates = Object.entries(ROWS).map(([name, [title]]) => row(name, title, SPARKLINE));
    const steps = Object.entries(STEPS).map(([name, title]) => row(name, title, '<i class="width" aria-hidden="true"></i>'));
    place.insertAdjacentHTML("beforeend", `<dl class="rates">${rates.join("")}</dl>` +
      `<h3>Work a message</h3><dl class="funnel">${steps.join("")}</dl>` +
      '<p id="funnel-says" class="quiet">Most subscriptions are ruled out unseen; these few are not.</p>');
    this.rows = [...place.querySelectorAll("[data-of]")].map((own) => ({ row: own, name: own.dataset.of, past: [] }));
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
    const scored = stats.verified_per_message ?? null;
    if (n && scored !== null) {
      const says = `Of ${whole(n)} subscriptions, about ${short(scored)} had to be scored for a message`;
      document.getElementById("funnel-says").textContent = `${says}; the rest were ruled out before.`;
    }
  }
}

function drawn(row, past) {
  const most = Math.max(...past, 1e-9), from = SECONDS - past.length;
  const line = past.map((v, i) => `${i ? "L" : "M"}${from + i} ${18 - 16 * v / most}`).join("");
  row.querySelector(".edge").setAttribute("d", past.length > 1 ? line : "");
  row.querySelector(".area").setAttribute("d", past.length > 1 ? `${line}L${SECONDS - 1} 20L${from} 20Z` : "");
}
