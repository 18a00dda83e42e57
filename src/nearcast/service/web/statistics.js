// Statistics: rates with their last minute, and how few subscriptions the engine examines per message.

import { formatInteger } from "./wording.js";

const SECONDS = 60;
const UNKNOWN = "–";
const formatNumber = (value) => value < 10 ? value.toFixed(1) : formatInteger(value);
const SPARKLINE = `<svg viewBox="0 0 ${SECONDS - 1} 20" preserveAspectRatio="none" aria-hidden="true">` +
  '<path class="area"/><path class="edge" vector-effect="non-scaling-stroke"/></svg>';
const RATES = {
  messages_per_second: ["messages / s", formatNumber],
  updates_per_second: ["updates / s", formatNumber],
  latency_ms: ["latency", (value) => `${value.toFixed(1)} ms`],
};
const FUNNEL = {
  visited_per_message: "index entries visited",
  candidates_per_message: "candidates",
  verified_per_message: "scores computed",
};

export class Statistics {
  constructor(element) {
    const row = (name, title, graphic) => `<div data-of="${name}"><dt>${title}</dt><dd>${UNKNOWN}</dd>${graphic}</div>`;
    const rates = Object.entries(RATES).map(([name, [title]]) => row(name, title, SPARKLINE));
    const steps = Object.entries(FUNNEL).map(([name, title]) => row(name, title, '<i class="width" aria-hidden="true"></i>'));
    element.insertAdjacentHTML("beforeend", `<dl class="rates">${rates.join("")}</dl>` +
      `<h3>Work per message</h3><dl class="funnel">${steps.join("")}</dl>` +
      '<p id="work-note" class="muted">The index rules out most subscriptions without examining them.</p>');
    this.rows = [...element.querySelectorAll("[data-of]")].map((row) => ({ row, name: row.dataset.of, history: [] }));
  }

  // Show new rates, given the number of subscriptions.
  add(stats, nSubscriptions) {
    for (const { row, name, history } of this.rows) {
      const value = stats[name], isKnown = value !== undefined && value !== null;
      row.querySelector("dd").textContent = isKnown ? (RATES[name]?.[1] ?? formatNumber)(value) : UNKNOWN;
      if (!(name in RATES)) continue;
      history.push(isKnown ? value : history.at(-1) ?? 0);
      history.splice(0, history.length - SECONDS);
      drawSparkline(row, history);
    }
    const maximum = Math.max(...Object.keys(FUNNEL).map((name) => stats[name] ?? 0), 1);
    for (const { row, name } of this.rows) {
      if (name in FUNNEL) row.querySelector(".width").style.width = `${100 * Math.sqrt((stats[name] ?? 0) / maximum)}%`;
    }
    const nScored = stats.verified_per_message ?? null;
    if (nSubscriptions && nScored !== null) {
      const text = `Of ${formatInteger(nSubscriptions)} subscriptions, about ${formatNumber(nScored)} are scored per message`;
      document.getElementById("work-note").textContent = `${text}; the index rules out the rest.`;
    }
  }
}

function drawSparkline(row, history) {
  const maximum = Math.max(...history, 1e-9), start = SECONDS - history.length;
  const line = history.map((value, i) => `${i ? "L" : "M"}${start + i} ${18 - 16 * value / maximum}`).join("");
  row.querySelector(".edge").setAttribute("d", history.length > 1 ? line : "");
  row.querySelector(".area").setAttribute("d", history.length > 1 ? `${line}L${SECONDS - 1} 20L${start} 20Z` : "");
}
