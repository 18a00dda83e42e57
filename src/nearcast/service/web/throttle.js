// Work that is requested more often than it should run.

// Return a function that runs `work` once per interval at most.
export function throttle(work, intervalMs) {
  let timer;
  return () => { timer ??= setTimeout(() => { timer = undefined; work(); }, intervalMs); };
}

// Return a function that runs `work` once no call came for a while.
export function debounce(work, pauseMs) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(work, pauseMs); };
}
