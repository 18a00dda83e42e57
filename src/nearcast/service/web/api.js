// How does the page talk to the service? Requests that fail say field, rule and value; streams come back by themselves.

const AGAIN_MS = 1000, SOON_MS = 500, LONGEST_MS = 10_000;
let token = sessionStorage.getItem("token") ?? "";

export class Refused extends Error {
  constructor(status, problem) {
    const faults = (problem.errors ?? []).map(({ field, rule, value }) => `${field} ${rule}; got ${JSON.stringify(value)}`);
    super(faults.join("\n") || problem.detail || `status ${status}`);
    this.status = status;
  }
}

export function setToken(given) {
  token = given;
  sessionStorage.setItem("token", given);
}

async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  const said = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Refused(answer.status, said ?? {});
  return said;
}

// Ask until there is an answer, or a refusal that waiting does not change; `waits` hears of every attempt that failed.
export async function patiently(work, waits) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof Refused && ![429, 503].includes(error.status)) throw error;
      waits(error);
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}

const named = (id) => `v1/subscriptions/${encodeURIComponent(id)}`;

export const api = {
  world: () => ask("GET", "v1/world"),
  shards: () => ask("GET", "v1/shards"),
  put: ({ id, ...rest }) => ask("PUT", named(id), rest),
  remove: (id) => ask("DELETE", named(id)),
  results: (id) => ask("GET", `${named(id)}/results`),
  explain: (id, message) => ask("POST", `${named(id)}/explain`, message),
  preview: (subscription) => ask("POST", "v1/preview", subscription),
  async *subscriptions() {
    let cursor = "";
    do {
      const page = await ask("GET", `v1/subscriptions?limit=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
      yield* page.subscriptions;
      cursor = page.next;
    } while (cursor);
  },
};

// Follow a stream of server-sent events with a header, which EventSource cannot send; go on behind the last one seen.
// `stateOf` hears "live", "lost" with the reason, and once "refused" if there is no use in trying again.
export function follow(path, heard, stateOf) {
  let last = "", wait = SOON_MS, timer;
  async function again() {
    timer = null;
    try {
      const headers = { Accept: "text/event-stream" };
      if (token) headers.Authorization = `Bearer ${token}`;
      if (last) headers["Last-Event-ID"] = last;
      const answer = await fetch(path, { headers });
      if (answer.status === 410) last = "";  // older than what is kept
      if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
      stateOf("live");
      wait = SOON_MS;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { done, value } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) last = take(event, heard) ?? last;
      }
      stateOf("lost");
    } catch (error) {
      if (error.status === 401 || error.status === 403) return stateOf("refused", error.message);
      stateOf("lost", error instanceof Refused ? error.message : "");
    }
    timer = setTimeout(again, wait);
    wait = Math.min(2 * wait, LONGEST_MS);
  }
  addEventListener("online", () => {   // no need to wait any longer
    if (!timer) return;
    clearTimeout(timer);
    again();
  });
  again();
}

function take(event, heard) {
  const fields = { event: "message", data: [] };
  for (const line of event.split("\n")) {
    const at = line.indexOf(":");
    if (at <= 0) continue;
    const name = line.slice(0, at), value = line.slice(at + 1).replace(/^ /, "");
    if (name === "data") fields.data.push(value);
    else fields[name] = value;
  }
  if (fields.data.length) heard(fields.event, JSON.parse(fields.data.join("\n")));
  return fields.id;
}
