// What is this? Told once, on the first visit.

const STEPS = [
  "Every dot is a message, at the place where it was said.",
  "A subscription waits for some of them: say where, and about what.",
  "What reaches it lights up, with a thread, and its score is taken apart for you.",
];

export function showHint(place, begin) {
  if (localStorage.getItem("hinted")) return;
  place.innerHTML = `<h2>What is this?</h2><ol>${STEPS.map((step) => `<li>${step}</li>`).join("")}</ol>` +
    '<p class="actions"><button type="button" class="main">Drop a pin</button><button type="button">Just watch</button></p>';
  place.hidden = false;
  const [first, second] = place.querySelectorAll("button");
  const end = () => { localStorage.setItem("hinted", "yes"); place.hidden = true; };
  first.addEventListener("click", (event) => { end(); begin(event); });
  second.addEventListener("click", end);
}
