// How does it do? A number and the last minute of it, a row each.

const SECONDS = 60;
const ROWS = {
  messages_per_second: ["messages a second", (v) => Math.round(v).toLocaleString()],
  updates_per_second: ["updates a second", (v) => Math.round(v).toLocaleString()],
  answer_ms: ["matched and on disk in", (v) => `${v.toFixed(1)} ms`],
  visited_per_message: ["looked at a message", (v) => v.toFixed(0)],
  candidates_per_message: ["not ruled out", (v) => v.toFixed(1)],
  verified_per_message: ["scored", (v) => v.toFixed(1)],
};

export class Panel {
  constructor(place) {
    this.rows = Object.entries(ROWS).map(([name, [title, shown]]) => {
      place.insertAdjacentHTML("beforeend", `<span id="p-${name}">${title}</span><b aria-labelledby="p-${name}">–</b>` +
        `<svg viewBox="0 0 ${SECONDS} 16" preserveAspectRatio="none" aria-hidden="true"><path vector-effect="non-scaling-stroke"/></svg>`);
      const [number, picture] = [...place.children].slice(-2);
      return { name, shown, number, path: picture.firstChild, past: [] };
    });
  }

  take(stats) {
    for (const row of this.rows) {
      const value = stats[row.name];
      if (value === undefined || value === null) continue;
      row.past = [...row.past, value].slice(-SECONDS);
      row.number.textContent = row.shown(value);
      const most = Math.max(...row.past, 1e-9);
      row.path.setAttribute("d", row.past.map((v, i) => `${i ? "L" : "M"}${i} ${15 - 14 * v / most}`).join(""));
    }
  }
}
